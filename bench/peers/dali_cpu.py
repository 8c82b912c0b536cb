"""NVIDIA DALI on the CPU: file reader, decoder fused with the random crop, resize, flip.

The operators of its ResNet50 example for PyTorch without a GPU, less the normalisation. That
example's INTERP_TRIANGULAR is deprecated in favour of INTERP_LINEAR with ``antialias``.
"""

from collections.abc import Iterator
from typing import Any

from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from peers import Job


def epochs(job: Job) -> Iterator[Iterator[Any]]:
    """Epochs of batches, as ``peers`` says."""
    pipeline = pipeline_def(
        _graph, batch_size=job.batch, num_threads=job.threads, device_id=None, seed=0
    )
    iterator = DALIGenericIterator(
        pipeline(str(job.images), job.size),
        ["images", "labels"],
        reader_name="files",
        auto_reset=True,
        last_batch_policy=LastBatchPolicy.DROP,
    )
    while True:
        yield (outputs[0]["images"] for outputs in iterator)


def _graph(root: str, size: int) -> tuple[Any, Any]:
    """Operators from files to batches of images and labels."""
    files, labels = fn.readers.file(
        file_root=root, random_shuffle=True, initial_fill=1024, name="files"
    )
    images = fn.decoders.image_random_crop(
        files,
        device="cpu",
        output_type=types.RGB,
        random_area=[0.08, 1.0],
        random_aspect_ratio=[3 / 4, 4 / 3],
        num_attempts=10,
    )
    images = fn.resize(images, size=[size, size], interp_type=types.INTERP_LINEAR, antialias=True)
    return fn.flip(images, horizontal=fn.random.coin_flip(probability=0.5)), labels
