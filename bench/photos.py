"""Compare generated images with photographs: sizes, bytes, spectrum and decoding time.

Benchmarks and the demo use generated images (``fastdata.photos``) unless a folder is given. This
shows how far their figures apply to photographs.

    python bench/photos.py ~/imagenet/val             # a folder of class folders with .jpg files
    python bench/photos.py ~/imagenet/val --limit 250 # that many of them, evenly spread

A row has the mean and the quantiles, of the photographs and of the generated images, and last the
ratio of the means. ``spectrum`` is the exponent of the power spectrum of luma over frequency: -2
for an amplitude that falls as 1/f. ``quantiser`` is the mean step of the luma table: 4.6 at quality
96, 29 at 75. ``decode`` is the CPU time of OpenCV for a whole image, the best of the rounds;
``entropy`` is the time of decoding to 1/8, nearly all of it Huffman decoding, as a share of that.
The last line is JSON.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from images import jpegs
from measure import machine, put_out, versions

from fastdata import photos
from fastdata.images.probe import probe

_QUANTILES = (5, 25, 50, 75, 95)
_PACKAGES = ("numpy", "opencv-python-headless")
_EDGE = 256  # side of the centre crop for the spectrum, in pixels
_FULL = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
_EIGHTH = cv2.IMREAD_REDUCED_COLOR_8 | cv2.IMREAD_IGNORE_ORIENTATION
_DIGITS = {"width": 0, "height": 0, "kpixel": 1, "kB": 1, "decode ms": 3, "us per kB": 1}


class Picture(NamedTuple):
    """One JPEG file, and its figures by name."""

    data: bytes
    sampling: str
    facts: dict[str, float]


def main() -> None:
    """Run the comparison."""
    options = _options()
    facts = machine()
    cv2.setNumThreads(1)
    paths = list(jpegs(options.folder))
    if not paths:
        raise SystemExit(f"{options.folder}: holds no class folders with .jpg files; name another")
    step = max(1, len(paths) // options.limit)
    taken = [path.read_bytes() for path in paths[::step][: options.limit]]
    made = [photos.photo(index).data for index in range(options.images)]
    sets = {"photographs": _examined(taken), "generated": _examined(made)}
    _time_decoding([picture for pictures in sets.values() for picture in pictures], options.rounds)
    result: dict[str, Any] = {
        "benchmark": "photos",
        "settings": {"rounds": options.rounds},
        "machine": facts,
        "versions": versions(_PACKAGES),
        **{name: _summary(pictures) for name, pictures in sets.items()},
    }
    _print_table(result["photographs"], result["generated"])
    put_out(result, options.save)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="class folders with .jpg files")
    parser.add_argument("--limit", type=int, default=1000, help="photographs to compare with")
    parser.add_argument("--images", type=int, default=1000, help="images to generate")
    parser.add_argument("--rounds", type=int, default=3, help="how often to decode each")
    parser.add_argument("--save", type=Path, help="write the JSON line to this file too")
    return parser.parse_args()


def _examined(files: Sequence[bytes]) -> list[Picture]:
    """All figures but the decoding times."""
    pictures = []
    for data in files:
        info = probe(data)
        gray = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
        luma = np.asarray(gray, np.float64)
        facts = {
            "width": info.width,
            "height": info.height,
            "kpixel": info.width * info.height / 1000,
            "kB": len(data) / 1000,
            "bits per pixel": 8 * len(data) / (info.width * info.height),
            "quantiser": _quantiser(data),
            "luma deviation": float(luma.std()),
            "spectrum": _spectrum(luma),
        }
        pictures.append(Picture(data, info.sampling, facts))
    return pictures


def _quantiser(data: bytes) -> float:
    """Mean step of quantisation table 0, the luma table."""
    at = 2
    while data[at + 1] != 0xDA:  # start of scan
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] == 0xDB and data[at + 4] == 0:  # 8-bit table number 0
            return sum(data[at + 5 : at + 69]) / 64
        at += 2 + length
    return float("nan")


def _spectrum(luma: npt.NDArray[np.float64]) -> float:
    """Exponent of power over frequency, from 4 cycles an image to 0.4 cycles a pixel."""
    side = min(*luma.shape, _EDGE)
    top, left = (luma.shape[0] - side) // 2, (luma.shape[1] - side) // 2
    middle = luma[top : top + side, left : left + side]
    window = np.hanning(side)
    power = np.abs(np.fft.fft2((middle - middle.mean()) * window * window[:, None])) ** 2
    frequency = np.hypot(np.fft.fftfreq(side), np.fft.fftfreq(side)[:, None])
    edges = np.geomspace(4 / side, 0.4, 13)
    band = np.digitize(frequency.ravel(), edges)
    means = [power.ravel()[band == number].mean() for number in range(1, 13)]
    middles = np.sqrt(edges[1:] * edges[:-1])
    return float(np.polyfit(np.log(middles), np.log(np.array(means) + 1e-9), 1)[0])


def _time_decoding(pictures: Sequence[Picture], rounds: int) -> None:
    """Add the best decoding time of the rounds; images of both sets take turns."""
    best = np.full((len(pictures), 2), np.inf)  # (pictures, full and eighth) seconds
    order = np.random.default_rng(0).permutation(len(pictures))
    for _ in range(rounds):
        for index in order.tolist():
            data = np.frombuffer(pictures[index].data, np.uint8)
            for column, flags in enumerate((_FULL, _EIGHTH)):
                begun = time.thread_time()
                cv2.imdecode(data, flags)
                best[index, column] = min(best[index, column], time.thread_time() - begun)
    for picture, (full, eighth) in zip(pictures, best.tolist(), strict=True):
        picture.facts["decode ms"] = 1000 * full
        picture.facts["us per kB"] = 1e9 * full / len(picture.data)
        picture.facts["entropy"] = eighth / full


def _summary(pictures: Sequence[Picture]) -> dict[str, Any]:
    """Mean and quantiles of each fact, and the shares of chroma samplings."""
    facts = {name: [picture.facts[name] for picture in pictures] for name in pictures[0].facts}
    samplings = Counter(picture.sampling for picture in pictures)
    return {
        "images": len(pictures),
        "sampling": {name: count / len(pictures) for name, count in samplings.most_common()},
        "facts": {
            name: {
                "mean": round(float(np.mean(values)), 4),
                "quantiles": np.percentile(values, _QUANTILES).round(4).tolist(),
            }
            for name, values in facts.items()
        },
    }


def _print_table(taken: dict[str, Any], made: dict[str, Any]) -> None:
    heads = ["mean", *(f"{quantile} %" for quantile in _QUANTILES)]
    print(f"{'':16}{taken['images']:,} photographs".ljust(70) + f"{made['images']:,} generated")
    print(f"{'':16}" + "".join(f"{head:>8}" for head in heads) * 2 + "   means")
    for name, fact in taken["facts"].items():
        other = made["facts"][name]
        figures = [fact["mean"], *fact["quantiles"], other["mean"], *other["quantiles"]]
        digits = _DIGITS.get(name, 2)
        cells = "".join(f"{figure:8.{digits}f}" for figure in figures)
        print(f"{name:16}{cells}{other['mean'] / fact['mean']:8.2f}")
    for name in dict.fromkeys([*taken["sampling"], *made["sampling"]]):
        shares = [100 * side["sampling"].get(name, 0) for side in (taken, made)]
        print(f"{name:16}{shares[0]:7.1f}%".ljust(64) + f"{shares[1]:7.1f}%")
    print()


if __name__ == "__main__":
    main()
