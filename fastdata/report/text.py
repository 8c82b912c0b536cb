"""The library's reports for people: as rows of a table, name and value."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastdata.dataset.manifest import REPORT_NAME

if TYPE_CHECKING:
    from fastdata.converters.check.index import IndexReport
    from fastdata.converters.estimate import PackPlan
    from fastdata.converters.pack import PackReport
    from fastdata.converters.problems import VerifyReport
    from fastdata.dataset.manifest import Skipped
    from fastdata.loaders.export import ExportReport
    from fastdata.loaders.order_quality import Mixing
    from fastdata.report.sheet import Sheet

Rows = Mapping[str, object]

_FEW = 10  # skipped files, or classes, that are listed in a table; JSON has them all
_COUNTS = ("skipped", "not_recoded", "lossy_notes")
_NAMES = {  # of rows, where a fact's own name is not plain enough
    "bytes": "image data",
    "stored_bytes": "size on disk",
    "not_recoded": "not re-encoded",
    "lossy_notes": "lossy changes",
}
_HISTOGRAMS = {
    "width": "widths",
    "height": "heights",
    "megapixels": "megapixels",
    "bytes": "file sizes",
}
_MANY = 50  # problems of a data set, in the same way
_BAR = 20  # characters


def dataset_rows(facts: Mapping[str, Any]) -> Rows:
    """What a data set holds, from ``describe``."""
    apart = {"classes", "class_bytes", "options", "formats", "histograms", *_COUNTS}
    rows = {name: value for name, value in facts.items() if name not in apart}
    counts = sorted(facts["classes"].items(), key=lambda item: -item[1])
    rows["classes"] = len(counts)
    if 0 < len(counts) <= _FEW:
        rows |= _shares("class", facts["classes"], facts["class_bytes"])
    elif counts:
        for what, (name, count) in (("largest", counts[0]), ("smallest", counts[-1])):
            rows[f"{what} class"] = f"{name} ({count:,}; {human_bytes(facts['class_bytes'][name])})"
    rows |= _shares("format", facts.get("formats", {}))
    for name in ("width", "height"):
        if name in facts:
            low, median, high = facts[name]
            rows[name] = f"{low:,} to {high:,}, median {median:,} pixels"
    for name in ("bytes", "stored_bytes"):
        if name in facts:
            rows[name] = human_bytes(facts[name])
    rows["fields"] = ", ".join(facts.get("fields", ()))
    for name, bins in facts["histograms"].items():
        low, high = (_end(name, number) for number in (bins[0][0], bins[-1][1]))
        rows[_HISTOGRAMS[name]] = f"{low} {_columns([count for *_, count in bins])} {high}"
    rows["packed with"] = ", ".join(_packing(facts.get("options", {})))
    rows |= {name: reasons(facts.get(name, {})) for name in _COUNTS}
    rows["unlabelled"] = rows["unlabelled"] or ""
    return {_NAMES.get(name, name): value for name, value in rows.items() if value != ""}


def _packing(options: Mapping[str, Any]) -> Iterator[str]:
    """How a data set was packed, in words; options that were not used are left out."""
    if (resize := options.get("resize")) is not None:
        yield f"images resized to {resize}"
    if (format := options.get("format")) is not None:
        yield f"images as {format}"
    if (quality := options.get("quality")) is not None:
        yield f"JPEG quality {quality}"
    if options.get("orient") == "apply":
        yield "EXIF orientation applied"
    if (width := options.get("run_pixels")) is not None:
        yield f"restart markers every {width} pixels"
    if options.get("damaged") == "keep":
        yield "damaged JPEGs kept as far as they decode"
    if "shard_size" in options:
        yield f"shards of at most {human_bytes(options['shard_size'])}"
    if "shuffle" in options:
        yield f"samples shuffled, seed {options['seed']}" if options["shuffle"] else "no shuffling"


def mixing_rows(orders: "Sequence[Mixing]") -> Rows:
    """How well the orders mix."""
    return {
        row.order: f"{row.labels:.1f} labels in a batch of 256; {row.neighbours:.1%} of its "
        f"samples are near another one in the data set; 8,192 samples span {row.span:.1%} of it"
        for row in orders
    }


def pack_rows(report: "PackReport") -> Rows:
    """What a pack did."""
    rows: dict[str, object] = {
        "already complete" if report.already_complete else "packed": report.path,
        "samples": report.samples,
        "classes": report.classes,
        "data set": f"{human_bytes(report.bytes)} in {_shards(report)}",
        "skipped": reasons(report.skipped_counts) or "none",
    }
    if report.not_recoded:
        rows["not re-encoded"] = reasons(report.not_recoded)
    if report.lossy_notes:
        rows["lossy changes"] = reasons(report.lossy_notes)
    if report.resumed:
        rows["resumed"] = f"{report.resumed:,} samples were packed before the interruption"
    if not report.already_complete:
        share = report.image_bytes / max(1, report.source_bytes)
        rows["images"] = f"{human_bytes(report.image_bytes)}, {share:.1%} of the source files"
        new = report.samples - report.resumed
        rate = report.source_bytes * new / max(1, report.samples) / max(1e-9, report.seconds)
        speed = f"{new / max(1e-9, report.seconds):,.0f} images/s, about {human_bytes(rate)}/s"
        rows["time"] = f"{report.seconds:.1f} s, {speed}, bottleneck: {report.bottleneck}"
    return rows | _named(report.skipped)


def estimate_rows(plan: "PackPlan") -> Rows:
    """What a pack would do."""
    rows: dict[str, object] = {
        "would pack": f"about {plan.samples:,} samples",
        "classes": len(plan.classes),
        "data set": f"about {human_bytes(plan.bytes)}",
        "time": f"about {plan.seconds:,.0f} s",
        "skipped": reasons(plan.skipped_counts) or "none so far",
    }
    return rows


def export_rows(report: "ExportReport") -> Rows:
    """What an export did."""
    rows: dict[str, object] = {
        "exported": report.path,
        "images": report.samples,
        "classes": report.classes,
        "fields": report.fields,
        "size": human_bytes(report.bytes),
    }
    if report.renamed:
        rows["renamed"] = reasons(report.renamed)
    if report.resumed:
        rows["resumed"] = f"{report.resumed:,} files were written before the interruption"
    rows["time"] = (
        f"{report.seconds:.1f} s, {report.samples / max(1e-9, report.seconds):,.0f} images/s"
    )
    return rows


def sheet_rows(sheet: "Sheet") -> Rows:
    """What a contact sheet shows."""
    rows: dict[str, object] = {
        "written": sheet.path,
        "images": f"{sheet.images:,} of {sheet.samples:,}",
        "classes": sheet.classes,
        "size": f"{sheet.width:,} x {sheet.height:,} pixels",
    }
    return rows | {f"  {key}": "cannot be decoded" for key in sheet.unreadable}


def verify_rows(report: "VerifyReport") -> Rows:
    """What is wrong with a data set."""
    found = len(report.problems)
    rows: dict[str, object] = {
        "verified": report.path,
        "samples": report.samples,
        "read": f"{human_bytes(report.bytes)} in {report.seconds:.1f} s, {_rate(report)}",
        "result": f"{found:,} problem{'s' * (found > 1)}"
        if found
        else "intact: every byte matches its checksum",
    }
    for number, problem in enumerate(report.problems[:_MANY], 1):
        sample = "" if problem.key is None else f"sample {problem.key}: "
        rows[f"{number:3} {problem.kind}"] = f"{problem.file}: {sample}{problem.text}"
    if found > _MANY:
        rows["  ..."] = f"and {found - _MANY:,} more; --json lists them all"
    return rows


def index_rows(report: "IndexReport") -> Rows:
    """What an index was made of."""
    # Here, because it imports numpy, which --help can do without.
    from fastdata.dataset.manifest import count_reasons

    rows: dict[str, object] = {
        "indexed": report.path,
        "samples": report.samples,
        "classes": len(report.classes),
        "fields": ", ".join(report.fields) or "none",
        "data set": f"{human_bytes(report.bytes)} in {_shards(report)}",
        "time": f"{report.seconds:.1f} s, {_rate(report)}",
        "skipped": reasons(count_reasons(report.skipped)) or "none",
    }
    return rows | _named(report.skipped)


def human_bytes(number: float) -> str:
    """Bytes in decimal units, ``"1.2 GB"``."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def reasons(counts: Mapping[str, int]) -> str:
    """Such as ``"3 empty file, 1 vanished"``."""
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items())


