"""The report of the reproduction: plots, verdicts by paper and all statements, as Markdown, HTML, CSV and SVG."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowlex.instances.file_storage import write_atomically
from flowlex.systems.simulation.confidence_intervals import Estimate
from flowlex.systems.simulation.experiments.statements_and_verdicts import (
    OURS,
    PROVEN,
    Experiment,
    Statement,
    Table,
    Verdict,
)
from flowlex.systems.simulation.parameter_scan import Lines, Measured, closest_settings, effects, nearest_points
from flowlex.systems.simulation.report_pictures import picture_svg

__all__ = ["Measured", "Row", "rows_of", "write_report"]


@dataclass(frozen=True)
class Row:
    """One statement: the printed value, our measurement and the verdict."""

    experiment: Experiment
    statement: Statement
    ours: Estimate | None  # our estimate at the defaults; None if nothing was measured
    swept: tuple[float, float] | None = None  # smallest and largest mean over the sweep; None without a sweep

    @property
    def verdict(self) -> Verdict:
        """The verdict by the declared rule."""
        if self.statement.rule is None or self.experiment.joint:
            return Verdict.SHOWN
        if self.ours is None:
            return Verdict.UNMEASURED
        found = self.statement.rule.judge(self.ours)
        if self.statement.source != OURS:
            return found
        return {Verdict.REPRODUCED: Verdict.HOLDS, Verdict.UNDECIDED: found}.get(found, Verdict.FAILS)

    @property
    def reason(self) -> str:
        """Why ours may differ; for a statement that is not reproduced, preceded by the kind of reason."""
        cause = f"{_CAUSES[self.statement.cause]}: " if self.verdict is Verdict.NOT and self.statement.cause else ""
        return cause + self.statement.because


_CAUSES = {
    "left out": "the paper leaves out what decides it",
    "contradicts itself": "the paper contradicts itself",
    "believed wrong": "we believe it wrong",
}


def _numbers(found: Iterable[Measured], given: Mapping[str, Any]) -> list[Mapping[str, float]]:
    return [one.numbers for one in found if one.given == given]


def rows_of(experiment: Experiment, found: Sequence[Measured]) -> list[Row]:
    """Return a row per statement, at the defaults, with its range over the sweep."""
    rows = []
    for each in experiment.statements:
        means = [each.estimate(_numbers(found, given)) for given in experiment.variants()]
        known = [one.mean for one in means if one is not None]
        swept = (min(known), max(known)) if len(known) > 1 else None
        rows.append(Row(experiment, each, each.estimate(_numbers(found, {}), exact=experiment.exact), swept))
    return rows


def _side_by_side(table: Table, runs: Sequence[Mapping[str, float]]) -> Lines:
    """Return a line per policy with its numbers at the defaults."""

    def cell(name: str) -> str:
        values = [numbers[name] for numbers in runs if name in numbers]
        return str(Estimate.of(values)) if values else "-"

    lines = [[label, *(cell(column.format(row)) for column in table.columns)] for row, label in table.rows.items()]
    return table.title, ("", *table.columns.values()), lines


def write_report(
    folder: Path,
    results: Mapping[Experiment, Sequence[Measured]],
    *,
    quick: bool,
    effort: Mapping[str, Any] | None = None,
) -> dict[str, int]:
    """Write report.md, report.html, report.csv (a row per statement), measured.csv (a row per number), the pictures.

    Parameters
    ----------
    folder
        Existing folder to write to.
    results
        Measurements by experiment.
    quick
        Whether sizes are small.
    effort
        Effort of the last command: ``runs``, ``wall_s``, ``processes``, ``cores``; None if not recorded.

    Returns
    -------
    dict
        Number of statements by verdict.
    """
    rows = {experiment: rows_of(experiment, found) for experiment, found in results.items()}
    counts = Counter(str(row.verdict) for mine in rows.values() for row in mine)
    drawn, searched = dict[str, str](), dict[str, Lines]()
    for each, found in results.items():
        for picture in each.pictures:
            runs: Sequence[Mapping[str, float]] = _numbers(found, {})
            if picture.kind == "effects":
                picture, numbers, lines = effects(picture, each.joint, found)
                runs = [numbers]
                searched[each.name] = lines
            drawn[picture.name] = picture_svg(picture, runs)
    out = _Pages({name: svg for name, svg in drawn.items() if svg})
    for name, svg in out.drawn.items():
        write_atomically(folder / f"{name}.svg", svg.encode())
    out.heading(1, "What the papers state, measured again")
    for text in [*_intro(counts, quick), _took(results, effort)]:
        out.paragraph(text)
    out.pictures(picture.name for each in rows for picture in each.pictures if picture.front)
    out.table(_verdicts(rows))
    for experiment, mine in rows.items():
        found = results[experiment]
        out.heading(2, f"{experiment.paper}: {experiment.title}")
        out.table(("", _HEAD, [_cells(row) for row in mine]))
        out.pictures(picture.name for picture in experiment.pictures)
        for table in experiment.tables:
            out.table(_side_by_side(table, _numbers(found, {})))
        if experiment.name in searched:
            out.table(searched[experiment.name])
        if experiment.joint:
            out.table(nearest_points(experiment.statements, found))
            out.table(closest_settings(experiment.statements, found))
    out.heading(2, "What measuring took")
    took = ("experiment", "runs", "processor (s)", "longest (s)", "measured on")
    out.table(("", took, [_line(each, results[each]) for each in results]))
    _write_csv(folder, rows, results)
    write_atomically(folder / "report.md", ("\n\n".join(out.markdown) + "\n").encode())
    write_atomically(folder / "report.html", (_PAGE.format(body="\n".join(out.page))).encode())
    return dict(counts)


class _Pages:
    """Builder of the report as Markdown and HTML at once; ``drawn`` are the plots by name."""

    def __init__(self, drawn: Mapping[str, str]) -> None:
        self.drawn = drawn
        self.markdown: list[str] = []
        self.page: list[str] = []

    def heading(self, level: int, text: str) -> None:
        self.markdown.append(f"{'#' * level} {text}")
        self.page.append(f"<h{level}>{_html(text)}</h{level}>")

    def paragraph(self, text: str) -> None:
        self.markdown.append(text)
        self.page.append(f"<p>{_html(text)}</p>")

    def table(self, lines: Lines) -> None:
        caption, head, body = lines
        if caption:
            self.paragraph(f"{caption}:")
        self.markdown.append(_markdown(head, body))
        self.page.append(_table(head, body))

    def pictures(self, wanted: Iterable[str]) -> None:
        """Add plots, two in a row."""
        shown = [f"![{name}]({name}.svg)" for name in wanted if name in self.drawn]
        if shown:
            pairs = [[*shown[k : k + 2], ""][:2] for k in range(0, len(shown), 2)]
            self.markdown.append(_markdown(["", ""], pairs))
            figures = "".join(self.drawn[text[2 : text.index("]")]] for text in shown)
            self.page.append(f"<div class=pictures>{figures}</div>")


def _intro(counts: Counter[str], quick: bool) -> list[str]:
    """Explain the verdicts and how they were determined."""
    texts = [
        f"{sum(counts.values())} statements: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common()),
        "Ours: mean and 95 % confidence interval over seeds (n). Each rule stands in statements.csv with its place in "
        "the paper; its tolerance is the paper's own precision. *Reproduced*: the interval lies in the range that the "
        "paper states, or holds its figure and lies wholly on its side of no effect. *Direction only*: wholly on "
        "their side, the figure is another. *Undecided*: the interval holds both sides, or comes from one run. "
        "*Not reproduced*: wholly outside; the reason says whether the paper leaves out what decides it (with the "
        "range over that), contradicts itself, or is believed wrong; so is a stated effect that is "
        "smaller than the paper's precision shows. *Shown*: nothing is printed to compare with, or a printed figure "
        "set a parameter. *Holds* and *fails* are said of claims of our own.",
        "The paper's own words are quoted where they are at hand, that is from its abstract; for other rows no "
        "sentence is, and the place says where it prints what we state in our words.",
        "A trend over several figures is one row: the correlation of ours with theirs. Of the optima and rates in "
        f"these runs every {PROVEN}th is certified.",
    ]
    if quick:
        texts.append(
            "**Quick report**: few seeds, small sizes; it shows that everything runs. One seed is too small to say "
            "anything: such rows are undecided."
        )
    return texts


def _verdicts(rows: Mapping[Experiment, Sequence[Row]]) -> Lines:
    """Count the statements of each paper by verdict."""
    count: dict[str, Counter[str]] = {}
    for experiment, mine in rows.items():
        count.setdefault(experiment.paper, Counter()).update(str(row.verdict) for row in mine)
    head = ("paper", *map(str, Verdict))
    return "Verdicts by paper", head, [[paper, *(str(n[str(v)]) for v in Verdict)] for paper, n in count.items()]


def _took(results: Mapping[Experiment, Sequence[Measured]], effort: Mapping[str, Any] | None) -> str:
    """Describe the effort of measuring, in total and of the last command."""
    runs = [one for found in results.values() for one in found]
    known = [one.processor_s for one in runs if one.processor_s is not None]
    text = f"{len(runs)} runs"
    text += f"; {len(known)} of them say what they took: {sum(known):.0f} s of a processor." if known else "."
    if effort is not None:
        by = f"{effort['processes']} processes on {effort['cores']} cores" if effort["processes"] > 1 else "one process"
        text += f" The last command made {effort['runs']} of them in {effort['wall_s'] / 60:.1f} minutes with {by}."
    return text


def _line(experiment: Experiment, found: Sequence[Measured]) -> list[str]:
    known = [one.processor_s for one in found if one.processor_s is not None]
    spent = [f"{sum(known):.1f}", f"{max(known):.1f}"] if known else ["-", "-"]
    days = sorted({one.measured_on for one in found} - {""})
    first = ["earlier"] if any(not one.measured_on for one in found) else []
    return [experiment.name, str(len(found)), *spent, " to ".join(dict.fromkeys([*first, *days[:1], *days[-1:]]))]


_HEAD = ("statement", "source", "theirs", "ours", "verdict", "over the sweep", "why they may differ")


def _cells(row: Row) -> list[str]:
    each = row.statement
    unit = f" {each.unit}" if each.unit else ""
    what = "correlation with theirs " if each.trend else ""
    ours = "-" if row.ours is None else f"{what}{row.ours}{unit} (n = {row.ours.runs})"
    swept = "-" if row.swept is None else f"{row.swept[0]:.3g} to {row.swept[1]:.3g}"
    place = each.source + (f': "{each.quote}"' if each.quote else "")
    return [each.says, place, each.theirs, ours, str(row.verdict), swept, row.reason]


def _write_csv(
    folder: Path, rows: Mapping[Experiment, Sequence[Row]], results: Mapping[Experiment, Sequence[Measured]]
) -> None:
    import pandas as pd

    flat = [
        {
            "paper": row.experiment.paper,
            "experiment": row.experiment.name,
            "figure": row.statement.name,
            "statement": row.statement.says,
            "source": row.statement.source,
            "quote": row.statement.quote,
            "theirs": row.statement.theirs,
            "ours": None if row.ours is None else row.ours.mean,
            "half_width": None if row.ours is None or row.ours.runs < 2 else row.ours.half,
            "seeds": 0 if row.ours is None else row.ours.runs,
            "unit": row.statement.unit,
            "verdict": str(row.verdict),
            "least": None if row.swept is None else row.swept[0],
            "largest": None if row.swept is None else row.swept[1],
            "tolerance": row.statement.tolerance,
            "cause": row.statement.cause,
            "reason": row.statement.because,
        }
        for mine in rows.values()
        for row in mine
    ]
    long = [
        {"experiment": one.experiment, "seed": one.seed, "given": str(dict(one.given)), "figure": name, "value": value}
        for found in results.values()
        for one in found
        for name, value in one.numbers.items()
    ]
    for name, data in (("report", flat), ("measured", long)):
        text = pd.DataFrame(data).to_csv(index=False, lineterminator="\n")
        write_atomically(folder / f"{name}.csv", text.encode())


def _markdown(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{_html(cell)}</th>" for cell in head)
    rest = "".join("<tr>" + "".join(f"<td>{_html(cell)}</td>" for cell in line) + "</tr>\n" for line in body)
    return f"<table><tr>{top}</tr>\n{rest}</table>"


def _html(text: str) -> str:
    return html.escape(text.replace("*", ""))


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>flowlex: reproduction</title>
<style>
body {{ font: 15px/1.45 sans-serif; max-width: 76em; margin: 2em auto; padding: 0 1em; }}
table {{ border-collapse: collapse; margin: 1em 0; font-size: 13px; display: block; overflow-x: auto; }}
th, td {{ border: 1px solid #bbb; padding: 0.25em 0.5em; text-align: left; vertical-align: top; }}
svg {{ max-width: 100%; height: auto; }}
.pictures svg {{ width: 48%; }}
</style></head><body>
{body}
</body></html>
"""
