"""Which setting to change, and what that would give: pure arithmetic."""

import math
from collections.abc import Iterator

from fastdata.doctor.results import Advice, Measured, StageName
from fastdata.doctor.stages import (
    Speeds,
    decoding_speed,
    expected,
    speeds,
    steady_reading,
    with_remedy,
)
from fastdata.report.text import size

_WORTH = 1.05  # times the speed; less is noise
_FASTER = 1.3  # times the speed of reading; likewise, over storage
_READS = 100  # fewer of them say nothing about storage
_MOST_PREFETCH = 16  # batches; they are held in memory
_FULL = 0.97  # of the ceiling


def advice(measured: Measured, limit: StageName) -> tuple[Advice, ...]:
    """Settings to change, the one that gains most first, those without a figure last."""
    found = [*_packing(measured), *_threads(measured), *_by_limit(measured, limit)]
    found.extend(_prefetch(measured))
    return tuple(sorted(found, key=lambda one: -(one.images_per_second or 0)))


def threads(measured: Measured) -> int:
    """The number of threads to use: what was chosen, unless another number is worth it."""
    settings, of_stages = measured.settings, speeds(measured)
    now = expected(measured, of_stages)
    wide = measured.storage.cold_wide
    if (
        wide is not None
        and _storage_limits(measured, of_stages)
        and wide.images >= _READS
        and wide.images_per_second > _FASTER * of_stages["storage"]
    ):
        return wide.threads
    best = settings.threads
    for speed in measured.decoding:
        faster = expected(measured, {**of_stages, "decoding": speed.images_per_second})
        if speed.threads > settings.threads and faster > _WORTH * now:
            best, now = speed.threads, faster
    return best


def prefetch(measured: Measured) -> int:
    """Batches to begin ahead, so that the slowest read that was seen makes nobody wait."""
    rate = expected(measured, speeds(measured))
    batches = steady_reading(measured).slowest_seconds * rate / measured.settings.batch_size
    return max(measured.settings.prefetch, min(_MOST_PREFETCH, math.ceil(batches) + 1))


def _packing(measured: Measured) -> Iterator[Advice]:
    of_stages = speeds(measured)
    now = expected(measured, of_stages)
    for remedy in measured.remedies:
        then = expected(measured, with_remedy(measured, of_stages, remedy))
        if then > _WORTH * now:
            reason = (
                f"decodes {remedy.decoding:.1f} times as fast in {remedy.bytes:.0%} of the bytes"
            )
            yield Advice(remedy.command, f"{reason}; {remedy.note}", then)


def _threads(measured: Measured) -> Iterator[Advice]:
    advised, settings = threads(measured), measured.settings
    if advised == settings.threads:
        return
    of_stages = speeds(measured)
    wide = measured.storage.cold_wide
    if wide is not None and advised == wide.threads and _storage_limits(measured, of_stages):
        then = expected(measured, {**of_stages, "storage": wide.images_per_second})
        reason = "storage answers slowly, but many at a time: more reads under way are faster"
    else:
        then = expected(measured, {**of_stages, "decoding": decoding_speed(measured, advised)})
        reason = "that many decode faster than the number chosen"
    yield Advice(f"threads={advised}", reason, then)


def _prefetch(measured: Measured) -> Iterator[Advice]:
    advised = prefetch(measured)
    if advised > measured.settings.prefetch:
        slowest = steady_reading(measured).slowest_seconds
        yield Advice(
            f"prefetch={advised}",
            f"some reads took {slowest * 1000:,.0f} ms, longer than what was begun ahead lasts",
            None,
        )


def _by_limit(measured: Measured, limit: StageName) -> Iterator[Advice]:
    """What helps against the stage that limits."""
    of_stages, settings, storage = speeds(measured), measured.settings, measured.storage
    now = expected(measured, of_stages)
    if limit == "storage" and _storage_limits(measured, of_stages):
        if storage.file_system is not None:
            yield Advice("copy the data set to a local disk", "it is read over the network", None)
        if storage.memory is not None:
            yield Advice(
                f"use a machine with {size(storage.bytes)} of memory free",
                f"here {size(storage.memory)} are, so that each epoch reads from storage again",
                expected(measured, {**of_stages, "storage": storage.warm.images_per_second}),
            )
    elif limit == "Python" and measured.copying is not None:
        then = expected(measured, {**of_stages, "Python": 2 * of_stages["Python"]})
        yield Advice(
            f"batch_size={2 * settings.batch_size}",
            "a batch costs Python the same at any size",
            then,
        )
    elif limit == "copying":
        yield Advice(
            "look at the GPU's link with nvidia-smi -q: width and generation, current and maximal",
            "pixels are copied as uint8 already, a byte a channel",
            None,
        )
    elif limit == "decoding" and "model" in of_stages and measured.copying is not None:
        wanted = math.ceil(settings.threads * of_stages["model"] / of_stages["decoding"])
        if now < _FULL * of_stages["model"]:
            yield Advice(
                f"use a machine where {wanted} threads decode",
                f"{settings.threads} do not decode as fast as the model takes images",
                None,
            )
    elif limit == "model":
        unused = [
            name
            for name, used in (
                ("--amp bf16", settings.amp != "off"),
                ("--channels-last", settings.channels_last),
                ("--compile", settings.compile),
            )
            if not used
        ]
        if unused and measured.copying is not None:
            yield Advice(
                f"train with {' '.join(unused)}", "the model limits, and these make it faster", None
            )


def _storage_limits(measured: Measured, of_stages: Speeds) -> bool:
    """Whether each epoch waits for storage."""
    cold = steady_reading(measured) is measured.storage.cold
    return cold and of_stages["storage"] == min(of_stages.values())
