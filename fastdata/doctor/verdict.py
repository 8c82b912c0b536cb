"""From the figures to a diagnosis: speeds of the stages, the bottleneck, and advice.

Pure arithmetic. Stages work in parallel, so that the slowest is the bottleneck. Without a GPU,
however, they compete for the same cores, and an image costs the time of all of them.
"""

import math
from collections.abc import Iterator, Mapping

from fastdata.doctor.results import Advice, Diagnosis, Measured, Reading, Remedy, StageName
from fastdata.report.text import human_bytes

_WORTH = 1.05  # a smaller gain than this factor is noise
_FASTER = 1.3  # the same for reading with more threads, which varies more
_READS = 100  # fewer of them say nothing about storage
_MOST_PREFETCH = 16  # batches; they are held in memory
_FULL = 0.97  # of the ceiling


Speeds = Mapping[StageName, float]
"""Images a second of each stage that exists."""


def steady_reading(measured: Measured) -> Reading:
    """How epochs after the first read: from memory if it holds all files."""
    storage = measured.storage
    return storage.warm if storage.fits or storage.cold is None else storage.cold


def decoding_speed(measured: Measured, threads: int) -> float:
    """Speed of decoding with a measured number of threads."""
    return next(s.images_per_second for s in measured.decoding if s.threads == threads)


def speeds(measured: Measured) -> dict[StageName, float]:
    """Speed of each stage on its own."""
    settings = measured.settings
    found: dict[StageName, float] = {
        "storage": steady_reading(measured).images_per_second,
        "decoding": decoding_speed(measured, settings.threads),
        "Python": settings.batch_size / measured.loader.seconds_per_batch,
    }
    if measured.copying is not None:
        found["copying"] = measured.copying.images_per_second
    if measured.model is not None:
        found["model"] = measured.model.images_per_second
    return found


def expected(measured: Measured, of_stages: Speeds) -> float:
    """Speed of all stages together."""
    slowest = min(of_stages.values())
    if measured.copying is not None:  # the model is on a GPU, so stages run in parallel
        return slowest
    cores = int(measured.machine["cores"])  # the loader's Python uses one of them
    seconds = 1 / of_stages["decoding"] + 1 / of_stages["Python"] / cores
    if "model" in of_stages:
        seconds += 1 / of_stages["model"]
    return min(slowest, 1 / seconds)


def with_remedy(measured: Measured, of_stages: Speeds, remedy: Remedy) -> Speeds:
    """Speeds of the stages with the data set packed as the remedy says."""
    changed = {**of_stages, "decoding": of_stages["decoding"] * remedy.decoding}
    if steady_reading(measured) is measured.storage.cold:  # smaller files are read faster
        changed["storage"] = of_stages["storage"] / remedy.bytes
    return changed


def diagnose(measured: Measured, warnings: tuple[str, ...]) -> Diagnosis:
    """Find the bottleneck, what would widen it, and the loader with the settings advised.

    Args:
        measured: The figures.
        warnings: Passed on to the diagnosis.
    """
    of_stages = speeds(measured)
    limit = min(of_stages, key=lambda name: of_stages[name])
    total = expected(measured, of_stages)
    model = of_stages.get("model")
    return Diagnosis(
        measured=measured,
        stages=of_stages,
        limit=limit,
        expected=total,
        share=None if model is None else total / model,
        summary=" ".join(_sentences(measured, of_stages, limit, total)),
        advice=advice(measured, limit),
        warnings=warnings,
        loader=_loader(measured),
    )


def _sentences(
    measured: Measured, of_stages: Speeds, limit: StageName, total: float
) -> Iterator[str]:
    model = measured.model
    slowest = of_stages[limit]
    if model is None:
        yield f"Without a model, {limit} is the bottleneck: {slowest:,.0f} images/s."
    elif limit == "model":
        others = min(speed for name, speed in of_stages.items() if name != "model")
        yield (
            f"The model is the bottleneck: {model.name} takes {slowest:,.0f} images/s, and the "
            f"slowest stage before it delivers {others / slowest:.1f} times as many."
        )
    else:
        yield (
            f"{limit.capitalize()} is the bottleneck: {slowest:,.0f} images/s, while {model.name} "
            f"takes {model.images_per_second:,.0f}."
        )
    if model is not None:
        shared = (
            "" if measured.copying is not None else ", as loading and the model share the cores"
        )
        yield (
            f"Expect {total:,.0f} images/s, {total / model.images_per_second:.0%} of the ceiling"
            f"{shared}."
        )
    storage = measured.storage
    if storage.fits and storage.cold is not None and storage.cold.images_per_second < total:
        yield (
            f"The first epoch is slower, as storage delivers {storage.cold.images_per_second:,.0f} "
            f"images/s; after that, all {human_bytes(storage.bytes)} are in memory."
        )


