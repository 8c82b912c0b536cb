"""High-throughput image data loading for PyTorch: exact, from standard files.

    import fastdata as fd

    fd.pack("./imgs", "train/")
    loader = fd.Loader("train/", 256, crop=fd.RandomResizedCrop(224), flip=0.5, device="cuda")

Importing this package imports neither torch nor OpenCV; the names below do when they are used.
"""

import importlib

from fastdata import errors

TYPE_CHECKING = False  # as in typing, which takes longer to import than all else: see fastdata.cli
if TYPE_CHECKING:
    from typing import Any

    from fastdata.augment import RandomErasing
    from fastdata.batch import Batch
    from fastdata.converters.pack import PackReport, pack
    from fastdata.crop import CenterCrop, RandomResizedCrop
    from fastdata.loaders import webdataset
    from fastdata.loaders.dali import DALILoader
    from fastdata.loaders.datasets import (
        FolderDataset,
        LMDBDataset,
        SampleDataset,
        TarDataset,
    )
    from fastdata.loaders.datasets import open_dataset as open
    from fastdata.loaders.loader import Loader
    from fastdata.loaders.mix import Mix
    from fastdata.normalize import IMAGENET, Normalization
    from fastdata.sample import Sample

__version__ = "0.1.0"

__all__ = [
    "IMAGENET",
    "Batch",
    "CenterCrop",
    "DALILoader",
    "FolderDataset",
    "LMDBDataset",
    "Loader",
    "Mix",
    "Normalization",
    "PackReport",
    "RandomErasing",
    "RandomResizedCrop",
    "Sample",
    "SampleDataset",
    "TarDataset",
    "errors",
    "open",
    "pack",
    "webdataset",
]

_HOMES = {
    "Batch": "batch",
    "CenterCrop": "crop",
    "DALILoader": "loaders.dali",
    "FolderDataset": "loaders.datasets",
    "IMAGENET": "normalize",
    "LMDBDataset": "loaders.datasets",
    "Loader": "loaders.loader",
    "Mix": "loaders.mix",
    "Normalization": "normalize",
    "PackReport": "converters.pack",
    "RandomErasing": "augment",
    "RandomResizedCrop": "crop",
    "Sample": "sample",
    "SampleDataset": "loaders.datasets",
    "TarDataset": "loaders.datasets",
    "open": "loaders.datasets",
    "pack": "converters.pack",
    "webdataset": "loaders.webdataset",
}


def __getattr__(name: str) -> "Any":
    """Import a public name when it is first used (PEP 562): torch alone takes seconds."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    own = {"open": "open_dataset"}.get(name, name)
    value = module if name == "webdataset" else getattr(module, own)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names."""
    return sorted([*__all__, "__version__"])
