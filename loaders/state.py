"""The state of a loader: a small JSON object that another process can resume from."""

from collections.abc import Collection, Mapping
from typing import Any

from fastdata.errors import StateError

VERSION = 1

_AT = ("version", "epoch", "samples")  # its position; the other fields say what it loads


def compose(content: Mapping[str, object], epoch: int, samples: int) -> dict[str, Any]:
    """The state.

    Args:
        content: The options that decide which samples come, and how, by field.
        epoch: The epoch under way.
        samples: Samples of it that were handed out, on all ranks together.
    """
    return {"version": VERSION, **content, "epoch": epoch, "samples": samples}


def position(
    state: Mapping[str, Any], content: Mapping[str, object], override: Collection[str]
) -> tuple[int, int]:
    """Epoch and samples handed out.

    Args:
        state: As :func:`compose` gave it, perhaps by way of JSON.
        content: The same of the loader that resumes.
        override: Fields that may differ.

    Raises:
        StateError: A field is missing, unknown, of the wrong type, or differs.
    """
    if not isinstance(state, Mapping):
        raise StateError(f"a loader's state is a dictionary, found {type(state).__name__}")
    names = {*_AT, *content}
    if odd := sorted(map(str, names ^ set(state))):
        raise StateError(f"the state must have exactly the fields {sorted(names)}; wrong: {odd}")
    if unknown := sorted(set(override) - set(content)):
        raise StateError(f"override may name {sorted(content)}, found {unknown}")
    if not _same(state["version"], VERSION):
        raise StateError(f"state of version {state['version']}, this program reads {VERSION}")
    for name, value in content.items():
        if not _same(state[name], value) and name not in override:
            raise StateError(
                f"the state has {name} {state[name]!r}, this loader {value!r}; make the loader as "
                f"it was, or load the state with override={[name]!r}"
            )
    epoch, samples = state["epoch"], state["samples"]
    for name, number in (("epoch", epoch), ("samples", samples)):
        if type(number) is not int or number < 0:
            raise StateError(f"{name} must be an integer of 0 or more, found {number!r}")
    return epoch, samples


def _same(stated: object, value: object) -> bool:
    try:
        return bool(stated == value)
    except ValueError:  # an array, which is no answer
        return False
