"""One pack as it runs: order, reading, writing, catalog, manifest."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np

from fastdata import order, rng
from fastdata.catalog_builder import CatalogBuilder
from fastdata.converters.destination import Destination
from fastdata.converters.listing import Listing, Skipped, count_reasons
from fastdata.converters.read import Loaded, read_all
from fastdata.converters.scan import nothing_left
from fastdata.converters.writer import Item, Writer
from fastdata.errors import DestinationError, SourceError
from fastdata.manifest import Manifest, Options, fingerprint
from fastdata.probe import EXTENSIONS, FORMATS

Progress = Callable[[int, int, int, int], object]
"""Called with samples done, bytes done, samples in all and bytes in all; skipped ones count."""

_STEP = 4096  # places of the shuffled order that are computed at once


class Guard:
    """Turns an OSError of the destination into one clear error; used as a context many times over.

    Args:
        path: The destination.
        size: Bytes that the pack will need in all.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
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
            f"{self._path} needs about {self._size - self.written} bytes more, {free} are free"
        ) from error


class Job:
    """Packs a listing into a destination that was prepared.

    Attributes:
        skipped: What was left out so far.
        source_bytes: Bytes of the files packed so far.
        image_bytes: Bytes of their images as they are stored.
        kept: How many JPEGs were stored as they are although they should not, by reason.
        ran: Whether ``run`` was called.
    """

    def __init__(
        self,
        listing: Listing,
        target: Destination,
        options: Options,
        *,
        workers: int,
        strict: bool,
        progress: Progress | None,
    ) -> None:
        self.listing = listing
        self.target = target
        self.options = options
        self.guard = Guard(target.path, int(listing.sizes.sum()))
        self.skipped = list(listing.skipped)
        self.source_bytes = 0
        self.image_bytes = 0
        self.kept: Counter[str] = Counter()
        self.ran = False
        self._workers = workers
        self._strict = strict
        self._progress = progress
        self._catalog = CatalogBuilder()

    def run(self) -> Manifest:
        """Write everything; on an error nothing unfinished stays.

        Raises:
            SourceError: No file holds an image, or ``strict`` met one to skip.
            DestinationError: The destination cannot be written.
        """
        self.ran = True
        with self.guard:
            writer = self.target.writer(int(self.options["shard_size"] or 0))
        try:
            self._write_samples(writer)
            with self.guard:
                return self._finish(writer)
        except BaseException:
            # What went wrong first is what the user must read.
            with suppress(OSError):
                writer.abort()
            with suppress(OSError):
                self.target.give_up()
            raise

    def _order(self) -> Iterator[int]:
        """Places in the listing, in the order of packing."""
        n = len(self.listing)
        for start in range(0, n, _STEP):
            places = np.arange(start, min(start + _STEP, n), dtype=np.int64)
            if self.options["shuffle"]:
                key = rng.key("pack", int(self.options["seed"] or 0))
                places = order.permutation(places, n, key)
            yield from places.tolist()

    def _write_samples(self, writer: Writer) -> None:
        total = int(self.listing.sizes.sum())
        done = 0
        run_pixels = self.options["run_pixels"]
        samples = read_all(
            self.listing,
            self._order(),
            self._workers,
            None if run_pixels is None else int(run_pixels),
        )
        for count, (place, loaded) in enumerate(samples, 1):
            if isinstance(loaded, Skipped):
                self._skip(loaded)
            else:
                with self.guard:
                    self._write(writer, place, loaded)
            done += int(self.listing.sizes[place])
            self.guard.written = done
            if self._progress is not None:
                self._progress(count, done, len(self.listing), total)

    def _skip(self, entry: Skipped) -> None:
        self.skipped.append(entry)
        if self._strict:
            raise SourceError(
                f"{os.path.join(self.listing.root, entry.name)}: {entry.reason}; mend or remove "
                "this file, or pack without --strict"
            )

    def _write(self, writer: Writer, place: int, loaded: Loaded) -> None:
        key = self.listing.key(place)
        label = int(self.listing.labels[place])
        placed = writer.append(
            Item(key, EXTENSIONS[loaded.info.format], loaded.image, label, fields={})
        )
        self._catalog.append(
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
        self.source_bytes += int(self.listing.sizes[place])
        self.image_bytes += len(loaded.image)
        if loaded.kept:
            self.kept[loaded.kept] += 1

    def _finish(self, writer: Writer) -> Manifest:
        if not len(self._catalog):
            raise SourceError(nothing_left(self.listing.root, self.skipped))
        shards = writer.finish()
        classes = self.listing.classes
        manifest = Manifest(
            kind=self.target.kind,
            samples=len(self._catalog),
            classes=classes,
            class_counts=self._catalog.label_counts(len(classes)),
            fields=(),
            options=self.options,
            source=self.listing.fingerprint,
            skipped=count_reasons(self.skipped),
            report=None,
            kept=dict(sorted(self.kept.items())),
            noted={},
            shards=shards,
            catalog=writer.put_catalog(self._catalog),
            fingerprint=fingerprint(classes, (), shards, self._catalog.labels_digest()),
        )
        writer.publish(manifest.encode())
        self.target.finish()
        return manifest
