"""The input of DALI: encoded bytes, read ahead of time, and crops as its operators take them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastdata.batch.decode import check_size, cut_runs, decode
from fastdata.batch.decoder import Work
from fastdata.batch.source import Source
from fastdata.errors import DecodeError
from fastdata.images.limits import MAX_PIXELS
from fastdata.images.probe import probe
from fastdata.plan.crop import Crop, CropPlan
from fastdata.system.threads import Task, Threads, ended

_CHUNK = 16  # samples that one thread reads at a time
_JPEG = b"\xff\xd8\xff"

Bytes = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
F32 = npt.NDArray[np.float32]


class Placement(NamedTuple):
    """How DALI makes N crops: decode ``box``, resample a part of it, pad, mirror.

    Attributes:
        box: (N, 4) int32 x, y, width, height: pixels of the image to decode.
        size: (N, 2) float32 height and width that the part is resampled to.
        start: (N, 2) float32 y and x where the part begins, in pixels of the box.
        end: (N, 2) float32 y and x where it ends.
        position: (N, 2) float32 y and x: share of the room before the output's window, as
            ``crop_mirror_normalize`` has it. 0 where nothing is padded.
        mirror: (N,) int32, 1 to mirror from left to right.
    """

    box: I32
    size: F32
    start: F32
    end: F32
    position: F32
    mirror: I32


class Feed(NamedTuple):
    """A batch for DALI.

    Attributes:
        encoded: N images, each (length,) uint8: JPEG, or PPM of other formats.
        placement: Their crops.
        labels: (N,) int64.
    """

    encoded: list[Bytes]
    placement: Placement
    labels: npt.NDArray[np.int64]


class Reading:
    """A batch that is being read."""

    def __init__(self, chunks: list[Task[Feed]]) -> None:
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

    def result(self) -> Feed:
        """The batch, once :meth:`wait` was true.

        Raises:
            FastdataError: A sample is bad; of several the first.
        """
        parts = [chunk.result() for chunk in self._chunks]
        return Feed(
            [data for part in parts for data in part.encoded],
            Placement(*map(np.concatenate, zip(*(part.placement for part in parts), strict=True))),
            np.concatenate([part.labels for part in parts]),
        )


class Feeder:
    """Reads samples of a source on threads of its own, and plans their crops.

    Other formats than JPEG are decoded here, by OpenCV, and reach DALI as PPM: DALI knows fewer
    formats than we do, and treats alpha, palettes and 16 bits in other ways.
    """

    def __init__(
        self,
        source: Source,
        crop: Crop,
        *,
        seed: int,
        threads: int,
        cut: bool,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Prepare; threads start when they are first needed.

        Args:
            source: Where samples are read.
            crop: Cut out of each image.
            seed: Keys the crops.
            threads: How many read.
            cut: Give DALI only the restart runs of a JPEG that the crop needs.
            max_pixels: Refuse larger images.
        """
        self._source = source
        self._crop = crop
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

    def _read(self, work: Work) -> Feed:
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
            plan = self._crop.plan(sizes, work.keys, seed=self._seed, epoch=work.epoch)
            placement = place(plan, self._crop.shape)
            encoded = []
            for row, data in enumerate(images):  # an error is of this row
                encoded.append(self._prepare(data, placement.box[row]))
        except DecodeError as error:
            (key,) = self._source.keys(work.ids[row : row + 1])
            raise DecodeError(f"{self._source.path}: sample {key!r}: {error}") from error
        return Feed(encoded, placement, rows["label"].astype(np.int64))

    def _prepare(self, data: bytes, box: npt.NDArray[np.int32]) -> Bytes:
        """The bytes that DALI gets of an image; ``box`` is moved to its place in those."""
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


def place(plan: CropPlan, shape: tuple[int, int]) -> Placement:
    """A plan of crops as the numbers that DALI's operators take.

    ``resize`` takes a region of interest and, unlike a crop before it, filters across its edges
    as far as the box goes. So the box is the crop's own region, whose edges the plan's filter
    does not cross either, without what the filter around the window does not reach.

    Args:
        plan: Crops of N images.
        shape: Height and width of the output.
    """
    window = np.array(shape[::-1], np.int64)
    low = np.maximum(plan.cut, 0)  # (N, 2) x, y of the visible part, in the resampled region
    high = np.minimum(plan.cut + window, plan.scaled)
    factor = plan.source[:, 2:] / plan.scaled  # source pixels to an output pixel
    start, end = low * factor, high * factor
    reach = np.ceil(np.maximum(factor, 1)) + 1  # the triangle's half width, and one for rounding
    first = np.maximum(np.floor(start - reach), 0).astype(np.int64)
    last = np.minimum(np.ceil(end + reach), plan.source[:, 2:]).astype(np.int64)
    room = high - low - window  # (N, 2), negative where it must be padded
    before = np.maximum(-plan.cut, 0) / np.maximum(-room, 1)
    box = np.concatenate([plan.source[:, :2] + first, last - first], axis=1)
    return Placement(
        box.astype(np.int32),
        _yx(high - low),
        _yx(start - first),
        _yx(end - first),
        _yx(before),
        plan.flip.astype(np.int32),
    )


def _yx(xy: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> F32:
    return np.ascontiguousarray(xy[:, ::-1], np.float32)
