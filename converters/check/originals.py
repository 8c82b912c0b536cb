"""Takes damaged samples from the images that were packed."""

import os
from pathlib import Path

from fastdata.converters.images.coding import Coding
from fastdata.converters.problems import read_range
from fastdata.converters.read import load
from fastdata.converters.sources.folder import scan
from fastdata.converters.sources.listing import Skipped
from fastdata.converters.tally import encode_report
from fastdata.converters.tar.layout import Content, Entry
from fastdata.dataset.manifest import Options
from fastdata.errors import DecodeError, ShardError
from fastdata.system.untrusted import open_regular


class Originals:
    """The folder that was packed, or none.

    Args:
        root: The folder; None where there is none.
        options: Those of the manifest, which say how images were coded.
    """

    def __init__(self, root: Path | None, options: Options) -> None:
        self._root = root
        self._coding = Coding.from_options(options)

    def find(self, entry: Entry, content: Content) -> bytes | None:
        """The bytes of an image or a field, if the folder still gives exactly those."""
        name = entry.name
        # names are data: a crafted catalog must not lead out of the folder
        if self._root is None or name.startswith("/") or ".." in name.split("/"):
            return None
        if content.field is not None:
            name = f"{os.path.splitext(name)[0]}.{content.field}"
        try:
            with open_regular(self._root / name) as fd:
                data = read_range(fd, 0, os.fstat(fd).st_size)
        except (OSError, ShardError, ValueError):
            return None
        if content.matches(data):
            return data
        if content.field is not None:
            return None
        try:
            coded = self._coding.code_file(data, entry.name).image
        except DecodeError:
            return None
        return coded if content.matches(coded) else None

    def report(self, names: set[bytes], fields: tuple[str, ...]) -> bytes | None:
        """What skipped.jsonl held, if the folder is as it was; None where there is no folder.

        Args:
            names: Paths of all samples relative to the folder.
            fields: Names of the fields, which may be files beside the images.

        Raises:
            SourceError: The folder cannot be listed.
        """
        if self._root is None:
            return None
        listing = scan(self._root, fields=fields)
        skipped = list(listing.skipped)
        for place in range(len(listing)):
            if listing.name(place) not in names:
                found = load(listing, place, self._coding)
                if isinstance(found, Skipped):
                    skipped.append(found)
        return encode_report(skipped)
