"""Generated pictures: the same for ever, valid, and with the mix of sizes of photographs."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from places import ROOT

from fastdata import photos
from fastdata.errors import DestinationError, OptionError
from fastdata.photos import camera
from fastdata.photos.dice import Dice, cosine
from fastdata.plan import rng


@pytest.fixture(scope="module")
def pictures() -> list[photos.Photo]:
    """100 pictures of full size."""
    return [photos.photo(index) for index in range(100)]


def test_a_picture_is_a_function_of_its_arguments() -> None:
    """The same arguments give the same bytes, and each of them makes a difference."""
    first = photos.photo(3, scale=0.2)

    assert photos.photo(3, scale=0.2) == first
    others = [
        photos.photo(4, scale=0.2),
        photos.photo(3, scale=0.2, seed=1),
        photos.photo(3, scale=0.2, classes=5),
        photos.photo(3, scale=0.21),
    ]
    assert len({first.data, *(other.data for other in others)}) == 5


def test_seed_and_index_do_not_add_up() -> None:
    """Picture 1 of seed 0 has nothing to do with picture 0 of seed 1."""
    assert photos.photo(1, seed=0, scale=0.2).data != photos.photo(0, seed=1, scale=0.2).data


def test_bytes_do_not_depend_on_the_processor() -> None:
    """OpenCV without vector instructions and without IPP paints the same pictures."""
    code = (
        "import hashlib; from fastdata import photos; data = [photos.photo(i).data for i in"
        " range(12)]; print(hashlib.sha256(b''.join(data)).hexdigest())"
    )
    plain = {
        "OPENCV_CPU_DISABLE": "AVX512_SKX,AVX2,FP16,AVX,NEON_DOTPROD",
        "OPENCV_IPP": "disabled",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={**os.environ, **plain},
        text=True,
    )

    here = hashlib.sha256(b"".join(photos.photo(index).data for index in range(12)))
    assert done.stdout.split()[-1] == here.hexdigest()


def test_golden_numbers() -> None:
    """The stream of random numbers is the same on every platform and version of numpy."""
    dice = Dice(rng.key("photo", 0, 0))

    assert dice.uniform(2).tolist() == [0.23700587212705027, 0.44472470477642423]
    assert dice.bytes(2, 3).tolist() == [[172, 230, 33], [143, 32, 12]]


def test_cosines() -> None:
    """Angles are in 1/1024 turns, and may be negative."""
    turns = np.arange(-2000, 2000)

    assert np.allclose(cosine(turns), np.cos(turns * 2 * np.pi / 1024), atol=1e-6)


def test_pictures_are_sound_jpegs(pictures: list[photos.Photo]) -> None:
    """Pillow decodes every picture to its end, and finds baseline JPEG in colour or gray."""
    for data, _ in pictures:
        with Image.open(BytesIO(data)) as image:
            image.load()
            assert image.format == "JPEG"
            assert image.mode in {"RGB", "L"}
            assert "progressive" not in image.info
            assert np.asarray(image.convert("L")).std() > 8, "hardly anything to be seen"
        assert data.endswith(b"\xff\xd9")


def test_pictures_weigh_like_photographs(pictures: list[photos.Photo]) -> None:
    """Bytes have about the mean and the quartiles of ImageNet's: 108, 64 and 146 kB."""
    sizes = np.array([len(data) for data, _ in pictures]) / 1000

    low, high = np.percentile(sizes, [25, 75])
    assert 90 < sizes.mean() < 130
    assert 45 < low < 85
    assert 120 < high < 175


def test_spectrum_of_nature(pictures: list[photos.Photo]) -> None:
    """The amplitude of luma falls about as 1/f: its power with an exponent of -2 to -3."""
    powers = []
    for data, _ in pictures:
        with Image.open(BytesIO(data)) as image:
            if min(image.size) >= 256:
                luma = np.asarray(image.convert("L").crop((0, 0, 256, 256)), np.float64)
                powers.append(
                    np.abs(np.fft.fft2(luma * np.outer(np.hanning(256), np.hanning(256))))
                )
    power = np.mean(np.square(powers), 0)
    octave = np.log2(np.maximum(np.hypot(*np.meshgrid(*[np.fft.fftfreq(256) * 256] * 2)), 1))
    falls = np.diff([np.log2(power[octave.astype(int) == number].mean()) for number in range(2, 7)])

    assert -3.2 < falls.mean() < -2.0
    assert falls.max() < -0.8, "no octave stands out"


def test_mix_of_sizes_and_sampling() -> None:
    """Sizes and chroma sampling have the shares that were measured on photographs."""
    shots = [camera.aim(Dice(rng.key("test", index)), 1.0) for index in range(4000)]

    shares = {name: n / len(shots) for name, n in Counter(s.sampling for s in shots).items()}
    assert shares == pytest.approx(
        {"4:4:4": 0.74, "4:2:0": 0.235, "": 0.02, "4:2:2": 0.005}, abs=0.03
    )
    assert np.mean([shot.width for shot in shots]) == pytest.approx(467, rel=0.03)
    assert np.mean([shot.height for shot in shots]) == pytest.approx(395, rel=0.03)
    assert np.mean([shot.quality == 96 for shot in shots]) == pytest.approx(0.67, abs=0.03)


