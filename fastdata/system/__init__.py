"""Threads, memory, cores and files: what the operating system gives."""
