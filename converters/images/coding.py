"""How an image is stored: unchanged, with restart markers, or re-encoded."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

from fastdata import native
from fastdata.converters.images import recode
from fastdata.converters.images.orientation import orientation, turned
from fastdata.converters.images.reductions import FIRST_FRAME, eight_bits, several_frames
from fastdata.errors import DecodeError, OptionError
from fastdata.images.limits import MAX_PIXELS, MOST_PIXELS, JpegLimits, check_pixels
from fastdata.images.probe import ImageInfo, decoding_bytes, probe
from fastdata.system.resources import BUDGET, never
from fastdata.system.threads import check_count

Scalar = bool | int | str | None

RUN_PIXELS = 32
"""Pixels between restart markers: fewer cost bytes, more make crops decode more than they need."""

TURNED = "turned upright"
NOT_TURNED = "EXIF orientation dropped"
WARNINGS = "JPEG with harmless warnings"
LEFT_OVER = "bytes left over in JPEG data"

_MOST_RUN_PIXELS = 65535
_RESIZE = re.compile(
    r"(?P<shorter>\d{1,6})|longest:(?P<longest>\d{1,6})|(?P<w>\d{1,6})x(?P<h>\d{1,6})"
)
_TARGETS = {"jpeg": "jpeg", "png": "png", "raw": "npy"}
_OPTIONS = {"run_pixels": int, "resize": str, "quality": int, "format": str, "orient": str}
_RARE = {"max_pixels": int, "damaged": str}  # stated only where they were chosen
_LOSSY = ("jpeg", "webp")  # what becomes JPEG if it must be re-encoded; all else becomes PNG
_OPENCV = ("jpeg", "png", "webp", "npy")  # every file of these formats is one that loaders read
_START_OF_JPEG, _END_OF_JPEG = b"\xff\xd8\xff", b"\xff\xd9"
_HAS_RUNS = "has restart runs already"


class Transcoded(NamedTuple):
    """A JPEG as it is to be stored.

    Attributes:
        image: Its bytes.
        not_recoded: Why these are the file's own; empty where it was re-encoded, or had restart
            markers already.
        lossy_notes: ``WARNINGS`` where libjpeg warns of the file, though of no damage: bytes
            between segments, no end, segments of an unknown kind. ``LEFT_OVER`` where the data of a
            scan are longer than its pixels need: padding, or damage that no decoder can tell from
            it. What was re-encoded has none of that.
    """

    image: bytes
    not_recoded: str
    lossy_notes: tuple[str, ...] = ()


def transcode(jpeg: bytes, run_pixels: int, max_pixels: int = MAX_PIXELS) -> Transcoded:
    """Re-encode a JPEG without loss, with restart markers and Huffman tables of its own.

    Args:
        jpeg: The whole file.
        run_pixels: Wanted distance between restart markers in pixels.
        max_pixels: Refuse a larger image.

    Raises:
        DecodeError: Some part of the image is damaged.
    """
    core = native.load()
    if core is None:
        return Transcoded(jpeg, "the native core was not built")
    limits = JpegLimits(max_pixels)
    coded, kept, warned, left_over = core.transcode_jpeg(jpeg, run_pixels, limits)
    notes = (WARNINGS,) * warned + (LEFT_OVER,) * left_over
    if coded is None:
        return Transcoded(jpeg, "" if kept == _HAS_RUNS else kept, notes)
    return Transcoded(coded, "", notes)


class Coded(NamedTuple):
    """An image as it is stored.

    Attributes:
        image: Its bytes.
        info: What their header says.
        not_recoded: Why a JPEG got no restart markers, where it was to have them; empty otherwise.
        lossy_notes: What was changed or left out that is worth knowing.
        damage: What is wrong with a file that was packed all the same; empty otherwise.
    """

    image: bytes
    info: ImageInfo
    not_recoded: str
    lossy_notes: tuple[str, ...]
    damage: str = ""


@dataclass(frozen=True)
class Coding:
    """How images are stored. What needs no change keeps its pixels, and all but JPEG their bytes.

    Pixels are resampled by OpenCV's ``INTER_AREA``, the mean over the area that a new pixel covers,
    and by ``INTER_LINEAR`` along a side that grows. Re-encoding pixels loses metadata, alpha and
    all bits but eight; where the native core was built, damaged JPEGs are found before that. With
    restart markers every image is decoded once, so that what is packed can be read.

    Attributes:
        run_pixels: Pixels between the restart markers that JPEGs get; None keeps their bytes.
        resize: ``"256"``: the shorter side, as torchvision's Resize. ``"longest:512"``: the longer
            one. Neither makes anything larger. ``"224x224"``: exactly this width and height.
        quality: JPEG quality of pixels that are re-encoded, 1 to 100.
        format: ``"jpeg"``, ``"png"``, ``"raw"`` (an NPY file of (H, W, 3) uint8), or None: JPEG
            where it was JPEG or WebP, else PNG.
        orient: ``"apply"`` turns pixels upright by EXIF; ``"keep"`` leaves them as they are stored.
        max_pixels: Refuse a larger image.
        damaged: ``"keep"`` stores what libjpeg-turbo can decode of a damaged JPEG, gray where data
            are missing; ``"skip"`` refuses it.

    Raises:
        OptionError: One of them is out of range.
    """

    run_pixels: int | None = RUN_PIXELS
    resize: str | None = None
    quality: int = 90
    format: str | None = None
    orient: Literal["keep", "apply"] = "keep"
    max_pixels: int = MAX_PIXELS
    damaged: Literal["skip", "keep"] = "skip"

    def __post_init__(self) -> None:
        if self.run_pixels is not None and not 8 <= self.run_pixels <= _MOST_RUN_PIXELS:
            raise OptionError(
                f"run_pixels must be from 8 to {_MOST_RUN_PIXELS}, found {self.run_pixels}"
            )
        if self.resize is not None:
            _check_resize(self.resize)
        if not 1 <= self.quality <= 100:
            raise OptionError(f"quality must be from 1 to 100, found {self.quality}")
        if self.format is not None and self.format not in _TARGETS:
            raise OptionError(f"format must be one of {', '.join(_TARGETS)}, found {self.format!r}")
        if self.orient not in ("keep", "apply"):
            raise OptionError(f"orient must be keep or apply, found {self.orient!r}")
        check_count("max_pixels", self.max_pixels, MOST_PIXELS)
        if self.damaged not in ("skip", "keep"):
            raise OptionError(f"damaged must be skip or keep, found {self.damaged!r}")

    def options(self) -> dict[str, Scalar]:
        """What the manifest states: None for a quality that no image depends on.

        ``damaged`` is stated only where it is kept.
        """
        codes_jpeg = (self.resize or self.format or self.orient == "apply") and self.format in (
            None,
            "jpeg",
        )
        options = {name: getattr(self, name) for name in _OPTIONS}
        options |= {
            name: value for name in _RARE if (value := getattr(self, name)) != getattr(Coding, name)
        }
        return options if codes_jpeg else {**options, "quality": None}

    @classmethod
    def from_options(cls, options: Mapping[str, Scalar]) -> Self:
        """The coding that a manifest states; without its options, bytes are kept.

        Raises:
            OptionError: The manifest states what no pack takes.
        """
        known = _OPTIONS | _RARE
        for name, kind in known.items():
            if options.get(name) is not None and type(options[name]) is not kind:
                raise OptionError(f"the data set's option {name} cannot be {options[name]!r:.60}")
        named = {"run_pixels": None, **{k: options[k] for k in known if k in options}}
        if named.get("quality") is None:
            named.pop("quality", None)
        return cls(**named)  # type: ignore[arg-type]  # checked above, as what a user gives

    def possible(self) -> Self:
        """This coding, or one without restart markers if no native core can make them."""
        return self if native.load() is not None else replace(self, run_pixels=None)

    def code_file(self, data: bytes, name: str = "", stopped: Callable[[], bool] = never) -> Coded:
        """Code one image of any format that is read, once there is memory for it.

        What loaders do not read fast becomes PNG. What is damaged is refused, or coded as far as it
        can be decoded.

        Args:
            data: The whole file.
            name: Its name, for formats that do not say in their bytes what they are.
            stopped: Whether it is not wanted any more, while it waits.

        Raises:
            DecodeError: It is no image, is over a limit, is damaged, or needs Pillow, which is
                missing.
            StoppedError: It is not wanted any more.
        """
        try:
            notes: tuple[str, ...] = ()
            info = self._probe(data)
            if info is None:
                data, notes = recode.readable(
                    data,
                    name,
                    keep=self.run_pixels is None,
                    max_pixels=self.max_pixels,
                    stopped=stopped,
                )
                info = probe(data, self.max_pixels)
            coded = self._code(data, info, stopped)
        except DecodeError as error:
            # Only JPEGs lose just the part that is damaged.
            whole = None
            if self.damaged == "keep" and data.startswith(_START_OF_JPEG):
                whole = recode.salvage(data, RUN_PIXELS, self.max_pixels, stopped)
            if whole is None:
                raise
            info = probe(whole, self.max_pixels)
            return self._code(whole, info, stopped)._replace(damage=str(error))
        return coded._replace(lossy_notes=notes + coded.lossy_notes) if notes else coded

    def _probe(self, data: bytes) -> ImageInfo | None:
        """What the header says; None of what may need Pillow, or be no image at all."""
        try:
            info = probe(data, self.max_pixels)
        except DecodeError:
            return None
        return info if info.format in _OPENCV else None

    def _code(self, data: bytes, info: ImageInfo, stopped: Callable[[], bool]) -> Coded:
        """Code one image of a format that loaders read, once there is memory for it."""
        # Segments beside the image are copied as well.
        with BUDGET.lease(decoding_bytes(info, len(data)) + 4 * len(data), stopped):
            return self.code(data, info)

    def code(self, data: bytes, info: ImageInfo) -> Coded:
        """Code one image of a format that loaders read.

        Args:
            data: The whole file.
            info: What :func:`fastdata.images.probe.probe` says of it.

        Raises:
            DecodeError: It is damaged, or its new format cannot hold it.
        """
        turn = orientation(data, info.format) if self.orient == "apply" else 1
        upright = (info.height, info.width) if turn > 4 else (info.width, info.height)
        size = _resized(self.resize, *upright)
        target = self._target(info.format)
        asked = self.format is not None and target != info.format
        if turn == 1 and size == upright and not asked:
            return self._unchanged(data, info)
        notes = _frames(data, info)
        if info.format == "jpeg" and native.load() is not None:
            # OpenCV makes gray pixels of damage.
            data, _, warnings = transcode(data, RUN_PIXELS, self.max_pixels)
            notes += warnings
        pixels = turned(recode.decoded(data, info), turn)
        if turn != 1:
            notes += (TURNED,)
        elif orientation(data, info.format) != 1:
            notes += (NOT_TURNED,)
        notes += eight_bits(data, info.format)
        image = recode.encoded(recode.resampled(pixels, size), target, self.quality)
        not_recoded = ""
        # OpenCV wrote it without restart markers.
        if target == "jpeg" and self.run_pixels is not None:
            image, not_recoded, _ = transcode(image, self.run_pixels, self.max_pixels)
        return Coded(image, probe(image, self.max_pixels), not_recoded, notes)

    def _target(self, kind: str) -> str:
        if self.format is not None:
            return _TARGETS[self.format]
        if kind in _LOSSY:
            return "jpeg"
        return "npy" if kind == "npy" else "png"

    def _unchanged(self, data: bytes, info: ImageInfo) -> Coded:
        """An image whose pixels stay as they are."""
        if info.format != "jpeg":
            if self.run_pixels is not None:
                recode.decoded(data, info)  # a loader could do nothing with what cannot be decoded
            return Coded(data, info, "", _frames(data, info))
        if self.run_pixels is not None:
            image, not_recoded, notes = transcode(data, self.run_pixels, self.max_pixels)
            return Coded(image, info, not_recoded, notes)
        if not data.endswith(_END_OF_JPEG):
            transcode(data, RUN_PIXELS, self.max_pixels)  # the header does not tell a cut
        return Coded(data, info, "", ())


def _frames(data: bytes, info: ImageInfo) -> tuple[str, ...]:
    return (FIRST_FRAME,) if several_frames(data, info.format) else ()


def _check_resize(text: str) -> None:
    match = _RESIZE.fullmatch(text)
    sides = [int(side) for side in match.groups() if side] if match else []
    if not sides or not all(1 <= side <= 65535 for side in sides):
        raise OptionError(
            f"resize must be as 256 (shorter side), longest:512 or 224x224 (width x height), "
            f"found {text!r}"
        )
    if len(sides) == 2:
        try:
            check_pixels(*sides)
        except DecodeError as error:
            raise OptionError(f"resize: {error}") from None


def _resized(resize: str | None, width: int, height: int) -> tuple[int, int]:
    """New width and height."""
    match = _RESIZE.fullmatch(resize) if resize else None
    if match is None:
        return width, height
    if match["w"]:
        return int(match["w"]), int(match["h"])
    side = min(width, height) if match["shorter"] else max(width, height)
    wanted = int(match["shorter"] or match["longest"])
    if side <= wanted:
        return width, height
    return max(1, width * wanted // side), max(1, height * wanted // side)
