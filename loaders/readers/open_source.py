"""Which reader a path needs."""

import os
from pathlib import Path

from fastdata.dataset import manifest
from fastdata.errors import ManifestError
from fastdata.loaders.readers.folder import FolderSource
from fastdata.loaders.readers.lmdb import LMDBSource
from fastdata.loaders.readers.tar import TarSource

AnySource = TarSource | LMDBSource | FolderSource


def source_class(path: str | os.PathLike[str]) -> type[AnySource]:
    """The reader for what lies at a path: shards, an LMDB file, or a folder of images.

    Raises:
        NotADatasetError: There is nothing.
        ManifestError: There is a pack that was never finished.
    """
    where = Path(path)
    if where.is_file():
        return LMDBSource
    if (where / manifest.FILE_NAME).exists():
        return TarSource
    error = manifest.absent(where)
    if isinstance(error, ManifestError):  # shards, or an LMDB, that were not finished
        raise error
    if not where.is_dir():
        raise error
    return FolderSource


def open_source(path: str | os.PathLike[str]) -> AnySource:
    """The data set at a path.

    Raises:
        NotADatasetError: There is none.
        CorruptError: It is damaged.
    """
    return source_class(path)(path)
