"""Parts of a source: shares by the hash of keys, and samples drawn for a limit or an estimate."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from packing import picture

from fastdata.converters.estimate import estimate
from fastdata.converters.images.coding import Coding
from fastdata.converters.sources.open import scan
from fastdata.converters.sources.split import limited, parse_split
from fastdata.errors import OptionError

KEYS = [b"class %d/%d" % (i % 7, i) for i in range(20_000)]


def test_shares_are_met() -> None:
    """Of many keys each part gets its share, within four standard deviations."""
    split = parse_split("train=0.8, val=0.15,test=0.05")
    found = split.split_of(KEYS)

    for name, share in [("train", 0.8), ("val", 0.15), ("test", 0.05)]:
        spread = (share * (1 - share) * len(KEYS)) ** 0.5
        assert abs(found.count(name) - share * len(KEYS)) < 4 * spread


def test_a_part_follows_from_the_key_alone() -> None:
    """Other files, added or removed, move nobody; the parts of some keys are golden."""
    split = parse_split("train=0.9,val=0.1")
    found = dict(zip(KEYS, split.split_of(KEYS), strict=True))

    some = [*KEYS[5::3][::-1], b"new/\xff"]
    assert split.split_of(some)[:-1] == [found[key] for key in some[:-1]]
    assert split.split_of([]) == []
    assert [i for i in range(100) if found[KEYS[i]] == "val"] == [12, 33, 43, 49, 50, 69, 85, 86]


def test_a_larger_first_share_keeps_its_samples() -> None:
    """Whoever was in train at 0.8 is there at 0.9: old validation samples only move one way."""
    less, more = (
        parse_split(f"train={a},val={b}").split_of(KEYS) for a, b in [(0.8, 0.2), (0.9, 0.1)]
    )

    assert {"train"} == {b for a, b in zip(less, more, strict=True) if a == "train"}


def test_shares_may_be_fractions() -> None:
    """Thirds add up to 1 exactly."""
    assert parse_split("a=1/3,b=2/3").shares == (Fraction(1, 3), Fraction(2, 3))


@pytest.mark.parametrize(
    "text",
    [
        *("", "train", "train=", "train=1", "train=0.9", "train=0.9,val=0.2", "train=1.5,val=-0.5"),
        *(
            "a=0.5,a=0.5",
            "a/b=0.5,c=0.5",
            "..=0.5,c=0.5",
            "=0.5,c=0.5",
            "a=0.5,b=0.5,",
            "a=1/0,b=1",
        ),
        *("a=nan,b=0.5", "a=inf,b=0.5", "a=0,b=1"),
    ],
)
def test_wrong_splits_are_refused(text: str) -> None:
    """Names that could not be files, shares out of range, and sums other than 1."""
    with pytest.raises(OptionError, match=r"split must be like|add up to"):
        parse_split(text)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Sixty images of two classes, and one file that is none."""
    for number in range(60):
        path = tmp_path / "src" / f"c{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
        path.with_suffix(".txt").write_text(f"caption {number}")
    (tmp_path / "src/c0/none.jpg").write_text("no image")
    return tmp_path / "src"


def test_parts_of_a_listing_are_all_of_it(source: Path) -> None:
    """Every file is in one part, with its key, label and fields; all parts have all classes."""
    listing = scan(source, fields=("txt",))
    parts = parse_split("train=0.7,val=0.3").parts(listing)

    keys = [part.key(i) for part in parts.values() for i in range(len(part))]
    assert sorted(keys) == sorted(listing.key(i) for i in range(len(listing)))
    assert len(keys) == len(set(keys)) == 61
    assert len({part.fingerprint for part in parts.values()}) == 2
    for name, part in parts.items():
        assert part.classes == ("c0", "c1")
        assert parse_split("train=0.7,val=0.3").split_of([part.key(0)]) == [name]


def test_a_limit_draws_from_everywhere(source: Path) -> None:
    """The same files each time, in their order; no more than there are."""
    listing = scan(source, fields=("txt",))

    some = limited(listing, 20)

    assert len(some) == 20
    assert set(some.labels.tolist()) == {0, 1}
    found = [some.key(i) for i in range(20)]
    assert found == [key for key in (listing.key(i) for i in range(61)) if key in set(found)]
    assert [limited(listing, 20).key(i) for i in range(20)] == found
    assert len(limited(listing, 1000)) == 61
    with pytest.raises(OptionError, match="1 or more"):
        limited(listing, 0)


def test_an_estimate_of_few_files_is_exact(source: Path) -> None:
    """Where all files are looked at, samples and bytes are those of a pack, but for padding."""
    listing = scan(source, fields=("txt",))

    found = estimate(listing, Coding(None), 2)

    assert found.samples == 60
    images = sum(path.stat().st_size for path in source.rglob("[0-9]*.jpg"))
    assert images + 60 * 1536 < found.bytes < images + 60 * 4096
    assert found.seconds > 0


def test_an_estimate_of_many_files_is_close(source: Path) -> None:
    """From a part of the files, the size of all is known within a few percent."""
    listing = scan(source, fields=("txt",))
    everything = estimate(listing, Coding(None), 2)
    many = listing.take(np.repeat(np.arange(61), 10))

    found = estimate(many, Coding(None), 2)

    assert abs(found.samples - 600) < 20
    assert abs(found.bytes / everything.bytes - 10) < 0.5
