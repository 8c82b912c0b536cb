"""Batches that NVIDIA DALI decodes, in our order and with our crops."""

import os
from collections.abc import Collection, Mapping
from typing import Any, Literal

import torch

from fastdata.batch.batch import Augment
from fastdata.device.normalize import IMAGENET, Normalization
from fastdata.device.slots import Layout
from fastdata.device.transfer import usable_device
from fastdata.errors import OptionError
from fastdata.images.limits import MAX_PIXELS
from fastdata.loaders.batch_loader import BatchLoader
from fastdata.loaders.checks import batch_bytes, check_memory, check_options
from fastdata.loaders.choice import Weights, Where
from fastdata.loaders.dali.feed import Feeder
from fastdata.loaders.dali.graph import Graph
from fastdata.loaders.dali.imports import dali
from fastdata.loaders.dali.pipeline import DALIPipeline
from fastdata.loaders.dali.shards import check_reader
from fastdata.loaders.dali.webdataset import ReaderGraph, ReaderPipeline
from fastdata.loaders.drawing import drawn_from
from fastdata.loaders.ranks import rank_and_world_size
from fastdata.loaders.readers.mix import Mix
from fastdata.plan.batch_plan import BatchPlan
from fastdata.plan.crop import CenterCrop, Crop
from fastdata.plan.epochs import Shuffle
from fastdata.system import resources

_DALI_FLOATS = (torch.float32, torch.float16)


