"""One pack as it runs: order, reading, writing, catalog, manifest."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType

import numpy as np

from fastdata.converters.images.coding import Coding
from fastdata.converters.pace import Limit, Pace, TimedCoding
from fastdata.converters.place import Destination, Noted
from fastdata.converters.read import Loaded, read_all
from fastdata.converters.sources.folder import nothing_left
from fastdata.converters.sources.listing import PACKED_DAMAGED, Listing, Skipped, count_reasons
from fastdata.converters.tally import Tally, encode_report
from fastdata.converters.writer import Item, Writer
from fastdata.dataset.manifest import Manifest, Options, Stored, digest_text, fingerprint
from fastdata.errors import DestinationError, SourceError
from fastdata.images.probe import EXTENSIONS, FORMATS
from fastdata.plan import order, rng
from fastdata.system.files import write_atomically
from fastdata.system.threads import Owner

Progress = Callable[[int, int, int, int], object]
"""Called with samples done, bytes done, samples in all and bytes in all; skipped ones count."""

_STEP = 4096  # places of the shuffled order that are computed at once


class Guard:
    """Turns an OSError of the destination into one clear error; used as a context many times over.

    Args:
        path: The destination.
        size: Bytes that the pack will need in all.

    Attributes:
        size: The same.
        written: Bytes that it does not need any more.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size
        self.written = 0

    def __enter__(self) -> None:
        """Begin a stretch of calls that touch the destination."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raise DestinationError in place of an OSError."""
        if not isinstance(error, OSError):
            return
        free = "unknown"
        with suppress(OSError):
            free = str(shutil.disk_usage(self._path.parent).free)
        raise DestinationError(
            f"{error.filename or self._path}: {error.strerror or error}; the pack into "
            f"{self._path} needs about {self.size - self.written} bytes more, {free} are free"
        ) from error


