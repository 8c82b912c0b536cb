"""One pack as it runs: found complete, resumed or started; order, samples, catalog, manifest."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastdata.converters.destination import Destination, Item, Writer
from fastdata.converters.images.coding import Coding
from fastdata.converters.journal import Noted, Tally, encode_report
from fastdata.converters.lmdb.destination import LmdbDestination
from fastdata.converters.sources.listing import PACKED_DAMAGED, Listing, nothing_left
from fastdata.converters.stages import Bottleneck, Loaded, Stage, read_all
from fastdata.converters.tar.shards import TarDestination
from fastdata.dataset.catalog.builder import CatalogRow
from fastdata.dataset.manifest import (
    Manifest,
    Options,
    Shard,
    Skipped,
    Stored,
    count_reasons,
    digest_text,
    fingerprint,
)
from fastdata.errors import DestinationError, SourceError
from fastdata.images.probe import EXTENSIONS, FORMATS
from fastdata.plan import rng
from fastdata.system.files import Lock, write_atomically
from fastdata.system.threads import Owner

Progress = Callable[[int, int, int, int], object]
"""Called with samples done, bytes done, samples in all and bytes in all; skipped ones count."""

_STEP = 4096  # positions of the shuffled order that are computed at a time


@dataclass(frozen=True)
class Output:
    """How a data set is written.

    Attributes:
        shard_size: Bytes that a shard does not exceed, unless a single sample does.
        shuffle: Whether samples are packed in random order.
        seed: Random seed for shuffling.
        overwrite: Whether a data set or an unfinished pack may be replaced.
        strict: Whether a file that would be skipped is an error.
    """

    shard_size: int
    shuffle: bool = True
    seed: int = 0
    overwrite: bool = False
    strict: bool = False

    def options(self) -> Options:
        """What the manifest states: all that the content depends on."""
        # Without a shuffle the seed changes nothing.
        seed = self.seed if self.shuffle else None
        return {"seed": seed, "shard_size": self.shard_size, "shuffle": self.shuffle}


def destination(path: Path) -> Destination:
    """Tell the kind by the name: one LMDB file if it ends in .lmdb, else a folder of shards."""
    # Links are followed, but not one in the place of an LMDB file.
    if path.name.endswith(".lmdb"):
        return LmdbDestination(Path(os.path.realpath(path.parent)) / path.name)
    return TarDestination(Path(os.path.realpath(path)))


class PackRun(Owner):
    """Packs a listing into a destination.

    Args:
        listing: The source.
        path: The destination.
        coding: How images are stored.
        output: How the data set is written.
        workers: Number of threads that read and code.
        progress: Called after each sample, on the calling thread.

    Attributes:
        target: The destination.
        tally: What was done so far.
        resumed: Samples that an interrupted pack had finished.
        already_complete: Whether the data set was there, so that nothing was written.
        bottleneck: The slowest stage; None until samples were written.
    """

    def __init__(
        self,
        listing: Listing,
        path: Path,
        coding: Coding,
        output: Output,
        *,
        workers: int,
        progress: Progress | None = None,
    ) -> None:
        super().__init__()
        self.target = destination(path)
        self.tally = Tally(listing.field_names)
        self.resumed = 0
        self.already_complete = False
        self.bottleneck: Stage | None = None
        self._listing = listing
        self._coding = coding
        self._output = output
        self._options: Options = {**coding.options(), **output.options()}
        self._workers = workers
        self._progress = progress
        self._bytes = int(listing.sizes.sum())

    def skipped(self) -> list[Skipped]:
        """Files that were left out so far, sorted."""
        return sorted([*self._listing.skipped, *self.tally.skipped])

    def run(self) -> Manifest:
        """Pack, unless the data set is there already; return its manifest.

        Raises:
            FastdataError: As :func:`fastdata.converters.pack.pack`.
        """
        # All that can be refused is refused before anything is made.
        self._refuse_overlap()
        if self._output.strict and self._listing.skipped:
            raise SourceError(self._strict_message())
        with self._guarded():
            found = self._complete()
            if found is not None and self.target.is_clean():
                self.already_complete = True
                return found
            created = self.target.create()
        try:
            with self._locked():
                return self._pack_alone()
        except BaseException:
            if created and self.is_here():
                with suppress(OSError):  # finished shards stay, and with them the folder
                    self.target.path.rmdir()
            raise

    def _refuse_overlap(self) -> None:
        """Refuse a destination inside the source: the next pack would read it as part of it."""
        for root in map(Path, map(os.path.realpath, self._listing.input_paths())):
            if self.target.path == root or root in self.target.path.parents:
                raise DestinationError(
                    f"{self.target.path}: inside the source {root}; choose another destination"
                )

    def _strict_message(self) -> str:
        skipped = self._listing.skipped
        shown = "; ".join(f"{entry.name}: {entry.reason}" for entry in skipped[:10])
        more = f"; and {len(skipped) - 10} more" if len(skipped) > 10 else ""
        return (
            f"{self._listing.root}: {len(skipped)} would be skipped, which --strict forbids: "
            f"{shown}{more}"
        )

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn an OSError of the destination into one clear error."""
        try:
            yield
        except OSError as error:
            path = self.target.path
            free = "unknown"
            with suppress(OSError):
                free = str(shutil.disk_usage(path.parent).free)
            raise DestinationError(
                f"{error.filename or path}: {error.strerror or error}; the pack into {path} needs "
                f"about {self._bytes - self.tally.read_bytes} bytes more, {free} are free"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = Lock(self.target.lock_path, str(self.target.path))
        with self._guarded():
            lock.__enter__()
        try:
            yield
        finally:
            with self._guarded():
                lock.release()

    def _complete(self) -> Manifest | None:
        """The manifest of what is there, if it is what this pack would write."""
        if self._output.overwrite or (manifest := self.target.manifest()) is None:
            return None
        if manifest.source != self._listing.fingerprint:
            what = "was packed from another source or choice of files, or the source has changed"
        elif manifest.options != self._options:
            what = f"was packed with other options: {self._changed(manifest.options)}"
        else:
            return manifest
        raise DestinationError(f"{self.target.path}: {what}; use --overwrite to replace it")

    def _changed(self, old: Options) -> str:
        """The options that differ from those of the data set that is there."""
        mine = self._options
        names = sorted(name for name in {*old, *mine} if old.get(name) != mine.get(name))
        return ", ".join(f"{name} {old.get(name)}, now {mine.get(name)}" for name in names)

    def _pack_alone(self) -> Manifest:
        mark = json.dumps(
            {"options": self._options, "source": self._listing.fingerprint}, sort_keys=True
        )
        overwrite = self._output.overwrite
        with self._guarded():
            # Another process may have finished between the first look and the lock.
            if (found := self._complete()) is not None:
                self.target.finish(found)
                self.already_complete = True
                return found
            self.target.check(mark, overwrite=overwrite)
        try:
            with self._guarded():
                noted = self.target.prepare(mark, overwrite=overwrite)
            self._resume(noted)
            return self._write(tuple(shard for shard, _ in noted))
        except BaseException:
            if self.is_here():
                with suppress(OSError):
                    self.target.give_up()
            raise

    def _resume(self, noted: list[Noted]) -> None:
        """Take over what an interrupted pack has finished."""
        for _, note in noted:  # in the order of the shards
            self.tally.take(note, str(self.target.journal.path))
        self.resumed = len(self.tally.catalog)
        # The interrupted pack need not have been strict.
        for entry in self.tally.skipped:
            self._refuse_if_strict(entry)

    def _write(self, done: tuple[Shard, ...]) -> Manifest:
        """Write what is missing; on an error, leave nothing unfinished behind."""
        with self._guarded():
            writer = self.target.writer(self._output.shard_size, done)
        try:
            self._write_samples(writer)
            with self._guarded():
                return self._finish(writer)
        except BaseException:
            if not self.is_here():  # a child, forked by a callback, that ends
                raise
            # The user must see the first error, so later ones are dropped.
            with suppress(Exception):
                writer.sink.join()  # shards that only wait to be written can be saved
            with suppress(OSError):
                writer.abort()
            raise

    def _order(self) -> Iterator[int]:
        """Places in the listing, in packing order, from where the tally stands."""
        n = len(self._listing)
        for start in range(self.tally.position, n, _STEP):
            places = np.arange(start, min(start + _STEP, n), dtype=np.int64)
            if self._output.shuffle:
                # Each position is computed by itself, so a pack resumes anywhere in the order.
                places = rng.permutation(places, n, rng.key("pack", self._output.seed))
            yield from places.tolist()

    def _write_samples(self, writer: Writer) -> None:
        bottleneck = Bottleneck(self._workers)
        samples = read_all(self._listing, self._order(), self._workers, self._coding)
        # Once the pack has failed, what was read ahead must not be coded any more.
        with closing(samples):
            for place, loaded in bottleneck.timed(samples):
                if isinstance(loaded, Skipped):
                    self.tally.skipped.append(loaded)
                    self._refuse_if_strict(loaded)
                else:
                    bottleneck.coding += loaded.seconds
                    with self._guarded():
                        self._add(writer, place, loaded)
                self.tally.position += 1
                self.tally.read_bytes += int(self._listing.sizes[place])
                if self._progress is not None:
                    done = self.tally.position, self.tally.read_bytes
                    self._progress(*done, len(self._listing), self._bytes)
        with self._guarded():
            writer.end_shard(self.tally.note())
            writer.sink.join()  # waiting for the last shard counts as writing
        self.bottleneck = bottleneck.stage(writer.sink.waited)

    def _refuse_if_strict(self, entry: Skipped) -> None:
        if self._output.strict and entry.kind != PACKED_DAMAGED:
            raise SourceError(
                f"{os.path.join(self._listing.root, entry.name)}: {entry.reason}; repair or remove "
                "this file, or pack without --strict"
            )

    def _add(self, writer: Writer, place: int, loaded: Loaded) -> None:
        """Write a sample, and note it in the tally."""
        coded, info = loaded.coded, loaded.coded.info
        key, name = self._listing.key(place), self._listing.name(place)
        label = int(self._listing.labels[place])
        item = Item(key, EXTENSIONS[info.format], coded.image, label, loaded.fields)
        placed = writer.append(item, self.tally.note)
        row = CatalogRow(
            key,
            name,
            offset=placed.offset,
            length=len(coded.image),
            crc=loaded.crc,
            shard=placed.shard,
            label=label,
            width=info.width,
            height=info.height,
            flags=FORMATS.index(info.format),
            fields=placed.fields,
        )
        self.tally.catalog.append(row)
        self.tally.source_bytes += int(self._listing.sizes[place])
        self.tally.image_bytes += len(coded.image)
        self.tally.not_recoded.update([coded.not_recoded] if coded.not_recoded else ())
        self.tally.lossy_notes.update(coded.lossy_notes)
        if coded.damage:
            self.tally.skipped.append(
                Skipped(os.fsdecode(name), f"{PACKED_DAMAGED}: {coded.damage}")
            )

    def _finish(self, writer: Writer) -> Manifest:
        catalog = self.tally.catalog
        if not len(catalog):
            raise SourceError(nothing_left(self._listing.root, self.skipped()))
        shards = writer.finish()
        classes, fields = self._listing.classes, self._listing.field_names
        manifest = Manifest(
            kind=self.target.kind,
            samples=len(catalog),
            classes=classes,
            class_counts=catalog.label_counts(len(classes)),
            fields=fields,
            options=self._options,
            source=self._listing.fingerprint,
            skipped=count_reasons(self.skipped()),
            report=self._write_report(),
            kept=dict(sorted(self.tally.not_recoded.items())),
            noted=dict(sorted(self.tally.lossy_notes.items())),
            shards=shards,
            catalog=writer.put_catalog(catalog),
            fingerprint=fingerprint(classes, fields, shards, catalog.labels_digest()),
        )
        # From here on the data set is complete; what is removed after it no longer matters.
        writer.publish(manifest.encode())
        self.target.finish(manifest)
        return manifest

    def _write_report(self) -> Stored | None:
        """Write skipped.jsonl, if anything was left out."""
        report = encode_report(self.skipped())
        if not report:
            return None
        write_atomically(self.target.report_path, report)
        return Stored(len(report), digest_text(report))
