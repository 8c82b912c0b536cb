"""Memory that is held for images that Pillow decodes, however little their headers admit."""

import io
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from PIL import Image, features

from fastdata.converters.images import recode
from fastdata.converters.images.coding import Coding
from fastdata.errors import DecodeError
from fastdata.images.pillow import open_header
from fastdata.system.resources import never

# Pillow's, about pictures of another size than an icon says
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")

# Pillow says so of an icon whose header lies; packing does not pass that on
pytestmark = pytest.mark.filterwarnings("ignore:Image was not the expected size:UserWarning")


class _Budget:
    """A budget that writes down what is asked for."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    @contextmanager
    def lease(self, size: int, _stopped: Callable[[], bool] = never) -> Iterator[None]:
        self.sizes.append(size)
        yield


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> _Budget:
    """What recoding asks for memory."""
    mine = _Budget()
    monkeypatch.setattr(recode, "BUDGET", mine)
    return mine


def _icon(side: int) -> bytes:
    """An icon whose header says 16 x 16 pixels of a picture of another size."""
    picture = io.BytesIO()
    Image.new("RGBA", (side, side)).save(picture, "PNG")
    png = picture.getvalue()
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(png), 22) + png


def test_memory_for_an_icon_is_that_of_its_picture(
    budget: _Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large PNG in an icon that calls itself small has its memory before Pillow opens it."""

    def opened(*arguments: Any) -> Any:
        assert budget.sizes, "Pillow decodes an icon where it opens it"
        return open_header(*arguments)

    monkeypatch.setattr(recode, "open_header", opened)

    coded = Coding().code_file(_icon(900), "a.ico")

    assert (coded.info.width, coded.info.height) == (900, 900)
    assert budget.sizes[0] >= 900 * 900 * 16


def test_an_icon_over_the_limit_is_not_decoded(budget: _Budget) -> None:
    """A PNG in an icon is held to max_pixels before there are pixels."""
    with pytest.raises(DecodeError, match="900x900 pixels, over the limit of 1000"):
        Coding(max_pixels=1000).code_file(_icon(900), "a.ico")

    assert not budget.sizes


@pytest.mark.skipif(not features.check("jpg_2000"), reason="this Pillow has no JPEG 2000")
def test_memory_for_jpeg_2000_counts_its_tiles(budget: _Budget) -> None:
    """Many tiny tiles take memory that the number of pixels does not tell."""
    picture = io.BytesIO()
    Image.new("RGB", (64, 64)).save(picture, "JPEG2000", tile_size=(4, 4), num_resolutions=1)

    Coding().code_file(picture.getvalue())

    assert budget.sizes[0] >= 256 * (16 << 10)
