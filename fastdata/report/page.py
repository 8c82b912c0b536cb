"""Pieces of a report as HTML, and the page around them.

Functions that return HTML take plain text and escape it; the body of a :class:`Section` must come
from them.
"""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from fastdata.report.style import CSS
from fastdata.system.files import write_atomically

_JPEG_QUALITY = 90

# Makes the browser enforce that there are no scripts, and no fonts or images from elsewhere.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Tile(NamedTuple):
    """A headline figure: ``Tile("98.4 %", "of the ceiling", "5 rounds")``."""

    value: str
    label: str
    note: str = ""


class Section(NamedTuple):
    """A headed part of a page: a title and an introduction as text, and a body as HTML."""

    title: str
    text: str
    body: str


def escape(text: object) -> str:
    r"""Text as HTML, with characters that cannot be shown as ``\x..`` or ``\u....``.

    File names may contain control characters, bytes that are not UTF-8 (lone surrogates in Python)
    and direction marks, which would rearrange the text around them.
    """
    shown = (
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text)
    )
    return html.escape("".join(shown))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "") -> str:
    """HTML table; cells that begin with a digit are right-aligned."""
    head = "".join(f"<th scope=col>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f"<div class=scroll><table>{title}<thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def facts(pairs: Mapping[str, object]) -> str:
    """HTML list of names and values."""
    rows = (f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in pairs.items())
    return f"<dl>{''.join(rows)}</dl>"


def figure(caption: str, svg: str) -> str:
    """HTML of a chart with a caption below."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def row(*parts: str) -> str:
    """HTML parts side by side, wrapped on narrow screens."""
    return f"<div class=row>{''.join(f'<div>{part}</div>' for part in parts)}</div>"


def contact_sheet(
    images: npt.NDArray[np.uint8], captions: Sequence[tuple[str, str]], *, side: int = 128
) -> str:
    """HTML grid of images, each with a class name and a key below.

    Args:
        images: (N, H, W, 3) RGB.
        captions: N pairs of (class name, key).
        side: Width of an image on the page, in CSS pixels.
    """
    cards = (_card(image, *caption) for image, caption in zip(images, captions, strict=True))
    return f'<div class=sheet style="--side: {side}px">{"".join(cards)}</div>'


def page(title: str, text: str, tiles: Iterable[Tile], sections: Iterable[Section]) -> str:
    """A whole HTML document.

    Args:
        title: Heading.
        text: Introduction, a sentence or two.
        tiles: Headline figures.
        sections: The body.
    """
    top = "".join(
        f"<div class=tile><b>{escape(t.value)}</b><span>{escape(t.label)}</span>"
        f"<small>{escape(t.note)}</small></div>"
        for t in tiles
    )
    rest = "".join(
        f"<section><h2>{escape(s.title)}</h2><p>{escape(s.text)}</p>{s.body}</section>"
        for s in sections
    )
    return (
        '<!doctype html><html lang=en><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body><main>"
        f"<header><h1>{escape(title)}</h1><p>{escape(text)}</p></header>"
        f"<div class=tiles>{top}</div>{rest}</main></body></html>\n"
    )


def write_page(path: Path, document: str) -> None:
    """Write a document atomically."""
    write_atomically(path, document.encode())


def _cell(value: object) -> str:
    text = escape(value)
    return f"<td{' class=number' if text[:1].isdigit() else ''}>{text}</td>"


def _card(image: npt.NDArray[np.uint8], name: str, key: str) -> str:
    return (
        f'<figure><img alt="{escape(name)}" src="{_data_uri(image)}"><figcaption>'
        f'<b>{escape(name)}</b><span title="{escape(key)}">{escape(key)}</span>'
        "</figcaption></figure>"
    )


def _data_uri(image: npt.NDArray[np.uint8]) -> str:
    """(H, W, 3) RGB as a JPEG in a data URI."""
    done, data = cv2.imencode(".jpg", image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    if not done:
        raise ValueError(f"OpenCV cannot encode an image of shape {image.shape} as JPEG")
    return "data:image/jpeg;base64," + base64.b64encode(data.tobytes()).decode("ascii")
