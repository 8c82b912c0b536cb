"""Where a pack goes: which kind of data set a name stands for."""

from pathlib import Path

from fastdata.converters.lmdb.destination import LmdbDestination
from fastdata.converters.place import Destination
from fastdata.converters.tar.destination import TarDestination

__all__ = ["Destination", "destination"]


def destination(path: Path) -> Destination:
    """Tell the kind by the name: one LMDB file if it ends in .lmdb, else a folder of shards."""
    return LmdbDestination(path) if path.name.endswith(".lmdb") else TarDestination(path)
