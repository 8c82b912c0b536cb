"""What a pack does to images: size, format, quality, orientation, restart runs."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fastdata import native
from fastdata.converters.images.orientation import orientation, turned
from fastdata.converters.images.recode import readable
from fastdata.converters.images.reductions import FIRST_FRAME, eight_bits, several_frames
from fastdata.converters.images.transcode import RUN_PIXELS, salvage, transcode
from fastdata.errors import DecodeError, OptionError
from fastdata.images.limits import MAX_PIXELS, MOST_PIXELS, check_pixels
from fastdata.images.probe import ImageInfo, decoding_bytes, probe
from fastdata.system.resources import BUDGET, never
from fastdata.system.threads import check_count

Pixels = npt.NDArray[np.uint8]
Scalar = bool | int | str | None

TURNED = "turned upright"
NOT_TURNED = "EXIF orientation dropped"

_MOST_RUN_PIXELS = 65535
_MOST_JPEG_SIDE = 65500  # libjpeg's own limit
_RESIZE = re.compile(
    r"(?P<shorter>\d{1,6})|longest:(?P<longest>\d{1,6})|(?P<w>\d{1,6})x(?P<h>\d{1,6})"
)
_TARGETS = {"jpeg": "jpeg", "png": "png", "raw": "npy"}
_OPTIONS = {"run_pixels": int, "resize": str, "quality": int, "format": str, "orient": str}
_RARE = {"max_pixels": int, "damaged": str}  # stated only where they were chosen
# What an image becomes that must be coded anew without a format asked for: lossy stays lossy.
_LOSSY = ("jpeg", "webp")
_START_OF_JPEG, _END_OF_JPEG = b"\xff\xd8\xff", b"\xff\xd9"


class Coded(NamedTuple):
    """An image as it is stored.

    Attributes:
        image: Its bytes.
        info: What their header says.
        kept: Why a JPEG has no restart runs, where it was to have them; empty otherwise.
        notes: What was done by a rule that is worth knowing.
        damage: What is wrong with a file that was packed all the same; empty otherwise.
    """

    image: bytes
    info: ImageInfo
    kept: str
    notes: tuple[str, ...]
    damage: str = ""


@dataclass(frozen=True)
class Coding:
    """How images are stored. What needs no change keeps its pixels, and all but JPEG their bytes.

    Pixels are resampled by OpenCV's ``INTER_AREA``, the mean over the area that a new pixel covers,
    and by ``INTER_LINEAR`` along a side that grows. What is coded anew loses metadata, alpha and
    all bits but eight, and where the core was built, damaged JPEGs are found before that. With
    restart runs every image is decoded once, so that what is packed can be read.

    Attributes:
        run_pixels: Width of the restart runs that JPEGs are coded in; None keeps their bytes.
        resize: ``"256"``: the shorter side, as torchvision's Resize. ``"longest:512"``: the longer
            one. Neither makes anything larger. ``"224x224"``: exactly this width and height.
        quality: Of JPEGs whose pixels are coded anew, 1 to 100.
        format: ``"jpeg"``, ``"png"``, ``"raw"`` (an NPY file of (H, W, 3) uint8), or None: JPEG
            where it was JPEG or WebP, else PNG.
        orient: ``"apply"`` turns pixels upright by EXIF; ``"keep"`` leaves them as they are stored.
        max_pixels: Larger images are refused.
        damaged: ``"keep"`` stores of a damaged JPEG what libjpeg-turbo makes of it, gray where data
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
        keep = self.run_pixels is None
        try:
            image, notes = readable(
                data, name, keep=keep, max_pixels=self.max_pixels, stopped=stopped
            )
            coded = self._code(image, stopped)
        except DecodeError as error:
            whole = None
            if self.damaged == "keep" and data.startswith(_START_OF_JPEG):
                whole = salvage(data, self.max_pixels, stopped)
            if whole is None:
                raise
            return self._code(whole, stopped)._replace(damage=str(error))
        return coded._replace(notes=notes + coded.notes)

    def _code(self, data: bytes, stopped: Callable[[], bool]) -> Coded:
        """Code one image of a format that loaders read, once there is memory for it."""
        info = probe(data, self.max_pixels)
        # segments beside the image are copied as well
        with BUDGET.lease(decoding_bytes(info, len(data)) + 4 * len(data), stopped):
            return self.code(data, info)

    def code(self, data: bytes, info: ImageInfo) -> Coded:
        """Code one image.

        Args:
            data: The whole file.
            info: What :func:`fastdata.images.probe.probe` says of it.

        Raises:
            DecodeError: It is damaged, or its new format cannot hold it.
        """
        notes: tuple[str, ...] = (FIRST_FRAME,) if several_frames(data, info.format) else ()
        turn = orientation(data, info.format) if self.orient == "apply" else 1
        upright = (info.height, info.width) if turn > 4 else (info.width, info.height)
        size = _resized(self.resize, *upright)
        target = self._target(info.format)
        asked = self.format is not None and target != info.format
        if turn == 1 and size == upright and not asked:
            return self._unchanged(data, info, notes)
        if info.format == "jpeg" and native.load() is not None:
            # OpenCV makes gray pixels of damage
            data, _, warnings = transcode(data, RUN_PIXELS, self.max_pixels)
            notes += warnings
        pixels = turned(_decode(data, info), turn)
        if turn != 1:
            notes += (TURNED,)
        elif orientation(data, info.format) != 1:
            notes += (NOT_TURNED,)
        notes += eight_bits(data, info.format)
        image = _encode(_resample(pixels, size), target, self.quality)
        kept = ""
        if target == "jpeg" and self.run_pixels is not None:
            image, kept, _ = transcode(image, self.run_pixels, self.max_pixels)
        return Coded(image, probe(image, self.max_pixels), kept, notes)

    def _target(self, kind: str) -> str:
        if self.format is not None:
            return _TARGETS[self.format]
        return "jpeg" if kind in _LOSSY else "npy" if kind == "npy" else "png"

    def _unchanged(self, data: bytes, info: ImageInfo, notes: tuple[str, ...]) -> Coded:
        kept = ""
        if info.format == "jpeg":
            if self.run_pixels is not None:
                data, kept, warnings = transcode(data, self.run_pixels, self.max_pixels)
                notes += warnings
            elif not data.endswith(_END_OF_JPEG):
                transcode(data, RUN_PIXELS, self.max_pixels)  # the header does not tell a cut
        elif self.run_pixels is not None:
            _decode(data, info)  # a reader could do nothing with a file that cannot be decoded
        return Coded(data, info, kept, notes)


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