class DALILoader(BatchLoader):
    """A :class:`fastdata.Loader` whose images DALI decodes, crops, scales, flips and normalises.

        loader = fd.DALILoader("train/", 256, crop=fd.RandomResizedCrop(224), flip=0.5,
                               device="cuda")

    By default everything but the decoder is that of ``fd.Loader``: the same samples in the same
    order with the same crops and flips, the same batches on each rank, ``valid``, epochs, and
    states, which either of the two takes from the other. Encoded bytes go to DALI through
    ``external_source``, checked against their checksums, so it reads whatever ``fd.Loader`` does.
    Pixels on the CPU are within 1 of those of ``fd.Loader``, but in the outermost row or column,
    where DALI repeats the edge of the region beneath the filter and Pillow narrows the filter.

    A bad sample is an error; there is no ``on_error="replace"``, since DALI ends at it. Nor are
    there ``fields``, ``mask`` and ``transform``.

    With ``reader="webdataset"`` DALI reads the shards itself, by the index files that ``pack``
    writes: in its own order, which is mixed within a buffer, with crops that it draws itself, and
    without checksums. Batches are full, ``ids`` and ``keys`` are right, and each sample comes once
    an epoch on one rank, always the same one. There are no states, and nothing can be chosen.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Mix,
        batch_size: int,
        *,
        crop: Crop | None = None,
        flip: float = 0.0,
        views: int = 1,
        shuffle: Shuffle = True,
        seed: int = 0,
        where: Where | None = None,
        weights: Weights | None = None,
        draws: int | None = None,
        repeats: int = 1,
        drop_last: bool | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        device: str | torch.device | None = None,
        normalize: Normalization | None = IMAGENET,
        dtype: torch.dtype = torch.float32,
        augment: Augment | None = None,
        threads: int | None = None,
        prefetch: int = 2,
        reader: Literal["fastdata", "webdataset"] = "fastdata",
        decoder: Literal["cpu", "mixed"] | None = None,
        cut: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Open the data set; nothing is read before the first batch is asked for.

        Args:
            path: As for :class:`fastdata.Loader`, like all arguments down to ``prefetch``.
            batch_size: Samples in a batch of this rank.
            crop: What is cut out; None means ``CenterCrop(224, resize=256)``.
            flip: Probability of a horizontal flip.
            views: Crops of each sample.
            shuffle: A new order in each epoch; with ``reader="webdataset"`` True or False.
            seed: Keys order, crops and flips.
            where: Only these samples.
            weights: Draw with replacement.
            draws: Samples in an epoch.
            repeats: Times that each sample comes in a row.
            drop_last: Leave out an incomplete last global batch; None means when shuffling.
            rank: This rank; None takes it from torch.distributed.
            world_size: Number of ranks; None likewise.
            device: Where batches go, normalised. None leaves them in host memory as uint8.
            normalize: Mean and standard deviation; None leaves uint8 pixels also on a device.
            dtype: Floating-point type of normalised images.
            augment: What is done to each batch on its device.
            threads: DALI's threads. As many read, which takes little of a core.
            prefetch: Batches begun ahead of the one in use.
            reader: Who reads: ``"fastdata"`` in our order, or DALI's ``"webdataset"``.
            decoder: ``"cpu"``, or ``"mixed"`` for nvJPEG and the hardware decoder, which is the
                default on CUDA.
            cut: Give DALI only those restart runs of a JPEG that the crop needs. That saves
                copying and decoding, and costs the reading threads a search through the bytes;
                pixels stay the same. It needs the native core and images packed with runs, others
                go whole.
            max_pixels: Largest image to decode; not with ``reader="webdataset"``, where DALI reads.

        Raises:
            MissingExtraError: DALI is not installed, or is too old.
            NotADatasetError: ``path`` holds no data set.
            CorruptError: It is damaged.
            OptionError: An argument is out of range, or the reader does not take it.
        """
        modules = dali()
        check_options(
            flip=flip,
            views=views,
            on_error="raise",
            dtype=dtype,
            transform=None,
            workers=0,
            threads=threads,
            prefetch=prefetch,
            max_pixels=max_pixels,
        )
        source, epochs = drawn_from(
            path,
            where=where,
            weights=weights,
            draws=draws,
            repeats=repeats,
            shuffle=shuffle,
            seed=seed,
        )
        crop = CenterCrop(224, resize=256) if crop is None else crop
        whole = bool(shuffle) if drop_last is None else drop_last
        plan = BatchPlan(len(epochs), batch_size, whole, *rank_and_world_size(rank, world_size))
        most = min(batch_size, len(epochs))
        to = usable_device("cpu" if device is None else device)
        floats = dtype if None not in (device, normalize) and to.type == "cpu" else None
        size = batch_bytes(Layout(crop.shape, views), most, floats=floats)
        check_memory(size, most, prefetch + 2)
        threads = resources.decode_threads() if threads is None else threads
        graph = Graph(
            batch_size=views * most,
            shape=crop.shape,
            threads=threads,
            device_id=to.index if to.type == "cuda" else None,
            mixed=_is_mixed(decoder, to),
            normalize=None if device is None else normalize,
            half=dtype == torch.float16,
        )
        cast_to = None if graph.normalize is None or dtype in _DALI_FLOATS else dtype
        pipeline: DALIPipeline | ReaderPipeline
        self._states = reader == "fastdata"
        if reader == "fastdata":
            feeder = Feeder(
                source,
                crop,
                flip=flip,
                seed=seed,
                threads=threads,
                cut=cut,
                max_pixels=max_pixels,
            )
            pipeline = DALIPipeline(
                modules,
                graph,
                feeder,
                to,
                cast_to,
                views=views,
                prefetch=prefetch,
                where=str(source.path),
            )
        elif reader == "webdataset":
            chosen = where is None and weights is None and draws is None
            everything = chosen and views == repeats == 1 and not cut
            shards, known = check_reader(source, crop, everything=everything, shuffle=shuffle)
            pipeline = ReaderPipeline(
                modules,
                ReaderGraph(graph, shards, known, flip, bool(shuffle), seed, plan),
                to,
                cast_to,
                prefetch,
            )
        else:
            raise OptionError(f"reader must be 'fastdata' or 'webdataset', found {reader!r}")
        super().__init__(
            source,
            epochs,
            plan,
            pipeline,
            own_rank=rank is None,
            crop=crop,
            flip=flip,
            views=views,
            augment=augment,
            release=pipeline.release,
        )

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, for a ``DALILoader`` or a ``Loader``; see there.

        Raises:
            OptionError: DALI's own reader has no place to go on from.
        """
        self._require_states()
        return super().state_dict()

    def load_state_dict(
        self, state_dict: Mapping[str, Any], *, override: Collection[str] = ()
    ) -> None:
        """Go on where a ``DALILoader`` or a ``Loader`` stood; see there.

        Raises:
            StateError: It is of another data set or other options, or no state at all.
            OptionError: DALI's own reader can begin epochs alone.
        """
        self._require_states()
        super().load_state_dict(state_dict, override=override)

    def _require_states(self) -> None:
        if not self._states:
            raise OptionError(
                "reader='webdataset' has no states: DALI's buffer decides what comes next; use "
                "reader='fastdata'"
            )


def _is_mixed(decoder: str | None, device: torch.device) -> bool:
    """Whether nvJPEG decodes."""
    if decoder not in (None, "cpu", "mixed"):
        raise OptionError(f"decoder must be 'cpu' or 'mixed', found {decoder!r}")
    if decoder == "mixed" and device.type != "cuda":
        raise OptionError("decoder='mixed' decodes on a GPU: it needs device='cuda'")
    return device.type == "cuda" and decoder != "cpu"