def _named(skipped: Sequence["Skipped"]) -> dict[str, object]:
    """A row for each of the first skipped files."""
    rows: dict[str, object] = {f"  {name}": reason for name, reason in skipped[:_FEW]}
    if len(skipped) > _FEW:
        rows["  ..."] = f"and {len(skipped) - _FEW:,} more; {REPORT_NAME} lists them all"
    return rows


def _rate(report: "VerifyReport | IndexReport") -> str:
    return f"{human_bytes(report.bytes / max(1e-9, report.seconds))}/s"


def _shares(
    what: str, counts: Mapping[str, int], sizes: Mapping[str, int] | None = None
) -> dict[str, str]:
    """A row with a bar for each name."""
    total, most = max(1, sum(counts.values())), max(counts.values(), default=0)
    rows = {}
    for name, count in counts.items():
        bar = "█" * round(_BAR * count / max(1, most))
        held = f", {human_bytes(sizes[name])}" if sizes else ""
        rows[f"{what} {name}"] = f"{bar} {count:,} ({count / total:.1%}){held}"
    return rows


def _end(what: str, number: float) -> str:
    """An end of a histogram."""
    if what == "bytes":
        return human_bytes(number)
    return f"{number:.3g}" if what == "megapixels" else f"{number:,}"


def _columns(counts: list[int]) -> str:
    """A bar for each count, one character high; only a count of 0 is blank."""
    return "".join(" ▁▂▃▄▅▆▇█"[-(-8 * count // max(counts))] for count in counts)


def _shards(report: "PackReport | IndexReport") -> str:
    groups = getattr(report, "kind", "tar") == "lmdb"
    many = "" if report.shards == 1 else "s"
    return f"{report.shards:,} " + (f"group{many} of one file" if groups else f"shard{many}")
