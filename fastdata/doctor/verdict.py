"""What limits, in figures and in words, and the loader to make: pure arithmetic."""

from collections.abc import Iterator

from fastdata.doctor.advice import advice, prefetch, threads
from fastdata.doctor.results import Diagnosis, Measured, StageName
from fastdata.doctor.stages import Speeds, expected, speeds
from fastdata.report.text import size


def diagnose(measured: Measured, warnings: tuple[str, ...]) -> Diagnosis:
    """Find the stage that limits, what would help, and how the loader is made then.

    Args:
        measured: The figures.
        warnings: What else was noticed.
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
        yield f"Without a model, {limit} limits: {slowest:,.0f} images/s."
    elif limit == "model":
        others = min(speed for name, speed in of_stages.items() if name != "model")
        yield (
            f"The model limits: {model.name} takes {slowest:,.0f} images/s, and the slowest stage "
            f"before it gives {others / slowest:.1f} times as many."
        )
    else:
        yield (
            f"{limit.capitalize()} limits: {slowest:,.0f} images/s, where {model.name} takes "
            f"{model.images_per_second:,.0f}."
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
            f"The first epoch is slower, storage gives {storage.cold.images_per_second:,.0f} "
            f"images/s; after it, memory holds all {size(storage.bytes)}."
        )


def _loader(measured: Measured) -> str:
    settings = measured.settings
    arguments = [
        repr(settings.path),
        str(settings.batch_size),
        f"crop=fd.RandomResizedCrop({settings.size})",
        "flip=0.5",
        f"device={settings.device!r}",
        *([] if settings.dtype == "float32" else [f"dtype=torch.{settings.dtype}"]),
        f"threads={threads(measured)}",
        f"prefetch={prefetch(measured)}",
    ]
    return f"loader = fd.Loader({', '.join(arguments)})"
