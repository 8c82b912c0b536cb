"""Data sets that exist: verify, repair, index."""
