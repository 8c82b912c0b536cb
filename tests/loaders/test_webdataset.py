"""Our shards and our decoder in webdataset's pipelines, and its shards in our loader."""

import gc
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import webdataset as wds
from jpegs import decoded, opencv, pillow, scene
from packing import picture

import fastdata as fd
from fastdata.converters.check.index import index
from fastdata.errors import DecodeError, SourceError

pytestmark = [
    # webdataset leaves files open
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

_CROP = fd.RandomResizedCrop(24, flip=0.5)
Image = npt.NDArray[np.uint8]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 photograph-like JPEGs of different sizes in 4 shards, by webdataset's own writer."""
    folder = tmp_path_factory.mktemp("theirs")
    with wds.ShardWriter(str(folder / "train-%03d.tar"), maxcount=6, verbose=0) as writer:
        for number in range(23):
            image = opencv(scene(60 + number, 70 - number))
            writer.write({"__key__": f"{number:03}", "jpg": image, "cls": number % 3})
    return folder


def urls(folder: Path) -> list[str]:
    """Names of the shards."""
    return sorted(map(str, folder.glob("*.tar")))


def sample(**fields: Any) -> dict[str, Any]:
    """What a pipeline hands on."""
    return {"__key__": "a/b", "__url__": "train-0.tar", **fields}


def crops(decoder: Any, times: int = 3) -> list[bytes]:
    """What it makes of one image, time after time."""
    one = sample(jpg=opencv(scene(90, 70)))
    return [decoder(one)["jpg"].tobytes() for _ in range(times)]


@pytest.mark.parametrize("workers", [0, 2])
def test_our_shards_in_their_pipeline(folder: Path, shards: Path, workers: int) -> None:
    """A plain pipeline reads our shards, each sample once, with its label and its own pixels."""
    data = wds.WebDataset(urls(shards), shardshuffle=10).shuffle(10)
    data = data.map(fd.webdataset.decoder(crop=_CROP)).decode(partial=True)
    batches = list(
        wds.WebLoader(
            data.to_tuple("jpg", "cls", "__key__").batched(4), batch_size=None, num_workers=workers
        )
    )

    keys = [key for _, _, names in batches for key in names]
    labels = [int(label) for _, labels, _ in batches for label in labels]
    images = np.concatenate([np.asarray(images) for images, _, _ in batches])
    assert sorted(keys) == sorted(one.key for one in fd.open(folder))
    assert images.shape == (23, 24, 24, 3)
    assert images.dtype == np.uint8
    for key, label, image in zip(keys, labels, images, strict=True):
        number = int(key.rpartition("/")[2])
        assert label == number % 3
        assert abs(image.mean() - 10 * number) < 2


def test_pixels_are_those_of_the_loader(shards: Path) -> None:
    """With the same crop the stage gives the loader's pixels, to the bit."""
    crop = fd.CenterCrop(20, resize=30)
    data = wds.WebDataset(urls(shards), shardshuffle=False)
    found = {s["__key__"]: s["jpg"] for s in data.map(fd.webdataset.decoder(crop))}

    with fd.Loader(shards, 23, crop=crop, shuffle=False, threads=1) as loader:
        (batch,) = loader
    for key, image in zip(batch.keys, batch.images, strict=True):
        assert np.array_equal(found[key], image.permute(1, 2, 0).numpy())


@pytest.mark.parametrize(
    "data",
    [
        pillow(scene(40, 30), quality=95),
        pillow(scene(40, 30), restart_marker_blocks=2),
        pillow(scene(40, 30, 1)),
        picture(20, "PNG"),
    ],
    ids=["jpeg", "runs", "gray", "png"],
)
def test_pixels_are_pillows(data: bytes) -> None:
    """An image that is not resized has Pillow's pixels, in three channels."""
    expected = decoded(data)
    height, width, _ = expected.shape
    whole = fd.CenterCrop((height, width))

    found = fd.webdataset.decoder(whole)(sample(jpg=data))["jpg"]

    assert np.array_equal(found, expected)
    mirrored = fd.CenterCrop((height, width), flip=1.0)
    flipped = fd.webdataset.decoder(mirrored)(sample(jpg=data))["jpg"]
    assert np.array_equal(flipped, expected[:, ::-1])


def test_a_sample_keeps_what_else_it_has() -> None:
    """Only the image's field changes; a mask, a label, and the sample that was given do not."""
    given = sample(jpeg=opencv(scene(40, 30)), cls=b"7", **{"seg.png": b"mask"})

    found = fd.webdataset.decoder(_CROP)(given)

    assert found.pop("jpeg").shape == (24, 24, 3)
    assert isinstance(given.pop("jpeg"), bytes)
    assert found == given


def test_a_field_is_chosen_by_name() -> None:
    """With field= another field is decoded, and the rest, images too, stay as they are."""
    data = opencv(scene(40, 30))
    found = fd.webdataset.decoder(_CROP, field="left.jpg")(sample(jpg=data, **{"left.jpg": data}))

    assert found["jpg"] == data
    assert found["left.jpg"].shape == (24, 24, 3)


def test_each_image_has_crops_of_its_own() -> None:
    """One image again and again is cut differently; a new stage, or a copy, repeats it all."""
    decoder = fd.webdataset.decoder(_CROP)
    first = crops(decoder)

    assert len(set(first + crops(decoder))) == 6
    assert crops(pickle.loads(pickle.dumps(decoder))) == first  # noqa: S301
    assert crops(fd.webdataset.decoder(_CROP)) == first
    assert not set(crops(fd.webdataset.decoder(_CROP, seed=1))) & set(first)


def test_ranks_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank has random numbers of its own, also where its stage goes to a spawned worker."""
    monkeypatch.setenv("RANK", "0")
    zero = crops(fd.webdataset.decoder(_CROP))
    monkeypatch.setenv("RANK", "1")
    sent = pickle.dumps(fd.webdataset.decoder(_CROP))
    one = crops(fd.webdataset.decoder(_CROP))
    monkeypatch.delenv("RANK")

    assert not set(zero) & set(one)
    assert crops(pickle.loads(sent)) == one  # noqa: S301
    assert crops(fd.webdataset.decoder(_CROP)) == zero


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_and_epochs_differ(persistent: bool) -> None:
    """Two workers, two epochs: no crop twice; after torch.manual_seed all come again."""

    def epochs() -> Iterator[list[bytes]]:
        torch.manual_seed(4)
        one = [sample(jpg=opencv(scene(90, 70)))]
        data = wds.DataPipeline(lambda: iter(one * 3), wds.map(fd.webdataset.decoder(_CROP)))
        loader = wds.WebLoader(data, batch_size=None, num_workers=2, persistent_workers=persistent)
        for _ in range(2):
            yield [image["jpg"].numpy().tobytes() for image in loader]

    first = list(epochs())

    assert [len(set(epoch)) for epoch in first] == [6, 6]
    assert not set(first[0]) & set(first[1])
    assert list(epochs()) == first


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cls": b"1"}, "found 0 among ['cls']"),
        ({"jpg": b"", "png": b""}, "found 2 among ['jpg', 'png']"),
        ({"jpg": np.zeros(3)}, "before .decode"),
    ],
)
def test_no_image_is_an_error(fields: dict[str, Any], message: str) -> None:
    """A sample without an image, with two, or with a decoded one is named, and what to do."""
    with pytest.raises(SourceError) as caught:
        fd.webdataset.decoder(_CROP)(sample(**fields))

    assert "train-0.tar: sample 'a/b'" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*x.tar:pytest.PytestUnraisableExceptionWarning")
def test_a_bad_image_meets_their_handler(tmp_path: Path) -> None:
    """A damaged image is an error with its shard and key, which webdataset's handlers can skip."""
    data = opencv(scene(40, 30))
    with wds.TarWriter(str(tmp_path / "x.tar")) as writer:
        for key, image in (("a", data), ("bad", data[: len(data) // 2]), ("c", data)):
            writer.write({"__key__": key, "jpg": image})
    decoder = fd.webdataset.decoder(_CROP)

    def pipeline(**options: Any) -> list[str]:
        source = wds.WebDataset(str(tmp_path / "x.tar"), shardshuffle=False)
        return [found["__key__"] for found in source.map(decoder, **options)]

    assert pipeline(handler=wds.ignore_and_continue) == ["a", "c"]
    with pytest.raises(DecodeError, match=r"x\.tar: sample 'bad': .*premature end"):
        pipeline()
    gc.collect()  # webdataset leaves the file of a pass that failed open, which is told here


def test_their_shards_in_our_loader(theirs: Path) -> None:
    """Shards by ShardWriter, indexed where they are: exact over ranks and epochs, and resumed."""
    before = {path: path.read_bytes() for path in theirs.iterdir()}
    assert index(theirs).samples == 23
    assert {path: path.read_bytes() for path in before} == before
    options: dict[str, Any] = {"crop": fd.CenterCrop(16), "drop_last": False, "threads": 1}

    seen = []
    for rank in range(2):
        with fd.Loader(theirs, 4, ranks=fd.Ranks(rank, 2), **options) as loader:
            for batch in loader:
                assert torch.equal(batch.labels, torch.from_numpy(batch.ids % 3))
                seen += [k for k, v in zip(batch.keys, batch.valid.tolist(), strict=True) if v]
    assert sorted(seen) == [f"{number:03}" for number in range(23)]

    with fd.Loader(theirs, 5, **options) as loader:
        passes = iter(loader)
        next(passes)
        state = loader.state_dict()
        rest = [batch.ids.tolist() for batch in passes]
    with fd.Loader(theirs, 5, **options) as loader:
        loader.load_state_dict(state)
        assert [batch.ids.tolist() for batch in loader] == rest
