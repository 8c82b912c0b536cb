"""The loaders that ``loaders.py`` compares, one file a library.

Such a file has a function ``epochs(job)``, which yields epochs without end, each an iterator over
the images of a batch (a tensor of uint8, or whatever the library gives by itself), shuffled, with a
random-resized crop and a flip, incomplete batches left out. Where the library has a form of its own
for the images, ``prepare(job)`` writes it to ``job.form`` first. Each runs in its own process.

Each is set up as its own documentation advises for training from fast local storage: as many
workers or threads as cores, its usual prefetching, no pinned memory. Batches stay uint8, which
spares every library the normalisation that fastdata leaves to the device.
"""

from typing import NamedTuple

from native import NEEDS

from peers.job import Job

__all__ = ["PEERS", "Job", "Peer"]


class Peer(NamedTuple):
    """A loader to compare.

    Attributes:
        module: Its file, in this package.
        needs: Modules that must be installed.
        packages: Distributions whose versions are stated.
        about: How it works, in a few words.
        prepares: Whether it reads a form of its own, not the folder.
        small: Whether it is for small images only, being too large a form of others.
    """

    module: str
    needs: tuple[str, ...]
    packages: tuple[str, ...]
    about: str
    prepares: bool = True
    small: bool = False


_TORCHVISION = ("torchvision", "Pillow")
_SPDL = ("spdl.io", "spdl.dataloader", "torchvision")
_DALI = ("nvidia-dali-cuda120", "nvidia-dali-cuda130")

PEERS = {
    "torchvision-pil": Peer(
        "torchvision_pil",
        ("torchvision",),
        _TORCHVISION,
        "ImageFolder, Pillow transforms",
        prepares=False,
    ),
    "torchvision-v2": Peer(
        "torchvision_v2",
        ("torchvision",),
        _TORCHVISION,
        "ImageFolder, v2 transforms of tensors",
        prepares=False,
    ),
    "webdataset": Peer(
        "webdataset_tar",
        ("webdataset", "torchvision"),
        ("webdataset",),
        "its tar shards, v2 transforms of tensors",
    ),
    "litdata": Peer(
        "litdata_chunks",
        ("litdata", "torchvision"),
        ("litdata",),
        "its chunks of JPEGs, v2 transforms of tensors",
    ),
    "streaming": Peer(
        "streaming_mds",
        ("streaming", "torchvision"),
        ("mosaicml-streaming",),
        "its MDS shards, v2 transforms of tensors",
    ),
    "spdl": Peer(
        "spdl_threads",
        _SPDL,
        ("spdl", "spdl-io"),
        "the folder, v2 transforms of tensors in threads",
        prepares=False,
    ),
    "spdl-ffmpeg": Peer(
        "spdl_threads",
        _SPDL,
        ("spdl", "spdl-io"),
        "the folder, its own FFmpeg reader in threads",
        prepares=False,
    ),
    "dali": Peer(
        "dali_cpu",
        ("nvidia.dali",),
        _DALI,
        "the folder, decoder fused with random crop",
        prepares=False,
    ),
    "ffcv-jpeg": Peer("ffcv_beton", ("ffcv",), ("ffcv",), "its file of JPEGs, written at q90"),
    "ffcv-raw": Peer("ffcv_beton", ("ffcv",), ("ffcv",), "its file of raw pixels", small=True),
    "fastdata-memory": Peer(
        "fastdata_memory", NEEDS, (), "decoding alone, packed images in memory: fastdata's ceiling"
    ),
    "fastdata-folder": Peer("fastdata_loader", (), (), "the folder as it is", prepares=False),
    "fastdata-tar": Peer("fastdata_loader", (), (), "packed, tar shards"),
    "fastdata-lmdb": Peer("fastdata_loader", (), (), "packed, LMDB"),
    "fastdata-dali": Peer(
        "fastdata_loader", ("nvidia.dali",), _DALI, "packed, tar shards, decoded by DALI"
    ),
    "fastdata-dali-cut": Peer(
        "fastdata_loader", ("nvidia.dali",), _DALI, "likewise, only the runs that a crop needs"
    ),
}
