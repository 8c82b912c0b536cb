"""A contact sheet of a data set: ``fastdata show PATH -o sheet.png``."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from fastdata.batch.decode import decode
from fastdata.errors import DecodeError, DestinationError, OptionError
from fastdata.loaders.readers.packed import AnySource, open_source
from fastdata.plan import rng
from fastdata.plan.crop import Crop
from fastdata.report.fonts import Fonts, fonts_for
from fastdata.report.tiles import SIDE, Pixels, crossed_out, tile
from fastdata.system.files import write_atomically

_GAP = 12
_TEXT = 34  # height of the two lines below a tile
_HEAD = 44
_DPI = 100
_CAPTION, _TITLE = 7.5, 11  # points
_INK, _MUTED = "#1c1f23", "#666d76"
_PAGE = 255  # white
_MOST_PIXELS = 60_000  # per side; the limit of JPEG and of matplotlib is 65,535
_QUALITY = 92
_ENDINGS = {".png": [], ".jpg": [cv2.IMWRITE_JPEG_QUALITY, _QUALITY]}
_ENDINGS[".jpeg"] = _ENDINGS[".jpg"]


@dataclass(frozen=True)
class Sheet:
    """A contact sheet that was written.

    Attributes:
        path: The file.
        images: Number of images on it.
        samples: Samples in the data set.
        classes: Number of classes on it.
        width: Width in pixels.
        height: Height in pixels.
        unreadable: Keys of the images that could not be decoded; their tiles say so.
    """

    path: Path
    images: int
    samples: int
    classes: int
    width: int
    height: int
    unreadable: tuple[str, ...]


class _Grid(NamedTuple):
    """Layout of the sheet, in pixels from its top left."""

    columns: int
    images: int

    @property
    def width(self) -> int:
        return self.columns * (SIDE + _GAP) + _GAP

    @property
    def height(self) -> int:
        return _HEAD + -(-self.images // self.columns) * (SIDE + _TEXT + _GAP)

    def corner(self, place: int) -> tuple[int, int]:
        row, column = divmod(place, self.columns)
        return _GAP + column * (SIDE + _GAP), _HEAD + row * (SIDE + _TEXT + _GAP)


def sheet(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    count: int = 64,
    columns: int = 8,
    crops: Crop | None = None,
    seed: int = 0,
) -> Sheet:
    """Draw random images of a data set, uncropped, each with its class and key below.

    Classes get equal numbers of images, unless some have too few. Pixels are shown as training sees
    them: as stored, without applying EXIF orientation.

    Args:
        path: Folder of tar shards, ``.lmdb`` file, or folder of images.
        out: File to write; ``.png``, ``.jpg`` or ``.jpeg``.
        count: Maximum number of images.
        columns: Images per row.
        crops: Training's crop: the region that it takes of each image in the first epoch with
            ``seed`` is framed, the rest dimmed. None draws no frames.
        seed: Random seed for choosing images, and for the crops.

    Raises:
        NotADatasetError: There is no data set at ``path``.
        CorruptError: It is damaged.
        OptionError: An argument is out of range, or ``out`` has another suffix.
        DestinationError: ``out`` cannot be written.
        MissingExtraError: matplotlib is not installed.
    """
    where = Path(out)
    ending = where.suffix.lower()
    if ending not in _ENDINGS:
        raise OptionError(f"{out}: a contact sheet must be a .png, .jpg or .jpeg file")
    if count < 1 or columns < 1:
        raise OptionError(f"count and columns must be 1 or more, not {count} and {columns}")
    source = open_source(path)
    try:
        ids = choose(source.labels(), count, seed)
        grid = _Grid(min(columns, len(ids)), len(ids))
        if max(grid.width, grid.height) > _MOST_PIXELS:
            raise OptionError(
                f"{len(ids)} images in {grid.columns} columns make {grid.width} x {grid.height} "
                f"pixels, but {_MOST_PIXELS} is the limit; use fewer images or more columns"
            )
        keys = source.keys(ids)
        labels = source.rows(ids)["label"].tolist()
        title = f"{source.path.name}: {len(ids):,} of {len(source):,} images"
        texts = [_caption(source, *sample) for sample in zip(labels, keys, strict=True)]
        fonts = fonts_for([title, *(line for lines in texts for line in lines)])
        canvas = np.full((grid.height, grid.width, 3), _PAGE, np.uint8)
        unreadable = []
        for place, sample in enumerate(ids.tolist()):
            x, y = grid.corner(place)
            try:
                square = tile(decode(source.read(sample)), sample, crops, seed)
            except DecodeError:
                square = crossed_out()
                unreadable.append(keys[place])
                texts[place] = f"cannot be decoded: {texts[place][0]}", texts[place][1]
            canvas[y : y + SIDE, x : x + SIDE] = square
    finally:
        source.close()
    written = _with_text(canvas, title, texts, grid, fonts)
    done, data = cv2.imencode(ending, written[:, :, ::-1], _ENDINGS[ending])
    assert done, written.shape
    try:
        write_atomically(where, data.tobytes())
    except OSError as error:
        raise DestinationError(f"{out} cannot be written: {error.strerror or error}") from error
    shown = len(set(labels) - {-1})
    return Sheet(where, len(ids), len(source), shown, grid.width, grid.height, tuple(unreadable))


def choose(labels: npt.NDArray[np.int32], count: int, seed: int) -> npt.NDArray[np.int64]:
    """Choose samples round by round, a random one of each class, then sort them by class.

    Args:
        labels: (n,) labels of all samples; -1 counts as a class.
        count: Maximum number of samples.
        seed: Random seed of the choice.

    Returns:
        (min(n, count),) ids.
    """
    ids = np.arange(len(labels), dtype=np.int64)
    words = rng.bits(rng.key("sheet", seed), ids)
    by_class = np.lexsort((words, labels))
    starts = np.searchsorted(labels[by_class], labels[by_class])
    rounds = np.empty_like(ids)
    rounds[by_class] = ids - starts
    # If the last round does not have room for all classes, choose among them at random.
    turns = rng.bits(rng.key("sheet classes", seed), labels.astype(np.int64))
    chosen = np.lexsort((turns, rounds))[:count]
    return np.asarray(chosen[np.lexsort((rounds[chosen], labels[chosen]))], np.int64)


def _caption(source: AnySource, label: int, key: str) -> tuple[str, str]:
    """Class, and the key without the class's folder."""
    if label < 0:
        return "", key
    name = source.classes[label] if label < len(source.classes) else f"label {label}"
    return name, key.removeprefix(f"{name}/")