class Job(Owner):
    """Packs a listing into a destination.

    Attributes:
        listing: The source.
        target: The destination.
        options: What changes the content.
        guard: For whatever touches the destination.
        tally: What was done so far.
        resumed: Samples that were taken over from a pack that was interrupted.
        limited_by: What the time went to; None before ``run``.
    """

    def __init__(
        self,
        listing: Listing,
        target: Destination,
        coding: Coding,
        options: Options,
        *,
        workers: int,
        strict: bool,
        progress: Progress | None,
    ) -> None:
        super().__init__()
        self.listing = listing
        self.target = target
        self.options = options
        self.guard = Guard(target.path, int(listing.sizes.sum()))
        self.tally = Tally(listing.field_names)
        self.resumed = 0
        self.limited_by: Limit | None = None
        self._coding = coding
        self._workers = workers
        self._strict = strict
        self._progress = progress

    def skipped(self) -> list[Skipped]:
        """What was left out so far, sorted."""
        return sorted([*self.listing.skipped, *self.tally.skipped])

    def run(self, noted: list[Noted]) -> Manifest:
        """Write everything; on an error nothing unfinished stays.

        Args:
            noted: Shards that are there already, with the notes of the job that made them.

        Raises:
            SourceError: No file holds an image, or ``strict`` met one to skip.
            DestinationError: The destination cannot be written.
        """
        for _, note in noted:
            self.tally.take(note, str(self.target.journal.path))
        self.resumed = len(self.tally.catalog)
        for entry in self.tally.skipped:
            self._refuse_if_strict(entry)
        with self.guard:
            done = tuple(shard for shard, _ in noted)
            writer = self.target.writer(int(self.options["shard_size"] or 0), done)
        try:
            self._write_samples(writer)
            with self.guard:
                return self._finish(writer)
        except BaseException:
            if not self.is_here():  # a child, forked by a callback, that ends
                raise
            # What went wrong first is what the user must read.
            with suppress(Exception):
                writer.sink.join()  # a shard that only waits to be written is worth it
            with suppress(OSError):
                writer.abort()
            raise

    def _order(self) -> Iterator[int]:
        """Places in the listing, in the order of packing, from the position on."""
        n = len(self.listing)
        for start in range(self.tally.position, n, _STEP):
            places = np.arange(start, min(start + _STEP, n), dtype=np.int64)
            if self.options["shuffle"]:
                key = rng.key("pack", int(self.options["seed"] or 0))
                places = order.permutation(places, n, key)
            yield from places.tolist()

    def _write_samples(self, writer: Writer) -> None:
        pace = Pace(self._workers)
        coding = TimedCoding(**vars(self._coding), pace=pace)
        samples = read_all(self.listing, self._order(), self._workers, coding)
        # Closed at once: what was read ahead must not be coded once the pack has failed.
        with closing(pace.waiting(samples)) as results:
            for place, loaded in results:
                self._take(writer, place, loaded)
                if self._progress is not None:
                    done = self.tally.position, self.tally.read_bytes
                    self._progress(*done, len(self.listing), self.guard.size)
        with self.guard:
            writer.end_shard(self.tally.note())
            writer.sink.join()
        self.limited_by = pace.limited_by(writer.sink.waited)

    def _take(self, writer: Writer, place: int, loaded: Loaded | Skipped) -> None:
        if isinstance(loaded, Skipped):
            self.tally.skipped.append(loaded)
            self._refuse_if_strict(loaded)
        else:
            with self.guard:
                self._write(writer, place, loaded)
        self.tally.position += 1
        self.tally.read_bytes += int(self.listing.sizes[place])
        self.guard.written = self.tally.read_bytes

    def _refuse_if_strict(self, entry: Skipped) -> None:
        if self._strict and entry.kind != PACKED_DAMAGED:
            raise SourceError(
                f"{os.path.join(self.listing.root, entry.name)}: {entry.reason}; mend or remove "
                "this file, or pack without --strict"
            )

    def _write(self, writer: Writer, place: int, loaded: Loaded) -> None:
        key = self.listing.key(place)
        label = int(self.listing.labels[place])
        item = Item(key, EXTENSIONS[loaded.info.format], loaded.image, label, loaded.fields)
        if not writer.room(item):
            writer.end_shard(self.tally.note())
        placed = writer.append(item)
        self.tally.catalog.append(
            key,
            self.listing.name(place),
            offset=placed.offset,
            length=len(loaded.image),
            crc=loaded.crc,
            shard=placed.shard,
            label=label,
            width=loaded.info.width,
            height=loaded.info.height,
            flags=FORMATS.index(loaded.info.format),
            fields=placed.fields,
        )
        self.tally.source_bytes += int(self.listing.sizes[place])
        self.tally.image_bytes += len(loaded.image)
        self.tally.kept.update([loaded.kept] if loaded.kept else ())
        self.tally.noted.update(loaded.notes)
        if loaded.damage:
            name = os.fsdecode(self.listing.name(place))
            self.tally.skipped.append(Skipped(name, f"{PACKED_DAMAGED}: {loaded.damage}"))

    def _finish(self, writer: Writer) -> Manifest:
        catalog = self.tally.catalog
        if not len(catalog):
            raise SourceError(nothing_left(self.listing.root, self.skipped()))
        shards = writer.finish()
        classes, fields = self.listing.classes, self.listing.field_names
        manifest = Manifest(
            kind=self.target.kind,
            samples=len(catalog),
            classes=classes,
            class_counts=catalog.label_counts(len(classes)),
            fields=fields,
            options=self.options,
            source=self.listing.fingerprint,
            skipped=count_reasons(self.skipped()),
            report=self._write_report(),
            kept=dict(sorted(self.tally.kept.items())),
            noted=dict(sorted(self.tally.noted.items())),
            shards=shards,
            catalog=writer.put_catalog(catalog),
            fingerprint=fingerprint(classes, fields, shards, catalog.labels_digest()),
        )
        writer.publish(manifest.encode())
        self.target.finish(manifest)
        return manifest

    def _write_report(self) -> Stored | None:
        """Write the list of what was left out, where anything was."""
        report = encode_report(self.skipped())
        if not report:
            return None
        write_atomically(self.target.report_path, report)
        return Stored(len(report), digest_text(report))
