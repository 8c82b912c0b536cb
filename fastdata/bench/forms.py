"""The same images in the two forms that a ladder reads: class folders, and packed."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastdata.bench import page_cache
from fastdata.converters.pack import pack
from fastdata.errors import OptionError
from fastdata.loaders.export import export
from fastdata.loaders.readers.packed import open_source
from fastdata.system.files import refuse_link
from fastdata.train.data import check_labelled

Tell = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Forms:
    """Both forms of the images.

    Attributes:
        folder: The class folders.
        packed: The packed data set.
        work: The folder that holds the form that was made.
        samples: Number of images.
        classes: Number of classes.
        in_memory: Whether all files were read into the page cache.
    """

    folder: Path
    packed: Path
    work: Path
    samples: int
    classes: int
    in_memory: bool


def both_forms(path: Path, work: Path | None, *, batch_size: int, tell: Tell) -> Forms:
    """Pack a folder, or export a packed data set, unless that was done; then read all files once.

    Args:
        path: One form of the images.
        work: Folder for the other; None is ``path`` with ``-bench`` appended.
        batch_size: Minimum number of images.
        tell: Called with the progress.

    Raises:
        OptionError: The images have no labels, or are too few.
        NotADatasetError: There are no images at ``path``.
        CorruptError: It is damaged.
        DestinationError: ``work`` holds something else.
    """
    source = open_source(path)
    samples, classes, kind = len(source), len(source.classes), source.kind
    try:
        check_labelled(source)
    finally:
        source.close()
    if samples < batch_size:
        raise OptionError(
            f"{path}: {samples} images make no batch of {batch_size}; use a smaller batch_size"
        )
    full = Path(os.path.abspath(path))
    made = full.with_name(full.name + "-bench") if work is None else work
    made.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        folder, packed = path, made / "packed"
        refuse_link(packed)
        pack(path, packed, progress=lambda done, _, of, __: tell("pack", done, of))
    else:
        folder, packed = made / "images", path
        refuse_link(folder)
        export(path, folder, progress=lambda _, done, of: tell("export", done, of))
    warm = [page_cache.warm(form, lambda *at: tell("read", *at)) for form in (folder, packed)]
    return Forms(folder, packed, made, samples, classes, all(warm))
