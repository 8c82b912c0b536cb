"""A diagnosis for the terminal."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fastdata.doctor.results import Diagnosis, Measured, Reading
from fastdata.report.text import human_bytes

Row = tuple[str, float, str]
"""A stage, its images a second, and details in its own units."""


def render(diagnosis: Diagnosis) -> RenderableType:
    """A table with a row for each measurement, and below it the diagnosis."""
    measured = diagnosis.measured
    settings, content = measured.settings, measured.content
    # Text, because a path may hold the brackets of rich's markup
    title = Text(
        f"{settings.path}: {measured.samples:,} images of {human_bytes(content.bytes)}, crops of "
        f"{settings.size} pixels, batches of {settings.batch_size}, {settings.device}"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("stage, on its own")
    table.add_column("images/s", justify="right")
    table.add_column("")
    for name, speed, detail in _rows(measured):
        table.add_row(name, f"{speed:,.0f}", detail)
    lines = [Text(diagnosis.summary, style="bold")]
    for advice in diagnosis.advice:
        then = advice.images_per_second
        gain = "" if then is None else f"; expect {then:,.0f} images/s"
        lines.append(Text(f"change: {advice.change}: {advice.reason}{gain}", style="green"))
    if not diagnosis.advice:
        lines.append(Text("nothing to change", style="green"))
    lines.extend(Text(f"note: {warning}", style="yellow") for warning in diagnosis.warnings)
    return Group(table, *lines)


def _rows(measured: Measured) -> Iterator[Row]:
    storage, settings = measured.storage, measured.settings
    for reading in (storage.cold, storage.cold_wide):
        if reading is not None:
            yield _reading("storage, cold", reading)
    yield _reading("storage, from memory", storage.warm)
    one = measured.decoding[0].images_per_second
    for speed in measured.decoding:
        gain = f"{speed.images_per_second / one:.1f} times one thread" if speed.threads > 1 else ""
        used = "current setting" if speed.threads == settings.threads else ""
        detail = ", ".join(filter(None, (gain, used)))
        yield f"decoding, {_count(speed.threads, 'thread')}", speed.images_per_second, detail
    loader, batch_size = measured.loader, settings.batch_size
    yield "the whole loader", loader.images_per_second, "with the page cache as it is"
    yield (
        "Python" if measured.copying is not None else "Python and normalisation",
        batch_size / loader.seconds_per_batch,
        f"{loader.seconds_per_batch * 1000:.2f} ms a batch on the training thread",
    )
    if measured.copying is not None:
        detail = f"{measured.copying.bytes_per_second / 1e9:.1f} GB/s"
        yield "copy to the device", measured.copying.images_per_second, detail
    if measured.model is not None:
        model = measured.model
        switches = [f"amp {settings.amp}"] if settings.amp != "off" else ["float32"]
        switches += ["channels last"] if settings.channels_last else []
        switches += ["compiled"] if settings.compile else []
        detail = f"batches of {model.batch_size}, {', '.join(switches)}"
        yield f"model, {model.name}", model.images_per_second, detail


def _reading(name: str, reading: Reading) -> Row:
    detail = (
        f"{human_bytes(reading.bytes_per_second)}/s, {_count(reading.threads, 'read')} at a time"
    )
    return name, reading.images_per_second, detail


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"
