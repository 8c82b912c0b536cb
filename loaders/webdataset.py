"""Our decoder in other people's pipelines: ``fd.webdataset.decoder`` for the webdataset library.

The library itself is not imported: a pipeline there is made of functions over dictionaries.
"""

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch.utils.data import get_worker_info

from fastdata.batch.decode import decode_crop
from fastdata.errors import DecodeError, SourceError
from fastdata.images.limits import MAX_PIXELS, MOST_PIXELS
from fastdata.images.probe import probe
from fastdata.loaders.options import Ranks
from fastdata.plan import rng
from fastdata.plan.crop import Crop
from fastdata.system.threads import check_count

__all__ = ["DecodeStage", "decoder"]

_IMAGES = frozenset({"jpg", "jpeg", "jpe", "jfif", "png", "webp", "bmp", "gif", "tif", "tiff"})


class DecodeStage:
    """A stage for ``.map`` that puts decoded crops in the place of encoded images.

        crop = fd.RandomResizedCrop(224, flip=0.5)
        data = webdataset.WebDataset(urls, shardshuffle=100).shuffle(1000)
        data = data.map(fd.webdataset.decoder(crop=crop))
        data = data.decode(partial=True).to_tuple("jpg", "cls").batched(64)
        for images, labels in webdataset.WebLoader(data, batch_size=None, num_workers=8): ...

    It replaces ``.decode("rgb8")`` and the random-resized crop and flip after it: images become
    (H, W, 3) uint8 arrays, of which only the part that the crop needs was decoded. A batch of them
    is (N, H, W, 3), and ``images.permute(0, 3, 1, 2)`` is channels_last without a copy.
    ``.decode(partial=True)`` after it decodes the other fields and leaves the images as they are.

    **Random numbers** are keyed by (seed, rank, worker, number of images that this worker decoded
    before), so each worker and epoch has its own. A worker of a DataLoader is known by the seed
    that torch draws whenever it starts workers: after ``torch.manual_seed`` the same pipeline cuts
    the same crops again. Without workers ``seed`` alone decides; change it when a run is resumed. A
    pipeline has no epochs or sample ids that crops could be keyed by, as
    :class:`fastdata.Loader` does.
    """

    def __init__(
        self,
        crop: Crop,
        *,
        seed: int = 0,
        field: str | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Make the stage; it can be pickled, and is then as new.

        Args:
            crop: Cut out of each image, for example ``fd.RandomResizedCrop(224)``.
            seed: Keys the random numbers.
            field: Name of the image's field; None means the one that is called ``jpg``, ``png`` or
                another image extension.
            max_pixels: Largest image to decode; a larger one is a DecodeError.

        Raises:
            OptionError: ``max_pixels`` is out of range.
        """
        check_count("max_pixels", max_pixels, MOST_PIXELS)
        self._max_pixels = max_pixels
        self._crop = crop
        self._seed = seed
        self._field = field
        self._rank: int | None = None
        self._process: int | None = None  # the one that the two below belong to
        self._key = 0
        self._counter: Iterator[int] = iter(())

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the sample with a decoded image: (H, W, 3), uint8, of the crop's size.

        Args:
            sample: Fields by extension, with ``__key__``.

        Raises:
            SourceError: It has no image, or several, or ``field`` holds no bytes.
            DecodeError: Its image cannot be decoded.
        """
        field = self._image_field(sample) if self._field is None else self._field
        data = sample.get(field)
        if not isinstance(data, bytes):
            raise SourceError(
                f"{_name(sample)}: field {field!r} must hold an encoded image, found "
                f"{type(data).__name__}; put this stage before .decode()"
            )
        out = np.empty((*self._crop.shape, 3), np.uint8)
        try:
            info = probe(data, self._max_pixels)
            size = np.array([[info.width, info.height]], np.int64)
            key, number = self._next()
            plan = self._crop.plan(size, number, seed=key, epoch=0)
            decode_crop(data, plan, 0, out, max_pixels=self._max_pixels)
        except DecodeError as error:
            raise DecodeError(f"{_name(sample)}: {error}") from error
        return {**sample, field: out}

    def __getstate__(self) -> dict[str, Any]:
        """Take the rank along to a spawned worker, where torch.distributed is not initialised."""
        return {**self.__dict__, "_rank": self._own_rank(), "_process": None, "_counter": iter(())}

    def _next(self) -> tuple[int, Any]:
        """Key of this worker's random numbers, and (1,) how many images it decoded before."""
        if self._process != os.getpid():
            worker = get_worker_info()
            seed = -1 if worker is None else worker.seed
            self._key = rng.key("webdataset", self._seed, self._own_rank(), seed)
            self._counter = itertools.count()
            self._process = os.getpid()
        return self._key, np.array([next(self._counter)], np.int64)

    def _own_rank(self) -> int:
        """This rank: by the environment, as webdataset itself does, else by torch.distributed."""
        if self._rank is not None:
            return self._rank
        rank = os.environ.get("RANK", "")
        return int(rank) if rank.isdigit() else Ranks.current().rank

    def _image_field(self, sample: Mapping[str, Any]) -> str:
        """The only field that is called by an image extension."""
        found = [name for name in sample if name in _IMAGES]
        if len(found) != 1:
            names = sorted(name for name in sample if not name.startswith("__"))
            raise SourceError(
                f"{_name(sample)}: exactly one field must be called jpg, png or the like, found "
                f"{len(found)} among {names}; name it with field="
            )
        return found[0]


decoder = DecodeStage  # spelt as webdataset spells its own


def _name(sample: Mapping[str, Any]) -> str:
    return f"{sample.get('__url__', 'webdataset')}: sample {sample.get('__key__')!r}"
