"""High-throughput image data loading for PyTorch: exact, from standard files.

    import fastdata as fd

    fd.pack("./imgs", "train/")
    loader = fd.Loader("train/", 256, crop=fd.RandomResizedCrop(224, flip=0.5))

Importing this package imports neither torch nor OpenCV; the names below do when they are used.
"""

import importlib

from fastdata import errors

TYPE_CHECKING = False  # as in typing, which takes longer to import than all else: see fastdata.cli
if TYPE_CHECKING:
    from typing import Any

    from fastdata.batch.batch import Batch
    from fastdata.batch.source import Sample
    from fastdata.converters.pack import PackReport, pack
    from fastdata.device.augment import RandomErasing
    from fastdata.device.normalize import IMAGENET, Normalization
    from fastdata.loaders import webdataset
    from fastdata.loaders.dali.loader import DALILoader
    from fastdata.loaders.datasets import (
        FolderDataset,
        LMDBDataset,
        SampleDataset,
        TarDataset,
    )
    from fastdata.loaders.datasets import open_dataset as open
    from fastdata.loaders.loader import Loader
    from fastdata.loaders.options import Ranks, Replace, Sampling
    from fastdata.loaders.readers.mix import Mix
    from fastdata.plan.crop import CenterCrop, RandomResizedCrop

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
    "Ranks",
    "Replace",
    "Sample",
    "SampleDataset",
    "Sampling",
    "TarDataset",
    "errors",
    "open",
    "pack",
    "webdataset",
]

_HOMES = {
    "Batch": "batch.batch",
    "CenterCrop": "plan.crop",
    "DALILoader": "loaders.dali.loader",
    "FolderDataset": "loaders.datasets",
    "IMAGENET": "device.normalize",
    "LMDBDataset": "loaders.datasets",
    "Loader": "loaders.loader",
    "Mix": "loaders.readers.mix",
    "Normalization": "device.normalize",
    "PackReport": "converters.pack",
    "RandomErasing": "device.augment",
    "RandomResizedCrop": "plan.crop",
    "Ranks": "loaders.options",
    "Replace": "loaders.options",
    "Sample": "batch.source",
    "SampleDataset": "loaders.datasets",
    "Sampling": "loaders.options",
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
