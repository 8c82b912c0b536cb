"""The files of a packed data set: catalog, manifest, LMDB."""