def _decode(data: bytes, info: ImageInfo) -> Pixels:
    from fastdata.images.pixels import decode

    pixels = decode(data)
    height, width = pixels.shape[:2]
    if (width, height) != (info.width, info.height):
        raise DecodeError(
            f"the header says {info.width} x {info.height} pixels, found {width} x {height}"
        )
    return pixels


def _resample(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    import cv2

    height, width = pixels.shape[:2]
    # INTER_AREA is the mean over an area only where no side grows.
    shrunk = (min(size[0], width), min(size[1], height))
    if shrunk != (width, height):
        pixels = np.asarray(cv2.resize(pixels, shrunk, interpolation=cv2.INTER_AREA), np.uint8)
    if size != shrunk:
        pixels = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR), np.uint8)
    return pixels


def _encode(pixels: Pixels, kind: str, quality: int) -> bytes:
    height, width = pixels.shape[:2]
    if kind == "npy":
        text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({height}, {width}, 3), }}"
        padded = text.ljust(-(-(len(text) + 11) // 64) * 64 - 11) + "\n"
        head = b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little")
        return head + padded.encode("ascii") + pixels.tobytes()
    if kind == "jpeg" and max(width, height) > _MOST_JPEG_SIDE:
        raise DecodeError(
            f"{width}x{height} pixels, and no side of a JPEG has over {_MOST_JPEG_SIDE}"
        )
    import cv2

    gray = all(bool((part == part[:, :, :1]).all()) for part in (pixels[:1], pixels))
    plane = pixels[:, :, 0] if gray else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    options = [cv2.IMWRITE_JPEG_QUALITY, quality] if kind == "jpeg" else []
    done, image = cv2.imencode(f".{kind}", np.ascontiguousarray(plane), options)
    if not done:
        raise DecodeError(f"OpenCV cannot write {width}x{height} pixels as {kind.upper()}")
    return image.tobytes()
