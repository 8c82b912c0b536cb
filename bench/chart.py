"""The chart in the README: images per second of each loader, as SVG. compare.py writes it."""

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

_SHOWN = {  # rows of loaders.py, and what the chart calls them; of several rows a library's best counts
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

# Where SVG is an image, the page's theme cannot reach it and only the system's can, so the chart has
# a background of its own: it stays legible where the two differ.
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
    """One bar for each library, slowest first, from a result that ``loaders.py --save`` wrote."""
    rates: dict[str, float] = {}
    for row in result["rows"]:
        name = _SHOWN.get(row["name"])
        if name and "images_per_s" in row:
            rates[name] = max(rates.get(name, 0.0), row["images_per_s"]["median"])
    bars = sorted(rates.items(), key=lambda bar: bar[1])
    scale = _LONGEST / bars[-1][1]
    height = _TOP + _ROW * len(bars) + _BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"  <style>{_STYLE}  </style>",
        f'  <rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="10"/>',
        '  <text class="title" x="24" y="34">Images per second (higher is better)</text>',
    ]
    for place, (name, rate) in enumerate(bars):
        y = _TOP + _ROW * place
        kind = "ours" if name.startswith("fastdata") else "peer"
        text, width = y + _BAR - 3, rate * scale
        lines += [
            f'  <text class="{kind}" x="{_LEFT - 10}" y="{text}" text-anchor="end">{escape(name)}</text>',
            f'  <rect class="{kind}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2"/>',
            f'  <text class="{kind}" x="{_LEFT + width + 6:.1f}" y="{text}">{rate:,.0f}</text>',
        ]
    for place, note in enumerate(_notes(result)):
        y = height - _BOTTOM + 24 + 16 * place
        lines.append(f'  <text class="note" x="24" y="{y}">{escape(note)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _notes(result: Mapping[str, Any]) -> tuple[str, str]:
    """What was measured, how, and on which machine."""
    settings, machine = result["settings"], result["machine"]
    return (
        f"{settings['source']}, {settings['kilobytes_per_image']:.0f} kB each; random-resized crops to"
        f" {settings['size']} pixels and flips; uint8 batches of {settings['batch']};"
        " warm page cache.",
        f"{machine['cpu']}, {settings['threads']} cores; medians of {settings['rounds']} rounds."
        " Measured by bench/loaders.py, drawn by bench/compare.py.",
    )
