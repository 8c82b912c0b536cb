"""A data set in one LMDB file: the format, and reading it without a library."""
