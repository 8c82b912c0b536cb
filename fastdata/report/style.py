"""The style sheet of reports, with the colours of charts."""

CSS = """
:root {
  color-scheme: light dark;
  --page: #f7f7f5; --card: #ffffff; --ink: #1c1f23; --muted: #666d76; --line: #dfe1e4;
  --one: #2563c9; --two: #d97a16;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #141619; --card: #1c1f23; --ink: #e7e9ec; --muted: #9aa2ac; --line: #343940;
    --one: #6ea8ff; --two: #f2a54a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 8px; letter-spacing: -0.01em; }
h2 { font-size: 18px; margin: 0 0 4px; }
header p, section > p { color: var(--muted); margin: 0 0 16px; max-width: 72ch; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 20px 24px 24px; margin-top: 20px;
}
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 12px; }
.tile {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 18px; display: flex; flex-direction: column;
}
.tile b { font-size: 26px; line-height: 1.25; font-weight: 650; letter-spacing: -0.01em; }
.tile small { color: var(--muted); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); padding-bottom: 6px; }
th {
  text-align: left; font-weight: 600; font-size: 13px; color: var(--muted); white-space: nowrap;
}
th, td { padding: 6px 20px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
td.number { white-space: nowrap; }
.row {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); gap: 24px 40px;
  margin-bottom: 8px;
}
figure { margin: 0; }
.row svg { width: 100%; height: auto; display: block; color: var(--muted); }
.row figcaption { color: var(--muted); font-size: 13px; margin-top: 4px; }
.sheet {
  display: grid; gap: 14px 12px;
  grid-template-columns: repeat(auto-fill, minmax(var(--side), 1fr));
}
.sheet img {
  display: block; width: 100%; aspect-ratio: 1; object-fit: contain; border-radius: 6px;
  background: var(--line);
}
.sheet figcaption { font-size: 12px; line-height: 1.35; margin-top: 4px; overflow: hidden; }
.sheet b { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.sheet span {
  color: var(--muted); font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 11px;
  overflow-wrap: anywhere; overflow: hidden;
  display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; line-clamp: 2;
}
dl {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(290px, 1fr)); gap: 6px 28px;
  margin: 0;
}
dl div { display: flex; gap: 12px; border-bottom: 1px solid var(--line); padding: 4px 0; }
dt { color: var(--muted); flex: 0 0 118px; }
dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
@media print { body { background: none; } section, .tile { break-inside: avoid; } }
"""
