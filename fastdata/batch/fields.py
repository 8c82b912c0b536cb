"""Fields of a batch's samples as bytes, and masks cut as their images are."""

from collections.abc import Collection

import numpy as np

from fastdata.batch.decoder import Failures, Work
from fastdata.batch.source import Source
from fastdata.batch.targets import Mask, crop_mask, decode_mask
from fastdata.errors import DecodeError, OptionError
from fastdata.images.limits import MAX_PIXELS
from fastdata.plan.crop import Crop, CropPlan
from fastdata.system.threads import Task, Threads, ended

_AT_ONCE = 4  # tasks that a batch is read in


class FieldReader:
    """Reads the fields of batches on threads of its own."""

    def __init__(
        self,
        source: Source,
        crop: Crop,
        *,
        seed: int,
        names: Collection[str],
        mask: str | None,
        threads: int,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Prepare; threads start when they are first needed.

        Args:
            source: Where fields are read.
            crop: Cut out of each image, and of its mask.
            seed: Keys the crops.
            names: Fields to hand out as bytes.
            mask: Field that holds a mask as an image, or None.
            threads: Reading threads.
            max_pixels: Refuse larger masks.

        Raises:
            OptionError: The data set has no such field.
        """
        wanted = {*names, *(() if mask is None else (mask,))}
        if missing := wanted - set(source.field_names):
            has = ", ".join(source.field_names) or "none"
            raise OptionError(
                f"{source.path} has no field {', '.join(sorted(missing))}; it has {has}; "
                "fastdata pack --fields packs files of the same stem as fields"
            )
        self._source = source
        self._crop = crop
        self._seed = seed
        self._names = names
        self._mask = mask
        self._wanted = wanted
        self._max_pixels = max_pixels
        self._threads = Threads(threads, "fastdata-fields")

    def submit(self, work: Work, count: int, masks: Mask | None) -> "Fields":
        """Begin to read the fields of a batch; returns at once.

        Args:
            work: V views of N samples.
            count: N; fields are those of the first view.
            masks: (V * N, h, w), or None without masks.
        """
        rows = self._source.rows(work.ids)
        sizes = np.stack([rows["width"], rows["height"]], axis=1).astype(np.int64)
        plan = self._crop.plan(sizes, work.keys, seed=self._seed, epoch=work.epoch)
        fields = Fields(plan, {name: [None] * count for name in self._names})
        # a few tasks, not one a sample: handing one over costs as much as reading a small field
        step = -(-len(work.ids) // _AT_ONCE)
        for first in range(0, len(work.ids), step):
            places = range(first, min(first + step, len(work.ids)))
            fields.tasks.append(
                self._threads.submit(self._read, work, places, fields, count, masks)
            )
        return fields

    def close(self) -> None:
        """End the threads; fields under way are finished first."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _read(
        self, work: Work, places: range, fields: "Fields", count: int, masks: Mask | None
    ) -> Failures:
        failures: Failures = {}
        for place in places:
            if fields.cancelled:
                break
            try:
                self._read_one(work, place, fields, count, masks)
            except Exception as error:  # noqa: BLE001 - it travels to whoever waits
                failures[place] = error
        return failures

    def _read_one(
        self, work: Work, place: int, fields: "Fields", count: int, masks: Mask | None
    ) -> None:
        # further views have the same bytes, but masks of their own
        names = self._wanted if place < count else self._wanted & {self._mask}
        found = self._source.read_fields(int(work.ids[place]), names)
        if place < count:
            for name, column in fields.columns.items():
                column[place] = found.get(name)
        if masks is None or self._mask is None:
            return
        try:
            mask = decode_mask(found.get(self._mask, b""), max_pixels=self._max_pixels)
            crop_mask(mask, fields.crops, place, masks[place])
        except DecodeError as error:
            (key,) = self._source.keys(work.ids[place : place + 1])
            what = f"sample {key!r}, field {self._mask!r}"
            raise DecodeError(f"{self._source.path}: {what}: {error}") from error


class Fields:
    """Fields that are being read; a :class:`fastdata.batch.decoder.Part` of their batch.

    Attributes:
        crops: Crops of all V * N images.
        columns: By name, the field of each of the N samples; None where a sample has none.
        tasks: Reads under way.
        cancelled: Whether nobody wants the batch any more.
    """

    def __init__(self, crops: CropPlan, columns: dict[str, list[bytes | None]]) -> None:
        """Use :meth:`FieldReader.submit`."""
        self.crops = crops
        self.columns = columns
        self.tasks: list[Task[Failures]] = []
        self.cancelled = False

    def cancel(self) -> None:
        """Start no further sample."""
        self.cancelled = True
        for task in self.tasks:
            task.cancel()

    def wait(self, seconds: float) -> bool:
        """Wait until nothing touches the masks any more; False if that takes longer."""
        return ended(self.tasks, seconds)

    def failures(self) -> Failures:
        """Errors by place, once :meth:`wait` was true."""
        return {
            place: error
            for task in self.tasks
            if not task.cancelled()
            for place, error in task.result().items()
        }

    def replace(self, place: int, views: int, one: "Fields") -> None:
        """Take the fields of a substitute.

        Args:
            place: Of the image in the batch.
            views: Views V of each sample.
            one: The substitute's.
        """
        for whole, single in zip(_tables(self.crops), _tables(one.crops), strict=True):
            whole[place] = single[0]
        if place < len(self.crops.flip) // views:
            for name, column in self.columns.items():
                column[place] = one.columns[name][0]


def _tables(plan: CropPlan) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.generic]], ...]:
    return plan.size, plan.source, plan.scaled, plan.cut, plan.flip
