"""LMDB files: writing."""
