"""Batches that NVIDIA DALI decodes, in our order and with our crops."""

from functools import partial
from typing import Literal

import torch

from fastdata.batch.batch import Augment
from fastdata.batch.source import Source
from fastdata.device.normalize import IMAGENET, Normalization
from fastdata.errors import OptionError
from fastdata.images.limits import MAX_PIXELS
from fastdata.loaders.dali.feed import Feeder
from fastdata.loaders.dali.graph import Graph
from fastdata.loaders.dali.imports import DALI, dali
from fastdata.loaders.dali.pipeline import DALIPipeline
from fastdata.loaders.loader import BatchLoader, Path
from fastdata.loaders.options import Options, Ranks, Sampling
from fastdata.loaders.pipeline import check_memory
from fastdata.plan.crop import VALIDATION, Crop
from fastdata.plan.epochs import BatchPlan, Epochs, Shuffle


class DALILoader(BatchLoader):
    """A :class:`fastdata.Loader` whose images DALI decodes, crops, scales, flips and normalises.

        crop = fd.RandomResizedCrop(224, flip=0.5)
        loader = fd.DALILoader("train/", 256, crop=crop, device="cuda")

    Everything but the decoder is that of ``fd.Loader``: the same samples in the same order with the
    same crops and flips, the same batches on each rank, ``valid``, epochs, and states, which either
    of the two takes from the other. Encoded bytes go to DALI through ``external_source``, checked
    against their checksums, so it reads whatever ``fd.Loader`` does. Pixels on the CPU are within 1
    of those of ``fd.Loader``, except in the outermost row or column, where DALI repeats the edge of
    the region under the filter and Pillow narrows the filter.

    A bad sample is always an error, since DALI ends at it. ``fields``, ``mask`` and ``transform``
    are ``fd.Loader``'s alone.
    """

    def __init__(
        self,
        path: Path,
        batch_size: int,
        *,
        crop: Crop = VALIDATION,
        views: int = 1,
        shuffle: Shuffle = True,
        seed: int = 0,
        sampling: Sampling | None = None,
        drop_last: bool | None = None,
        ranks: Ranks | None = None,
        device: str | torch.device | None = None,
        normalize: Normalization | None = IMAGENET,
        dtype: torch.dtype = torch.float32,
        augment: Augment | None = None,
        threads: int | None = None,
        prefetch: int = 2,
        max_pixels: int = MAX_PIXELS,
        decoder: Literal["cpu", "mixed"] | None = None,
        cut: bool = False,
    ) -> None:
        """Open the data set; nothing is read before the first batch is asked for.

        Args:
            path: As for :class:`fastdata.Loader`, like all arguments down to ``max_pixels``.
            batch_size: Samples in a batch of this rank.
            crop: Cut out of each image.
            views: Crops of each sample.
            shuffle: A new order in each epoch.
            seed: Keys order, crops and flips.
            sampling: Which samples an epoch draws, and how often.
            drop_last: Leave out an incomplete last global batch.
            ranks: This rank and the world size.
            device: Where batches go, normalised.
            normalize: Mean and standard deviation.
            dtype: Floating-point type of normalised images.
            augment: Called for each batch on the device.
            threads: DALI's threads. As many read, which takes little of a core.
            prefetch: Batches begun ahead of the one in use.
            max_pixels: Largest image to decode.
            decoder: ``"cpu"``, or ``"mixed"`` for nvJPEG and the hardware decoder, which is the
                default on CUDA.
            cut: Give DALI only the restart runs of a JPEG that the crop needs. That saves copying
                and decoding, and costs the reading threads a search through the bytes; pixels stay
                the same. It needs the native core and images packed with runs; others go whole.

        Raises:
            MissingExtraError: DALI is not installed, or is too old.
            NotADatasetError: ``path`` holds no data set.
            CorruptError: It is damaged.
            OptionError: An argument is out of range.
        """
        options = Options(
            batch_size=batch_size,
            crop=crop,
            views=views,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            device=device,
            normalize=normalize,
            dtype=dtype,
            augment=augment,
            threads=threads,
            prefetch=prefetch,
            max_pixels=max_pixels,
        )
        build = partial(_build_pipeline, dali(), decoder, cut)
        super().__init__(path, sampling, ranks, options, build)


def _build_pipeline(
    modules: DALI,
    decoder: str | None,
    cut: bool,  # noqa: FBT001 - bound by partial
    source: Source,
    epochs: Epochs,  # noqa: ARG001 - a pipeline that replaces samples draws from them
    plan: BatchPlan,
    options: Options,
) -> DALIPipeline:
    """DALI's operators and what feeds them; nothing is built or read yet.

    Raises:
        OptionError: ``decoder`` does not fit, or there is no memory for the batches.
    """
    check_memory(options, plan.largest)
    device = options.target
    threads = options.decoding_threads
    feeder = Feeder(
        source,
        options.crop,
        seed=options.seed,
        threads=threads,
        cut=cut,
        max_pixels=options.max_pixels,
    )
    graph = Graph(
        batch_size=options.views * plan.largest,
        shape=options.crop.shape,
        threads=threads,
        device_id=device.index if device.type == "cuda" else None,
        mixed=_is_mixed(decoder, device),
        normalize=options.statistics,
        half=options.dtype == torch.float16,
    )
    return DALIPipeline(
        modules,
        graph,
        feeder,
        device,
        options.dtype,
        views=options.views,
        prefetch=options.prefetch,
        where=str(source.path),
    )


def _is_mixed(decoder: str | None, device: torch.device) -> bool:
    """Whether nvJPEG decodes."""
    if decoder not in (None, "cpu", "mixed"):
        raise OptionError(f"decoder must be 'cpu' or 'mixed', found {decoder!r}")
    if decoder == "mixed" and device.type != "cuda":
        raise OptionError("decoder='mixed' decodes on a GPU: it needs device='cuda'")
    return device.type == "cuda" and decoder != "cpu"