def _loader(measured: Measured) -> str:
    settings = measured.settings
    arguments = [
        repr(settings.path),
        str(settings.batch_size),
        f"crop=fd.RandomResizedCrop({settings.size}, flip=0.5)",
        f"device={settings.device!r}",
        *([] if settings.dtype == "float32" else [f"dtype=torch.{settings.dtype}"]),
        f"threads={advised_threads(measured)}",
        f"prefetch={advised_prefetch(measured)}",
    ]
    return f"loader = fd.Loader({', '.join(arguments)})"


def advice(measured: Measured, limit: StageName) -> tuple[Advice, ...]:
    """Settings to change, by their gain; those whose gain is unknown come last."""
    found = [*_packing(measured), *_threads(measured), *_by_limit(measured, limit)]
    found.extend(_prefetch(measured))
    return tuple(sorted(found, key=lambda one: -(one.images_per_second or 0)))


def advised_threads(measured: Measured) -> int:
    """Number of threads to use: the current one, unless another is clearly faster."""
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
    # More threads must gain clearly, as they take cores from everything else.
    best = settings.threads
    for speed in measured.decoding:
        faster = expected(measured, {**of_stages, "decoding": speed.images_per_second})
        if speed.threads > settings.threads and faster > _WORTH * now:
            best, now = speed.threads, faster
    return best


def advised_prefetch(measured: Measured) -> int:
    """Batches to prepare ahead, enough to hide the slowest read that was seen."""
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
                f"decodes {remedy.decoding:.1f} times as fast, with {remedy.bytes:.0%} of the bytes"
            )
            yield Advice(remedy.command, f"{reason}; {remedy.note}", then)


def _threads(measured: Measured) -> Iterator[Advice]:
    advised, settings = advised_threads(measured), measured.settings
    if advised == settings.threads:
        return
    of_stages = speeds(measured)
    wide = measured.storage.cold_wide
    if wide is not None and advised == wide.threads and _storage_limits(measured, of_stages):
        then = expected(measured, {**of_stages, "storage": wide.images_per_second})
        reason = "storage answers slowly, but serves many reads at once: use more of them"
    else:
        then = expected(measured, {**of_stages, "decoding": decoding_speed(measured, advised)})
        reason = "more threads decode faster"
    yield Advice(f"threads={advised}", reason, then)


def _prefetch(measured: Measured) -> Iterator[Advice]:
    advised = advised_prefetch(measured)
    if advised > measured.settings.prefetch:
        slowest = steady_reading(measured).slowest_seconds
        yield Advice(
            f"prefetch={advised}",
            f"some reads took {slowest * 1000:,.0f} ms, longer than the prefetched batches last",
            None,
        )


def _by_limit(measured: Measured, limit: StageName) -> Iterator[Advice]:
    """What else widens the bottleneck."""
    of_stages, settings, storage = speeds(measured), measured.settings, measured.storage
    now = expected(measured, of_stages)
    if limit == "storage" and _storage_limits(measured, of_stages):
        if storage.file_system is not None:
            yield Advice("copy the data set to a local disk", "it is read over the network", None)
        if storage.memory is not None:
            yield Advice(
                f"use a machine with {human_bytes(storage.bytes)} of memory free",
                f"this one has {human_bytes(storage.memory)}, so every epoch reads from storage",
                expected(measured, {**of_stages, "storage": storage.warm.images_per_second}),
            )
    elif limit == "Python" and measured.copying is not None:
        then = expected(measured, {**of_stages, "Python": 2 * of_stages["Python"]})
        yield Advice(
            f"batch_size={2 * settings.batch_size}",
            "Python's time per batch does not depend on its size",
            then,
        )
    elif limit == "copying":
        yield Advice(
            "compare current and maximum link width and generation in nvidia-smi -q",
            "pixels are copied as uint8 already, one byte a channel",
            None,
        )
    elif limit == "decoding" and "model" in of_stages and measured.copying is not None:
        wanted = math.ceil(settings.threads * of_stages["model"] / of_stages["decoding"])
        if now < _FULL * of_stages["model"]:
            yield Advice(
                f"use a machine with {wanted} cores for decoding",
                f"{settings.threads} threads do not decode as fast as the model trains",
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
            yield Advice(f"train with {' '.join(unused)}", "these speed the model up", None)


def _storage_limits(measured: Measured, of_stages: Speeds) -> bool:
    """Whether storage is the bottleneck in every epoch."""
    cold = steady_reading(measured) is measured.storage.cold
    return cold and of_stages["storage"] == min(of_stages.values())
