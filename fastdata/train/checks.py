"""What training demands of its data."""

import numpy as np

from fastdata.batch.source import Source
from fastdata.errors import OptionError

_NAMED = 5  # names that an error spells out


def check_labelled(source: Source) -> None:
    """Every sample has a label.

    Raises:
        OptionError: Otherwise.
    """
    if not source.classes:
        raise OptionError(
            f"{source.path} has no labels to train on; training needs one folder for each class"
        )
    check_labels(source)


def check_labels(source: Source) -> None:
    """Every label is that of a class.

    Raises:
        OptionError: One is not; its sample is named.
    """
    labels, classes = source.labels(), len(source.classes)
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        (key,) = source.keys(wrong[:1])
        label = int(labels[wrong[0]])
        what = "no label" if label < 0 else f"label {label}, the data set has {classes} classes"
        raise OptionError(
            f"{source.path}: sample {key!r} has {what}; pack again without such samples "
            f"({len(wrong)} of {len(labels)})"
        )


def check_same_classes(data: Source, held_out: Source) -> None:
    """A label means the same in both data sets.

    Raises:
        OptionError: The classes differ; the text says in what.
    """
    if data.classes == held_out.classes:
        return
    missing = _named("missing", set(data.classes) - set(held_out.classes))
    unknown = _named("unknown", set(held_out.classes) - set(data.classes))
    difference = "; ".join(filter(None, (missing, unknown))) or "the same names in another order"
    raise OptionError(f"{held_out.path} has other classes than {data.path}: {difference}")


def _named(what: str, names: set[str]) -> str:
    """The names after what they are, at most five of them; empty without names."""
    if not names:
        return ""
    shown = ", ".join(repr(name) for name in sorted(names)[:_NAMED])
    return f"{what}: {shown}" + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
