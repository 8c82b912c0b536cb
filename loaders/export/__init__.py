"""Packed data sets back into files."""
