"""What a pack has done so far: rows of the catalog, what was left out, counters, the position.

A tally is written down piece by piece, one note for each shard, and an interrupted pack takes the
notes of its whole shards over.
"""

import json
import struct
from collections import Counter
from collections.abc import Iterable

from fastdata.converters.journal import ADVICE
from fastdata.converters.sources.listing import Skipped
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.errors import CorruptError
from fastdata.system.untrusted import JsonFields

_SIZE = struct.Struct("<I")


class Tally:
    """What was done up to a position in the order of packing.

    Args:
        fields: Names of further fields that samples may have.

    Attributes:
        catalog: The rows of all samples.
        skipped: What was left out while packing, in the order of packing.
        kept: How many JPEGs were stored as they are although they should not, by reason.
        noted: How many images were packed by a rule that is worth knowing, by rule.
        position: How many places of the order were dealt with.
        read_bytes: Bytes of the files at these places.
        source_bytes: Bytes of those that were packed.
        image_bytes: Bytes of their images as they are stored.
    """

    def __init__(self, fields: tuple[str, ...] = ()) -> None:
        self.catalog = CatalogBuilder(fields)
        self.skipped: list[Skipped] = []
        self.kept: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        self.position = 0
        self.read_bytes = 0
        self.source_bytes = 0
        self.image_bytes = 0
        self._rows_written = 0
        self._skipped_written = 0

    def note(self) -> bytes:
        """All that came since the last note."""
        content = {
            "image_bytes": self.image_bytes,
            "kept": self.kept,
            "noted": self.noted,
            "position": self.position,
            "read_bytes": self.read_bytes,
            "skipped": self.skipped[self._skipped_written :],
            "source_bytes": self.source_bytes,
        }
        text = json.dumps(content).encode("ascii")
        rows = self.catalog.since(self._rows_written)
        self._mark_written()
        return _SIZE.pack(len(text)) + text + rows

    def take(self, note: bytes, where: str) -> None:
        """Continue behind a note; notes come in the order in which they were made.

        Args:
            note: What :meth:`note` gave.
            where: The journal that holds it, for errors.

        Raises:
            CorruptError: It says what no pack wrote.
        """
        size = int.from_bytes(note[: _SIZE.size], "little")
        end = _SIZE.size + size
        fields = JsonFields.read(note[_SIZE.size : end], where, CorruptError, ADVICE)
        self.skipped += (_skipped(fields, pair) for pair in fields.list_of("skipped", list))
        self.kept = Counter(fields.counts("kept"))
        self.noted = Counter(fields.counts("noted"))
        self.position = fields.count("position")
        self.read_bytes = fields.count("read_bytes")
        self.source_bytes = fields.count("source_bytes")
        self.image_bytes = fields.count("image_bytes")
        fields.end()
        try:
            self.catalog.extend(note[end:])
        except ValueError as error:
            raise fields.problem(f"rows of the catalog are damaged: {error}") from None
        self._mark_written()

    def _mark_written(self) -> None:
        self._rows_written = len(self.catalog)
        self._skipped_written = len(self.skipped)


def _skipped(fields: JsonFields, pair: list[object]) -> Skipped:
    if len(pair) != len(Skipped._fields) or not all(isinstance(text, str) for text in pair):
        raise fields.problem("'skipped' must hold pairs of texts")
    return Skipped(*map(str, pair))


def encode_report(skipped: Iterable[Skipped]) -> bytes:
    """The content of skipped.jsonl: a line for each file that was left out, sorted."""
    lines = (json.dumps(entry._asdict(), sort_keys=True) + "\n" for entry in sorted(skipped))
    return "".join(lines).encode("ascii")
