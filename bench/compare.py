"""Writes the tables that compare fastdata with other loaders, and the chart in the README.

    python bench/compare.py            # writes them
    python bench/compare.py --check    # exit code 1 if they differ from the results

Tables go between two comments:

    <!-- bench/compare.py: figures -->
    <!-- end -->

``figures`` are the medians of whole loaders, ``measurements`` all results with their spread,
``features`` what each loader can do in a word, ``all-features`` the same with reasons. Figures come
from the results in ``bench/results`` that ``loaders.py --save`` and ``pack.py --save`` wrote,
features from ``features.toml``.
"""

import argparse
import difflib
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chart import loaders_chart

_ROOT = Path(__file__).parents[1]
_FEATURES = tomllib.loads((_ROOT / "bench" / "features.toml").read_text(encoding="utf-8"))
_PAGES = (
    _ROOT / "docs" / "comparison.md",
    _ROOT / "bench" / "features.md",
    _ROOT / "bench" / "results" / "README.md",
)
_CHART = _ROOT / "docs" / "images" / "loaders.svg"
_CHARTED = "loaders-original.json"
_PLACE = re.compile(
    r"(?P<start><!-- bench/compare\.py: (?P<name>[a-z-]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)
_NAMES = {  # of rows, in the order of the tables
    "torchvision-pil": "torchvision `ImageFolder`, Pillow",
    "torchvision-v2": "torchvision `ImageFolder`, v2 tensors",
    "webdataset": "WebDataset",
    "streaming": "MosaicML Streaming",
    "litdata": "LitData",
    "spdl": "SPDL, torchvision's v2 tensors",
    "spdl-ffmpeg": "SPDL, its own reader",
    "dali": "DALI, on the CPU",
    "ffcv-jpeg": "FFCV, JPEG",
    "ffcv-raw": "FFCV, raw pixels",
    "fastdata-dali": "**fastdata**, decoded by DALI",
    "fastdata-dali-cut": "**fastdata**, cut, then decoded by DALI",
    "fastdata-folder": "**fastdata**, the folder as it is",
    "fastdata-lmdb": "**fastdata**, LMDB",
    "fastdata-tar": "**fastdata**, tar shards",
}
_FACTS = {"kB/image": "kB/image", "MB": "MB written", "first_batch_s": "first batch, s"}
_COMPARED = ("loaders", "pack")
_DASH = "–"  # noqa: RUF001 - not measured

Result = dict[str, Any]


def main() -> None:
    """Write the tables and the chart, or compare them with what is there."""
    options = _options()
    results = read_results(options.results)
    written = {}
    for page in options.pages or _PAGES:
        written[page] = rewritten(page.read_text(encoding="utf-8"), str(page), results)
    if not options.pages:
        written[_CHART] = loaders_chart(dict(results)[_CHARTED])
    differing = []
    for page, new in written.items():
        old = page.read_text(encoding="utf-8") if page.exists() else ""
        if new == old:
            continue
        differing.append(page)
        if options.check:
            sys.stderr.writelines(_difference(page, old, new))
        else:
            page.write_text(new, encoding="utf-8")
            print(f"{page}: written")
    if options.check and differing:
        raise SystemExit(f"{', '.join(map(str, differing))}: run python bench/compare.py")


def read_results(folder: Path) -> list[tuple[str, Result]]:
    """Names and contents of a folder's results for loaders and packers, large images first.

    Raises:
        SystemExit: A file is not the result of a benchmark.
    """
    results = []
    for path in sorted(folder.glob("*.json")):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            if result["benchmark"] not in _COMPARED:
                continue
            result["rows"], result["settings"], result["machine"]
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(
                f"{path}: is no result of a benchmark ({error!r}); remove it"
            ) from None
        results.append((path.name, result))
    return sorted(results, key=lambda pair: -pair[1]["settings"].get("kilobytes_per_image", 0))


def rewritten(text: str, name: str, results: Sequence[tuple[str, Result]]) -> str:
    """Return a page with its tables filled in.

    Args:
        text: The page.
        name: Its name, for errors.
        results: From :func:`read_results`.

    Raises:
        SystemExit: The page has no place for a table, or an unknown one.
    """
    tables: dict[str, Callable[[], Iterable[str]]] = {
        "figures": lambda: _figures(results),
        "measurements": lambda: _measurements(results),
        "features": _short_features,
        "all-features": _all_features,
    }

    def filled(place: re.Match[str]) -> str:
        if place["name"] not in tables:
            raise SystemExit(f"{name}: no table {place['name']} among {', '.join(tables)}")
        return place["start"] + "\n".join(tables[place["name"]]()) + "\n" + place["end"]

    new, places = _PLACE.subn(filled, text)
    if not places:
        raise SystemExit(f"{name}: has no line <!-- bench/compare.py: figures --> ... <!-- end -->")
    return new


def _figures(results: Sequence[tuple[str, Result]]) -> Iterable[str]:
    """A table for each machine and way of measuring, a column for each kind of images."""
    groups: dict[str, list[Result]] = {}
    for _, result in _of("loaders", results):
        groups.setdefault(_conditions(result), []).append(result)
    for conditions, group in groups.items():
        cells = [{row["name"]: row for row in result["rows"]} for result in group]
        shown = [name for name in _NAMES if any(_rate(by.get(name)) for by in cells)]
        rows = [[_NAMES[name], *(_rate(by.get(name)) or _DASH for by in cells)] for name in shown]
        yield f"Images per second, {conditions}. {_DASH} was not measured."
        yield ""
        yield from _table(["loader", *map(_images, group)], rows)
        yield ""
        yield f"Versions: {'; '.join(dict.fromkeys(map(_versions, group)))}."


def _measurements(results: Sequence[tuple[str, Result]]) -> Iterable[str]:
    """A table for each result, with spreads, and what was left out."""
    for file, result in _of("loaders", results) + _of("pack", results):
        measured = [row for row in result["rows"] if "images_per_s" in row]
        facts = [name for name in _FACTS if any(name in row for row in measured)]
        yield ""
        yield f"### {result['benchmark']}.py, images {_images(result)}"
        yield ""
        yield f"`bench/results/{file}`: {_conditions(result)}. {_versions(result)}."
        yield ""
        yield from _table(
            ["", "images/s", "lowest to highest", *(_FACTS[fact] for fact in facts)],
            [[_label(row), *_spread(row), *(str(row[fact]) for fact in facts)] for row in measured],
        )
        for row in result["rows"]:
            if "left_out" in row:
                yield f"\nLeft out: {_label(row)}: {row['left_out']}."


def _short_features() -> Iterable[str]:
    tools = _FEATURES["tools"]
    rows = [
        [feature["name"], *(feature[tool].partition(":")[0] for tool in tools)]
        for feature in _FEATURES["features"]
        if feature.get("short", True)
    ]
    return _table(["", *(tool["name"] for tool in tools.values())], rows)


def _all_features() -> Iterable[str]:
    tools = _FEATURES["tools"]
    heads = (f"{tool['name']} {tool['version']}" for tool in tools.values())
    rows = [[line["name"], *(line[tool] for tool in tools)] for line in _FEATURES["features"]]
    yield from _table(["", *heads], rows)
    yield ""
    yield "Read in the source of these versions and in their documentation:"
    peers = list(tools.values())[1:]
    yield ", ".join(f"[{tool['name']}]({tool['documentation']})" for tool in peers) + "."


def _of(benchmark: str, results: Sequence[tuple[str, Result]]) -> list[tuple[str, Result]]:
    return [pair for pair in results if pair[1]["benchmark"] == benchmark]


def _conditions(result: Result) -> str:
    """How and where it was measured; results that differ in this do not share a table."""
    settings, machine = result["settings"], result["machine"]
    cores = settings.get("threads", machine["cores"])
    shape = ""
    if "size" in settings:
        shape = (
            f", random-resized crops to {settings['size']} pixels and flips,"
            f" uint8 batches of {settings['batch']}, warm page cache"
        )
    return (
        f"{settings['source']}, {machine['cpu']}, {cores} cores{shape};"
        f" medians of {settings['rounds']} interleaved rounds"
    )


def _images(result: Result) -> str:
    """What the images are, in a heading."""
    settings = result["settings"]
    side = settings.get("short_side")
    form = f"{side} pixels, quality 90" if side else "as they are"
    size = settings.get("kilobytes_per_image")
    return f"{form}, {size:.0f} kB" if size else form


def _versions(result: Result) -> str:
    return ", ".join(f"{name} {version}" for name, version in result["versions"].items())


def _rate(row: Mapping[str, Any] | None) -> str:
    """A row's median, or an empty string."""
    return f"{row['images_per_s']['median']:,.0f}" if row and "images_per_s" in row else ""


def _spread(row: Mapping[str, Any]) -> tuple[str, str]:
    rates = row["images_per_s"]
    return _rate(row), f"{rates['low']:,.0f} to {rates['high']:,.0f}"


def _label(row: Mapping[str, Any]) -> str:
    return f"`{row['name']}`: {row['about']}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """Lines of a table in Markdown."""
    yield f"| {' | '.join(heads)} |".replace("|  |", "| |")
    yield "|" + " --- |" * len(heads)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _difference(page: Path, old: str, new: str) -> Iterable[str]:
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    return difflib.unified_diff(before, after, f"{page}, as it is", "as measured", n=0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", type=Path, nargs="*", help="files with tables")
    parser.add_argument(
        "--results", type=Path, default=_ROOT / "bench" / "results", help="folder of saved results"
    )
    parser.add_argument("--check", action="store_true", help="only check; exit with 1 if outdated")
    return parser.parse_args()


if __name__ == "__main__":
    main()
