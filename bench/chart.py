"""The chart in the README: images per second of each loader, as SVG. compare.py writes it."""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

# Rows of loaders.py by the chart's name for them; the fastest of a library's rows counts.
_SHOWN = {
    "torchvision-pil": "torchvision ImageFolder",
    "torchvision-v2": "torchvision ImageFolder",
    "webdataset": "WebDataset",
    "streaming": "MosaicML Streaming",
    "litdata": "LitData",
    "spdl": "SPDL",
    "spdl-ffmpeg": "SPDL",
    "dali": "DALI, on the CPU",
    "ffcv-jpeg": "FFCV, its own JPEGs",
    "fastdata-folder": "fastdata, folder",
    "fastdata-tar": "fastdata, packed",
}
_WIDTH, _LEFT, _BAR, _ROW, _TOP, _BOTTOM = 760, 190, 16, 25, 58, 62
_LONGEST = _WIDTH - _LEFT - 80  # pixels of the longest bar, with room for its figure

# An image follows the system's theme, not the page's. The chart has a background of its own, so it
# stays legible where the two differ.
_STYLE = """
    .card { fill: #ffffff; stroke: #dfe1e4; }
    text { fill: #1c1f23; font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; }
    .title { font-size: 15px; font-weight: 600; }
    .note { fill: #666d76; font-size: 11px; }
    .ours { font-weight: 600; }
    rect.peer { fill: #a8b0ba; }
    rect.ours { fill: #2563c9; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #1c1f23; stroke: #343940; }
      text { fill: #e7e9ec; }
      .note { fill: #9aa2ac; }
      rect.peer { fill: #6b7480; }
      rect.ours { fill: #6ea8ff; }
    }
"""


def loaders_chart(result: Mapping[str, Any]) -> str:
    """One bar for each library, fastest first, from a result that ``loaders.py --save`` wrote."""
    rates: dict[str, float] = {}
    for row in result["rows"]:
        name = _SHOWN.get(row["name"])
        if name and "images_per_s" in row:
            rates[name] = max(rates.get(name, 0.0), row["images_per_s"]["median"])
    bars = sorted(rates.items(), key=lambda bar: -bar[1])
    scale = _LONGEST / bars[0][1]
    height = _TOP + _ROW * len(bars) + _BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"  <style>{_STYLE}  </style>",
        f'  <rect class="card" width="{_WIDTH - 1}" height="{height - 1}" x="0.5" y="0.5" rx="9"/>',
        _text("title", 24, 34, "Images per second (higher is better)"),
    ]
    for place, (name, rate) in enumerate(bars):
        y, width = _TOP + _ROW * place, rate * scale
        kind = "ours" if name.startswith("fastdata") else "peer"
        place_and_size = f'x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}"'
        lines += [
            _text(kind, _LEFT - 10, y + _BAR - 3, name, anchor="end"),
            f'  <rect class="{kind}" {place_and_size} rx="2"/>',
            _text(kind, _LEFT + width + 6, y + _BAR - 3, f"{rate:,.0f}"),
        ]
    for place, note in enumerate(_notes(result)):
        lines.append(_text("note", 24, height - _BOTTOM + 24 + 16 * place, note))
    return "\n".join([*lines, "</svg>", ""])


def _text(kind: str, x: float, y: int, text: str, *, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y}" text-anchor="{anchor}"'
    return f'  <text class="{kind}" {place}>{escape(text)}</text>'


def _notes(result: Mapping[str, Any]) -> Sequence[str]:
    """What was measured, how, and on which machine."""
    settings, machine = result["settings"], result["machine"]
    images = f"{settings['source']}, {settings['kilobytes_per_image']:.0f} kB each"
    work = f"random-resized crops to {settings['size']} pixels and flips"
    batches = f"uint8 batches of {settings['batch']}, warm page cache"
    where = f"{machine['cpu']}, {settings['threads']} cores"
    how = f"medians of {settings['rounds']} rounds of bench/loaders.py"
    rows = [row for row in result["rows"] if row["name"] in _SHOWN and "kB/image" in row]
    smaller = (
        f" {_SHOWN[row['name']]}: {row['kB/image']:.0f} kB each."
        for row in rows
        if row["kB/image"] < 0.9 * settings["kilobytes_per_image"]
    )
    return f"{images}; {work}; {batches}.", f"{where}; {how}.{''.join(smaller)}"
