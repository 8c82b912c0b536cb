"""What a pack leaves out, and why."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Skipped(NamedTuple):
    """A file or folder that is left out, or packed although it is damaged.

    Attributes:
        name: Its path relative to the source.
        reason: Why: a fixed text, after which a colon may bring detail.
    """

    name: str
    reason: str

    @property
    def kind(self) -> str:
        """The reason without its detail."""
        return self.reason.partition(":")[0]


def count_reasons(skipped: Iterable[Skipped]) -> dict[str, int]:
    """How often each reason comes, without its detail, sorted by reason."""
    return dict(sorted(Counter(entry.kind for entry in skipped).items()))


def nothing_left(source: str, skipped: Sequence[Skipped]) -> str:
    """Message for a source without any image to pack."""
    if not skipped:
        return f"{source}: holds no image"
    reasons = ", ".join(f"{count} {reason}" for reason, count in count_reasons(skipped).items())
    return f"{source}: holds no image; left out: {reasons} (first: {skipped[0].name!r})"
