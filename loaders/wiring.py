"""A loader's pipeline, put together of its stages."""

from collections.abc import Collection

import torch

from fastdata.batch.fields import FieldReader
from fastdata.batch.fill import Filler, Fills
from fastdata.batch.source import Source
from fastdata.batch.transform import TransformFiller
from fastdata.batch.workers import Transform
from fastdata.device.normalize import Normalization, Normalize
from fastdata.device.slots import Layout, Ring
from fastdata.device.streams import streams_to
from fastdata.device.transfer import Transfer
from fastdata.loaders.checks import batch_bytes, check_memory
from fastdata.loaders.pipeline import Pipeline
from fastdata.loaders.quarantine import Quarantine
from fastdata.loaders.replace import Replacer
from fastdata.plan.crop import Crop
from fastdata.plan.epochs import Epochs


def wired(
    source: Source,
    epochs: Epochs,
    crop: Crop,
    *,
    flip: float,
    seed: int,
    views: int,
    most: int,
    device: torch.device,
    normalize: Normalization | None,
    dtype: torch.dtype,
    fields: Collection[str],
    mask: str | None,
    transform: Transform | None,
    workers: int,
    threads: int,
    prefetch: int,
    error_budget: float,
    quarantine: Quarantine | None,
    max_pixels: int,
) -> Pipeline:
    """Decoder, buffers and the way to the device; nothing is read or allocated yet.

    Args:
        source: The data set.
        epochs: What is drawn from it.
        crop: What is cut out of each image.
        flip: Probability of a horizontal flip.
        seed: Keys crops and flips.
        views: Crops of each sample.
        most: Samples in the largest batch.
        device: Where batches go.
        normalize: Statistics to normalise them with there; None leaves them uint8.
        dtype: Floating-point type of normalised images.
        fields: Fields to read as bytes.
        mask: Field that holds a mask, or None.
        transform: The user's function over each image, or None.
        workers: Processes to run it in; 0 for threads.
        threads: Decoding threads.
        prefetch: Batches begun ahead of the one in use.
        error_budget: Share of samples that may be replaced.
        quarantine: Where these are listed; None makes a bad sample an error.
        max_pixels: Refuse larger images.

    Raises:
        OptionError: There is no memory for the batches.
    """
    layout = Layout(crop.shape, views, mask is not None)
    floats = dtype if normalize is not None and device.type == "cpu" else None
    size = batch_bytes(layout, most, floats=floats, arena=workers > 0)
    check_memory(size, most, prefetch + 2)
    reader = None
    if fields or mask is not None:
        reader = FieldReader(
            source,
            crop,
            flip=flip,
            seed=seed,
            names=fields,
            mask=mask,
            threads=threads,
            max_pixels=max_pixels,
        )
    keep_going = quarantine is not None
    filler: Fills = Filler(
        source,
        crop,
        flip=flip,
        seed=seed,
        threads=threads,
        ahead=prefetch + 1,
        keep_going=keep_going,
        max_pixels=max_pixels,
    )
    if transform is not None:
        filler = TransformFiller(
            filler,
            source,
            transform,
            shape=crop.shape,
            most=views * most,
            seed=seed,
            threads=threads,
            workers=workers,
            ahead=prefetch + 1,
            keep_going=keep_going,
        )
    replacer = None
    if quarantine is not None:
        replacer = Replacer(source, epochs, filler, reader, error_budget, quarantine)
    finish = None if normalize is None else Normalize(normalize, dtype=dtype, device=device)
    streams = streams_to(device)
    return Pipeline(
        filler,
        layout,
        Ring(layout.size(most), spare=prefetch + 2, pinned=streams.pinned),
        Transfer(streams, layout, most=most, slots=prefetch + 1, finish=finish),
        reader=reader,
        prefetch=prefetch,
        replacer=replacer,
        where=str(source.path),
    )
