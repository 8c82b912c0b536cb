"""HTML reports in one file each: images embedded, no scripts, nothing fetched."""

from fastdata.report.charts import bar_chart, line_chart, rounds_chart
from fastdata.report.page import (
    Section,
    Tile,
    contact_sheet,
    facts,
    figure,
    page,
    row,
    table,
    write_page,
)

__all__ = [
    "Section",
    "Tile",
    "bar_chart",
    "contact_sheet",
    "facts",
    "figure",
    "line_chart",
    "page",
    "rounds_chart",
    "row",
    "table",
    "write_page",
]
