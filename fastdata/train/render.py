"""A training report for the terminal."""

from rich.table import Table
from rich.text import Text

from fastdata.train.results import EpochResult, TrainReport


def render(report: TrainReport) -> Table:
    """Rich table: a row for each epoch, and the summary below."""
    # Text, because a path may hold the brackets of rich's markup
    title, caption = Text(f"{report.model} on {report.path}"), Text(summary(report))
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    table.add_column("epoch", justify="right")
    table.add_column("loss", justify="right")
    table.add_column(accuracy_name(report), justify="right")
    table.add_column("images/s", justify="right")
    table.add_column("lr", justify="right")
    for epoch in report.epochs:
        table.add_row(
            str(epoch.epoch + 1),
            f"{epoch.loss:.3f}",
            f"{accuracy(epoch):.1%}",
            f"{epoch.images_per_second:,.0f}",
            f"{epoch.lr:.3g}",
        )
    return table


def summary(report: TrainReport) -> str:
    """One line: speed, share of the ceiling, memory, device."""
    parts = [f"{report.images_per_second:,.0f} images/s on {report.device}"]
    if report.ceiling is not None:
        parts.append(
            f"{report.ceiling.share:.1%} of the ceiling "
            f"({report.ceiling.resident_images_per_second:,.0f} images/s without loading)"
        )
    if report.gpu_utilization is not None:
        parts.append(f"GPU {report.gpu_utilization:.0%} busy")
    parts.append(f"peak memory {report.peak_memory_bytes / 2**30:.1f} GiB")
    return "; ".join(parts)


def accuracy(epoch: EpochResult) -> float:
    """Validation accuracy; without validation, the running accuracy in training."""
    return epoch.train_accuracy if epoch.val_accuracy is None else epoch.val_accuracy


def accuracy_name(report: TrainReport) -> str:
    """Which of the two :func:`accuracy` returns for this report."""
    return "train accuracy" if report.val is None else "val accuracy"
