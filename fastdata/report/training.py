"""The parts of an HTML report about a training run."""

from dataclasses import asdict

from fastdata.report.charts import line_chart, rounds_chart
from fastdata.report.page import Section, Tile, facts, figure, row, table
from fastdata.train.render import accuracy, accuracy_name
from fastdata.train.results import Ceiling, TrainReport


def training_tiles(report: TrainReport) -> list[Tile]:
    """Headline figures of a run: accuracy, speed, share of the ceiling."""
    tiles = [
        Tile(
            f"{accuracy(report.epochs[-1]):.1%}",
            accuracy_name(report),
            f"epoch {len(report.epochs)}; chance is {1 / report.classes:.0%}",
        ),
        Tile(
            f"{report.images_per_second:,.0f}",
            "images/s training",
            f"{report.model} at {report.recipe.size} px, {report.device}",
        ),
    ]
    if report.ceiling is not None:
        note = f"median of {len(report.ceiling.rounds)} rounds"
        tiles.append(Tile(f"{report.ceiling.share:.1%}", "of the ceiling", note))
    return tiles


def training_sections(report: TrainReport) -> list[Section]:
    """Sections on training, the ceiling if it was measured, and the machine.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    sections = [_training(report)]
    if report.ceiling is not None:
        sections.append(_ceiling(report.ceiling, on_cpu=report.device.startswith("cpu")))
    sections.append(Section("Machine", "All figures above depend on it.", _machine(report)))
    return sections


def _training(report: TrainReport) -> Section:
    rows = [
        (
            str(e.epoch + 1),
            f"{e.loss:.3f}",
            f"{e.train_accuracy:.1%}",
            "-" if e.val_accuracy is None else f"{e.val_accuracy:.1%}",
            f"{e.images_per_second:,.0f}",
            f"{e.lr:.3g}",
        )
        for e in report.epochs
    ]
    header = ("epoch", "loss", "train accuracy", "val accuracy", "images/s", "last lr")
    text = (
        f"{report.model} ({report.parameters / 1e6:.1f} M parameters) from scratch on "
        f"{report.samples:,} images of {report.classes} classes at {report.recipe.size} pixels, "
        f"in batches of {report.recipe.batch_size}. Train accuracy counts augmented crops while "
        "the weights change; val accuracy counts every validation image once, after the epoch."
    )
    return Section("Training", text, _curves(report) + table(header, rows))


def _curves(report: TrainReport) -> str:
    accuracies = {"training": [e.train_accuracy for e in report.epochs]}
    held_out = [e.val_accuracy for e in report.epochs if e.val_accuracy is not None]
    if held_out:
        accuracies = {"validation": held_out, **accuracies}
    chance = ("chance", 1 / report.classes)
    loss = {"loss": [e.loss for e in report.epochs]}
    first = line_chart(accuracies, x_label="epoch", percent=True, guide=chance)
    second = line_chart(loss, x_label="epoch")
    return row(figure("Accuracy by epoch", first), figure("Mean loss of each epoch", second))


def _ceiling(ceiling: Ceiling, *, on_cpu: bool) -> Section:
    text = (
        "The same steps on the loader's batches and on one batch that stays on the device, by "
        "turns. The share is the median of the rounds' ratios; at 100 % loading costs nothing."
    )
    if on_cpu:
        text += " On a CPU, both share the cores, so that loading always costs something."
    pairs = [(r.real, r.resident) for r in ceiling.rounds]
    chart = rounds_chart(pairs, names=("real data", "resident batch"))
    rows = [
        (str(n), f"{real:,.1f}", f"{resident:,.1f}", f"{real / resident:.1%}")
        for n, (real, resident) in enumerate(pairs, start=1)
    ]
    rows.append(
        (
            "median",
            f"{ceiling.real_images_per_second:,.1f}",
            f"{ceiling.resident_images_per_second:,.1f}",
            f"{ceiling.share:.1%}",
        )
    )
    header = ("round", "real, images/s", "resident, images/s", "share")
    body = row(figure("Images/s in each round", chart), table(header, rows))
    return Section("Share of the ceiling", text, body)


def _machine(report: TrainReport) -> str:
    pairs: dict[str, object] = {
        key.replace("_", " "): value for key, value in report.machine.items()
    }
    pairs["ranks"] = report.world_size
    pairs["highest learning rate"] = f"{report.lr:g}"
    pairs |= {k.replace("_", " "): _switch(v) for k, v in asdict(report.recipe).items()}
    pairs["warm-up"] = f"{report.warmup_seconds:.1f} s, not in the figures"
    pairs["peak memory"] = f"{report.peak_memory_bytes / 2**30:.2f} GiB"
    if report.gpu_utilization is not None:
        pairs["GPU busy"] = f"{report.gpu_utilization:.0%}"
    return facts(pairs)


def _switch(value: object) -> object:
    """A switch in plain words."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not set" if value is None else value