def _with_text(
    canvas: Pixels, title: str, texts: list[tuple[str, str]], grid: _Grid, fonts: Fonts
) -> Pixels:
    """The canvas with title and captions drawn on it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    figure = Figure(figsize=(grid.width / _DPI, grid.height / _DPI), dpi=_DPI)
    drawing: Any = FigureCanvasAgg(figure)  # most of its methods have no annotations
    figure.figimage(canvas)
    renderer = drawing.get_renderer()

    def put(text: str, x: int, baseline: int, room: int, points: float, colour: str) -> None:
        font = FontProperties(family=fonts.families, size=points)

        def fits(text: str) -> bool:
            return bool(renderer.get_text_width_height_descent(text, font, ismath=False)[0] <= room)

        figure.text(
            x / grid.width,
            1 - baseline / grid.height,
            shortened(fonts.shown(text), fits),
            fontproperties=font,
            color=colour,
            parse_math=False,
        )

    put(title, _GAP, _HEAD - 18, grid.width - 2 * _GAP, _TITLE, _INK)
    for place, (name, key) in enumerate(texts):
        x, y = grid.corner(place)
        lines = [(name, _INK), (key, _MUTED)] if name else [(key, _INK)]
        for number, (line, colour) in enumerate(lines):
            put(line, x, y + SIDE + 13 + 14 * number, SIDE, _CAPTION, colour)
    drawing.draw()
    return np.asarray(drawing.buffer_rgba(), np.uint8)[:, :, :3]


def shortened(text: str, fits: Callable[[str], bool]) -> str:
    """The text, with an ellipsis in its middle if it does not fit."""
    if fits(text):
        return text
    low, high = 0, len(text) - 1  # numbers of characters: low fit, high do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(_without_middle(text, middle)) else (low, middle)
    return _without_middle(text, low)


def _without_middle(text: str, keep: int) -> str:
    start = keep - keep // 2
    return text[:start] + "…" + text[len(text) - keep // 2 :]
