"""A solution as one HTML page: zoomable picture, searchable table, figures and certificate; it loads nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

#: Most rows of the table, which a browser can still search. The page states if there are more.
MOST_ROWS = 20_000

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse; font-size: 13px }} th, td {{ padding: .15rem .7rem .15rem 0; text-align: left }}
th, td {{ border-bottom: 1px solid #ddd; vertical-align: top }}
tr[hidden] {{ display: none }} pre {{ white-space: pre-wrap }}
#sides {{ display: flex; flex-wrap: wrap-reverse; gap: 2rem; align-items: flex-end }} #picture {{ flex: 1 1 36rem }}
#picture svg {{ width: 100%; height: auto; max-height: 85vh; cursor: grab; touch-action: none; background: white }}
#found {{ font: inherit; width: 20rem }} svg text.hit {{ font-weight: bold; fill: #D55E00 }}
</style></head><body>
<h1>{title}</h1>
<p><label>Search the table and the picture: <input id="found" type="search"></label> <span id="count"></span></p>
<div id="sides"><div id="picture" title="wheel: zoom, drag: move, double click: all">{picture}</div>{facts}</div>
{table}
<h2>Certificate</h2><pre>{certificate}</pre>
<script>
const rows = [...document.querySelectorAll("#table tbody tr")], texts = [...document.querySelectorAll("#picture text")];
const find = document.getElementById("found"), count = document.getElementById("count");
find.addEventListener("input", () => {{
  const word = find.value.toLowerCase(); let shown = 0;
  for (const row of rows) shown += !(row.hidden = !row.textContent.toLowerCase().includes(word));
  for (const text of texts) text.classList.toggle("hit", word && text.textContent.toLowerCase().includes(word));
  count.textContent = word ? `${{shown}} of ${{rows.length}} rows` : "";
}});
const svg = document.querySelector("#picture svg");
if (svg) {{
  const box = svg.viewBox.baseVal, whole = [box.x, box.y, box.width, box.height];
  const set = (x, y, width, height) => Object.assign(box, {{x, y, width, height}});
  const scale = () => Math.max(box.width / svg.clientWidth, box.height / svg.clientHeight);
  svg.addEventListener("wheel", event => {{
    event.preventDefault();
    const by = event.deltaY > 0 ? 1.2 : 1 / 1.2, place = svg.getBoundingClientRect();
    const x = (event.clientX - place.left) / place.width, y = (event.clientY - place.top) / place.height;
    set(box.x + x * box.width * (1 - by), box.y + y * box.height * (1 - by), box.width * by, box.height * by);
  }}, {{passive: false}});
  svg.addEventListener("pointerdown", event => svg.setPointerCapture(event.pointerId));
  svg.addEventListener("pointermove", event => {{
    if (event.buttons) set(box.x - event.movementX * scale(), box.y - event.movementY * scale(), box.width, box.height);
  }});
  svg.addEventListener("dblclick", () => set(...whole));
}}
</script></body></html>
"""


def html_report(
    title: str, facts: Mapping[str, object], picture: str, frame: pd.DataFrame | None, certificate: str
) -> str:
    """One page that a browser shows without network; the same answer gives the same page.

    ``title``, ``facts``, ``certificate``: what stands above, beside and below.
    ``picture``: an SVG file; empty for a page without picture.
    ``frame``: the table of the answer; None for a page without one.
    """
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(_said(value))}</td></tr>" for name, value in facts.items())
    return _PAGE.format(
        title=escape(title),
        facts=f"<table>{rows}</table>",
        picture=re.sub(r"<metadata>.*?</metadata>", "", picture[picture.find("<svg") :], flags=re.DOTALL),
        table="" if frame is None else _table(frame),
        certificate=escape(certificate),
    )


def _said(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(frame: pd.DataFrame) -> str:
    if frame.index.name is not None:
        frame = frame.reset_index()
    more = f"<p>The first {MOST_ROWS} of {len(frame)} rows.</p>" if len(frame) > MOST_ROWS else ""
    return more + frame.head(MOST_ROWS).to_html(index=False, border=0, table_id="table", na_rep="")


def html_table(caption: str, facts: Mapping[str, Any]) -> str:
    """A table of two columns for a notebook."""
    left = "style='text-align:left'"
    rows = "".join(
        f"<tr><th {left}>{escape(str(key))}</th><td {left}>{escape(_text(value))}</td></tr>"
        for key, value in facts.items()
    )
    return f"<table><caption>{escape(caption)}</caption>{rows}</table>"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
