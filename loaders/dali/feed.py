"""What DALI is fed with: encoded bytes, read ahead of time, and where their crops lie."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastdata.batch.decode import check_size, decode
from fastdata.batch.fill import Work
from fastdata.batch.native import cut_runs
from fastdata.batch.source import Source
from fastdata.errors import DecodeError
from fastdata.images.limits import MAX_PIXELS
from fastdata.images.probe import probe
from fastdata.loaders.dali.plan import Placement, place
from fastdata.plan.crop import Crop
from fastdata.system.threads import Task, Threads, ended

_CHUNK = 16  # samples that one thread reads at a time
_JPEG = b"\xff\xd8\xff"

Bytes = npt.NDArray[np.uint8]


class Food(NamedTuple):
    """A batch for DALI.

    Attributes:
        encoded: N images, each (length,) uint8: JPEG, or PPM of what is no JPEG.
        placement: Their crops.
        labels: (N,) int64.
    """

    encoded: list[Bytes]
    placement: Placement
    labels: npt.NDArray[np.int64]


class Reading:
    """A batch that is being read."""

    def __init__(self, chunks: list[Task[Food]]) -> None:
        """Use :meth:`Feeder.submit`."""
        self._chunks = chunks

    def cancel(self) -> None:
        """Read no further sample."""
        for chunk in self._chunks:
            chunk.cancel()

    def wait(self, seconds: float) -> bool:
        """Wait until everything is read or a sample failed; False if that takes longer."""
        return ended(self._chunks, seconds)

    def failed(self) -> bool:
        """Whether a sample failed, once :meth:`wait` was true."""
        return any(chunk.exception() is not None for chunk in self._chunks)

    def result(self) -> Food:
        """The batch, once :meth:`wait` was true.

        Raises:
            FastdataError: A sample is bad; of several the first.
        """
        parts = [chunk.result() for chunk in self._chunks]
        return Food(
            [data for part in parts for data in part.encoded],
            Placement(*map(np.concatenate, zip(*(part.placement for part in parts), strict=True))),
            np.concatenate([part.labels for part in parts]),
        )


class Feeder:
    """Reads samples of a source on threads of its own, and plans their crops.

    What is no JPEG is decoded here, by OpenCV, and reaches DALI as a PPM: DALI knows fewer formats
    than we do, and treats alpha, palettes and 16 bits in other ways.
    """

    def __init__(
        self,
        source: Source,
        crop: Crop,
        *,
        flip: float,
        seed: int,
        threads: int,
        cut: bool,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Prepare; threads start when they are first needed.

        Args:
            source: Where samples are read.
            crop: What is cut out of them.
            flip: Probability of a horizontal flip.
            seed: Keys the crops.
            threads: How many read.
            cut: Take the restart runs that the crop needs out of a JPEG, and give DALI those.
            max_pixels: Refuse larger images.
        """
        self._source = source
        self._crop = crop
        self._flip = flip
        self._seed = seed
        self._cut = cut
        self._max_pixels = max_pixels
        self._threads = Threads(threads, "fastdata-dali")

    def submit(self, work: Work) -> Reading:
        """Begin to read a batch; returns at once."""
        pieces = (slice(i, i + _CHUNK) for i in range(0, len(work.ids), _CHUNK))
        parts = (Work(work.epoch, work.ids[piece], work.keys[piece]) for piece in pieces)
        return Reading([self._threads.submit(self._read, part) for part in parts])

    def culprit(self, work: Work) -> DecodeError | None:
        """The first image of a batch that OpenCV cannot decode either, by its key."""
        for number, key in zip(work.ids.tolist(), self._source.keys(work.ids), strict=True):
            try:
                decode(self._source.read(number), max_pixels=self._max_pixels)
            except DecodeError as error:
                return DecodeError(f"{self._source.path}: sample {key!r}: {error}")
        return None

    def keys(self, work: Work) -> list[str]:
        """Keys of the samples of a batch."""
        return self._source.keys(work.ids)

    def close(self) -> None:
        """End the threads; samples under way are finished first."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _read(self, work: Work) -> Food:
        """Read and plan some samples of a batch."""
        rows = self._source.rows(work.ids)
        sizes = np.stack([rows["width"], rows["height"]], axis=1).astype(np.int64)  # (n, 2)
        images = [self._source.read(number) for number in work.ids.tolist()]
        row = 0
        try:
            for row, data in enumerate(images):
                info = probe(data, self._max_pixels)
                if sizes[row].any():  # a folder's are unknown
                    check_size(info, *sizes[row].tolist())
                sizes[row] = info.width, info.height
            plan = self._crop.plan(
                sizes, work.keys, seed=self._seed, epoch=work.epoch, flip=self._flip
            )
            placement = place(plan, self._crop.shape)
            encoded = []
            for row, data in enumerate(images):  # an error is of this row
                encoded.append(self._prepare(data, placement.box[row]))
        except DecodeError as error:
            (key,) = self._source.keys(work.ids[row : row + 1])
            raise DecodeError(f"{self._source.path}: sample {key!r}: {error}") from error
        return Food(encoded, placement, rows["label"].astype(np.int64))

    def _prepare(self, data: bytes, box: npt.NDArray[np.int32]) -> Bytes:
        """What DALI gets of an image; ``box`` is moved to where its pixels are in that."""
        x, y, width, height = box.tolist()
        if data.startswith(_JPEG):
            left = top = 0
            if self._cut:
                data, left, top = cut_runs(data, x, y, width, height, max_pixels=self._max_pixels)
            box[:2] -= left, top
            return np.frombuffer(data, np.uint8)
        pixels = decode(data, max_pixels=self._max_pixels)[y : y + height, x : x + width]
        box[:2] = 0
        return np.frombuffer(b"P6\n%d %d\n255\n" % (width, height) + pixels.tobytes(), np.uint8)
