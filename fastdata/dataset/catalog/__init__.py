"""The catalog: a row for each sample, in flat tables with checksums."""