@pytest.mark.parametrize("scale", [0.01, 0.3])
def test_scale_multiplies_the_sides(scale: float) -> None:
    """A scaled picture has the same shape, but never less than 16 pixels a side."""
    for index in range(10):
        full, small = (photos.photo(index, scale=factor).data for factor in (1.0, scale))
        with Image.open(BytesIO(full)) as one, Image.open(BytesIO(small)) as other:
            for side, scaled in zip(one.size, other.size, strict=True):
                assert scaled == pytest.approx(max(16, scale * side), abs=1)


@pytest.mark.parametrize("classes", [1, 10, 37, photos.MAX_CLASSES])
def test_class_names(classes: int) -> None:
    """Names are distinct, and sorted, so that readers of class folders give the same labels."""
    names = photos.class_names(classes)

    assert len(set(names)) == classes
    assert list(names) == sorted(names)
    assert all(word.isalpha() for name in names for word in name.split("-"))


def test_generate_writes_class_folders(tmp_path: Path) -> None:
    """Classes take turns, and each file holds the picture of its index, with any threads."""
    photos.generate(tmp_path / "one", images=11, classes=4, seed=5, scale=0.1, workers=1)
    photos.generate(str(tmp_path / "three"), images=11, classes=4, seed=5, scale=0.1, workers=3)

    names = photos.class_names(4)
    files = {f"{names[i % 4]}/{i:06}.jpg": i for i in range(11)}
    for root in (tmp_path / "one", tmp_path / "three"):
        found = [path for path in root.rglob("*") if path.is_file()]
        assert {str(path.relative_to(root)) for path in found} == set(files)
        for name, index in files.items():
            made = photos.photo(index, classes=4, seed=5, scale=0.1)
            assert (root / name).read_bytes() == made.data
            assert made.label == index % 4


def test_progress_counts_up(tmp_path: Path) -> None:
    """Progress is told once a file, in order, whichever thread wrote it."""
    told: list[tuple[int, int]] = []
    photos.generate(
        tmp_path, images=7, classes=2, scale=0.1, workers=3, progress=lambda *at: told.append(at)
    )

    assert told == [(done, 7) for done in range(1, 8)]


def test_failure_stops_all_threads(tmp_path: Path) -> None:
    """What goes wrong on one thread is raised, and the others do not write on."""

    def fail(done: int, _: int) -> None:
        if done == 3:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        photos.generate(tmp_path, images=60, classes=2, scale=0.1, workers=2, progress=fail)

    assert len(list(tmp_path.rglob("*.jpg"))) < 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": 3, "classes": 4}, "images must be 4 or more, one for each class, not 3"),
        ({"classes": 0}, "classes must be from 1 to 100, not 0"),
        ({"classes": 101}, "classes must be from 1 to 100, not 101"),
        ({"scale": 0.0}, "scale must be above 0 and at most 4, not 0.0"),
        ({"scale": float("nan")}, "scale .* not nan"),
        ({"scale": 4.1}, "scale .* not 4.1"),
        ({"workers": 0}, "workers must be from 1 to 1024, found 0"),
    ],
)
def test_options_out_of_range(
    options: dict[str, int | float], message: str, tmp_path: Path
) -> None:
    """An option out of range is named with what was found, before anything is written."""
    with pytest.raises(OptionError, match=message):
        photos.generate(tmp_path / "new", **{"images": 200, **options})  # type: ignore[arg-type]

    assert not (tmp_path / "new").exists()


def test_negative_index() -> None:
    """Pictures are numbered from 0."""
    with pytest.raises(OptionError, match="index must be 0 or more, not -1"):
        photos.photo(-1)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_destination_that_holds_something(kind: str, tmp_path: Path) -> None:
    """Pictures are not mixed with what somebody else put there."""
    target = tmp_path / "taken"
    if kind == "folder":
        target.mkdir()
    (target / "mine.txt" if kind == "folder" else target).write_text("mine")

    with pytest.raises(DestinationError, match="taken: photos need a new or an empty folder"):
        photos.generate(target, images=10)

    assert sum(1 for path in tmp_path.rglob("*") if path.is_file()) == 1


def test_benchmark_compares_like_with_like(tmp_path: Path) -> None:
    """Pictures compared with themselves by the benchmark have the same figures."""
    photos.generate(tmp_path / "folder", images=10)
    script = ROOT / "bench" / "photos.py"
    command = [sys.executable, str(script), str(tmp_path / "folder"), "--images", "10"]
    done = subprocess.run(
        [*command, "--rounds", "1"], capture_output=True, check=True, cwd=tmp_path, text=True
    )

    result = json.loads(done.stdout.splitlines()[-1])
    one, other = result["photographs"], result["generated"]
    assert one["images"] == 10
    assert one["sampling"] == other["sampling"]
    timed = {"decode ms", "us per kB", "entropy"}
    assert timed < set(one["facts"])
    for name in set(one["facts"]) - timed:
        assert one["facts"][name] == other["facts"][name]
