"""Readers of packed data sets and folders, and the loader that makes batches of them."""
