"""Text of any script in images: which installed fonts have its characters."""

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from fastdata.errors import MissingExtraError

_FIRST = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic and more


class Fonts(NamedTuple):
    """Fonts for some text.

    Attributes:
        families: Font families, in the order in which a character is looked up.
        missing: Characters that no installed font has.
    """

    families: list[str]
    missing: frozenset[str]

    def shown(self, text: str) -> str:
        r"""The text, with characters that cannot be shown as ``\x..`` or ``\u....``."""
        return "".join(
            c.encode("unicode_escape").decode("ascii")
            if c in self.missing or not c.isprintable()
            else c
            for c in text
        )


def fonts_for(texts: Iterable[str]) -> Fonts:
    """Find fonts for these texts among those of matplotlib and of the system.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.font_manager import fontManager, get_font
    except ImportError as error:
        raise MissingExtraError(
            "contact sheets need matplotlib; install it with: pip install 'fastdata[train]'"
        ) from error
    missing = {character for text in texts for character in text if character.isprintable()}
    families: list[str] = []
    for font in sorted(fontManager.ttflist, key=lambda font: (font.name != _FIRST, font.name)):
        if families and not missing:
            break
        # Last Resort has a box with a number in it for every character of Unicode.
        if font.style != "normal" or font.weight != 400 or font.name.startswith("Last Resort"):
            continue
        with suppress(RuntimeError, OSError):  # a damaged font is skipped
            has = {chr(code) for code in get_font(font.fname).get_charmap()}
            if not families or missing & has:
                families.append(font.name)
                missing -= has
    return Fonts(families, frozenset(missing))
