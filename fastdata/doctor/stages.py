"""How fast each stage is alone, and all of them together: pure arithmetic.

Stages work beside each other, so that the slowest gives the speed. Without a GPU, though, they want
the same cores, and an image costs the time of all of them.
"""

from collections.abc import Mapping

from fastdata.doctor.results import Measured, Reading, Remedy, StageName

Speeds = Mapping[StageName, float]
"""Images a second by stage, for the stages that there are."""


def steady_reading(measured: Measured) -> Reading:
    """The reading that epochs after the first see: from memory where that holds all files."""
    storage = measured.storage
    return storage.warm if storage.fits or storage.cold is None else storage.cold


def decoding_speed(measured: Measured, threads: int) -> float:
    """Speed of decoding with a measured number of threads."""
    return next(s.images_per_second for s in measured.decoding if s.threads == threads)


def speeds(measured: Measured) -> dict[StageName, float]:
    """Speed of each stage alone."""
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
    if measured.copying is not None:
        return slowest
    cores = int(measured.machine["cores"])  # of which the loader's Python uses one
    seconds = 1 / of_stages["decoding"] + 1 / of_stages["Python"] / cores
    if "model" in of_stages:
        seconds += 1 / of_stages["model"]
    return min(slowest, 1 / seconds)


def with_remedy(measured: Measured, of_stages: Speeds, remedy: Remedy) -> Speeds:
    """Speeds of the stages once the data set is packed in another way."""
    changed = {**of_stages, "decoding": of_stages["decoding"] * remedy.decoding}
    if steady_reading(measured) is measured.storage.cold:  # then bytes count
        changed["storage"] = of_stages["storage"] / remedy.bytes
    return changed
