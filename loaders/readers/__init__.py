"""Samples out of tar shards, LMDB files and folders."""
