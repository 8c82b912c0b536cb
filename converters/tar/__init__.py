"""Tar shards: reading and writing."""
