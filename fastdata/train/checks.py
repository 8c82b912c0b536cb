"""What training demands of its data."""

from fastdata.errors import OptionError
from fastdata.source import Source

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
    if int(source.labels().min()) < 0:
        raise OptionError(f"{source.path}: some samples have no label; pack them without these")


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
