"""The report of the reproduction: theirs, ours, verdict, reason, sweep; as Markdown, HTML, CSV and SVG."""

from __future__ import annotations

import html
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowlex.instances.storage import write_atomically
from flowlex.simulation.experiments.base import PROVEN, Curves, Experiment, Statement, Table, Verdict
from flowlex.simulation.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Measured", "Row", "figure_svg", "rows_of", "variants", "write_report"]


@dataclass(frozen=True)
class Measured:
    """Numbers of one experiment with one seed; ``given`` are the open parameters that differ from the default.

    ``processor_s`` are the seconds of a processor that measuring took; None where nobody wrote them down.
    """

    experiment: str
    seed: int
    given: Mapping[str, Any]
    numbers: Mapping[str, float]
    processor_s: float | None = None


@dataclass(frozen=True)
class Row:
    """One statement: what is printed, what we measured, what became of it; ``ours`` is None when nothing was."""

    experiment: Experiment
    statement: Statement
    ours: Estimate | None

    @property
    def verdict(self) -> str:
        """By the rule that was fixed before."""
        if self.statement.rule is None:
            return "shown"
        return "not measured" if self.ours is None else str(self.statement.rule.judge(self.ours))


def variants(experiment: Experiment) -> list[dict[str, Any]]:
    """The default, then each open parameter at each of its other values, then what is swept together."""
    single = ({name: value} for name, values in experiment.open.items() for value in values[1:])
    return [{}, *single, *map(dict, experiment.also)]


def _estimate(found: Iterable[Measured], figure: str, given: Mapping[str, Any]) -> Estimate | None:
    values = [one.numbers[figure] for one in found if one.given == given and one.numbers.get(figure) is not None]
    return Estimate.of(values) if values else None


def rows_of(experiment: Experiment, found: Sequence[Measured]) -> list[Row]:
    """A row per statement, at the defaults."""
    return [Row(experiment, each, _estimate(found, each.figure, {})) for each in experiment.statements]


def _sweep(experiment: Experiment, found: Sequence[Measured]) -> list[list[str]]:
    """A line per variant that was measured: its name, and each statement's figure."""
    lines = []
    for given in variants(experiment):
        ours = [_estimate(found, each.figure, given) for each in experiment.statements]
        if any(ours):
            name = ", ".join(f"{key} = {value}" for key, value in given.items()) or _default(experiment)
            lines.append([name, *("-" if one is None else str(one) for one in ours)])
    return lines


def _side_by_side(table: Table, found: Sequence[Measured]) -> list[list[str]]:
    """A line per policy: its numbers at the defaults, and what is printed in brackets."""

    def cell(name: str) -> str:
        one, theirs = _estimate(found, name, {}), table.theirs.get(name)
        return ("-" if one is None else str(one)) + (f" ({theirs})" if theirs else "")

    return [[label, *(cell(column.format(row)) for column in table.columns)] for row, label in table.rows.items()]


def _default(experiment: Experiment) -> str:
    inner = ", ".join(f"{name} = {values[0]}" for name, values in experiment.open.items())
    return f"default ({inner})" if inner else "default"


def figure_svg(experiment: Experiment, found: Sequence[Measured]) -> str:
    """One panel per statement (a dot with its interval per variant; shaded: reproduced), then the curves.

    Empty when nothing was measured at the defaults and there are no curves.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "flowlex", "svg.fonttype": "none"}  # same numbers, same bytes; text as text
    import matplotlib.pyplot as plt

    shown = [each for each in experiment.statements if _estimate(found, each.figure, {}) is not None]
    chosen = [given for given in variants(experiment) if any(one.given == given for one in found)]
    names = [", ".join(f"{k}={v}" for k, v in given.items()) or "default" for given in chosen]
    heights = [0.6 + 0.28 * len(chosen)] * len(shown) + [3.2] * len(experiment.curves)
    if not heights:
        return ""
    figure, axes = plt.subplots(
        len(heights), 1, figsize=(8, sum(heights)), height_ratios=heights, layout="constrained", squeeze=False
    )
    for ax, each in zip(axes[:, 0], shown, strict=False):
        ax.set_yticks(range(len(chosen)), names, fontsize=6)
        _dots(ax, each, [_estimate(found, each.figure, given) for given in chosen])
    for ax, curves in zip(axes[len(shown) :, 0], experiment.curves, strict=True):
        _lines(ax, curves, [one.numbers for one in found if not one.given])
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _dots(ax: Axes, each: Statement, ours: Sequence[Estimate | None]) -> None:
    for k, one in enumerate(ours):
        if one is not None:
            half = one.half if one.runs > 1 else 0.0
            ax.errorbar(one.mean, k, xerr=half, fmt="o", color="C7" if k else "C0", capsize=2)
    if each.rule is not None and each.rule.size is not None:
        low, high = (min(max(end, -1e300), 1e300) for end in each.rule.size)
        left, right = ax.get_xlim()
        if low < right and high > left:
            ax.axvspan(max(low, left), min(high, right), color="C2", alpha=0.15)
        ax.set_xlim(left, right)
    ax.invert_yaxis()
    unit = f" ({each.unit})" if each.unit else ""
    ax.set_title(f"{each.says}{unit}; theirs: {each.theirs}", fontsize=7, loc="left")
    ax.tick_params(axis="x", labelsize=6)


def _lines(ax: Axes, curves: Curves, runs: Sequence[Mapping[str, float]]) -> None:
    """Each line's mean over the seeds that have the point, and its interval."""
    for prefix, label in curves.lines.items():
        points = [curves.points(prefix, numbers) for numbers in runs]
        xs = sorted({x for one in points for x in one})
        ours = [Estimate.of([one[x] for one in points if x in one]) for x in xs]
        means, halves = [one.mean for one in ours], [one.half if one.runs > 1 else 0.0 for one in ours]
        (line,) = ax.plot(xs, means, marker="." if len(xs) < 20 else "", label=label)
        low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
        ax.fill_between(xs, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    ax.set_xlabel(curves.x, fontsize=7)
    ax.set_ylabel(curves.y, fontsize=7)
    ax.set_title(curves.title, fontsize=7, loc="left")
    ax.tick_params(labelsize=6)
    ax.legend(fontsize=6)


def write_report(
    folder: Path,
    results: Mapping[Experiment, Sequence[Measured]],
    *,
    quick: bool,
    effort: Mapping[str, Any] | None = None,
) -> dict[str, int]:
    """Write report.md, report.html, report.csv (a row per statement), measured.csv (a row per seed), a SVG each.

    Parameters
    ----------
    folder
        Where to; it exists.
    results
        What was measured, by experiment.
    quick
        Whether at small sizes.
    effort
        What the last command took: ``runs``, ``wall_s``, ``processes``, ``cores``; None where nobody wrote it down.

    Returns
    -------
    dict
        How many statements have which verdict.
    """
    rows = {experiment: rows_of(experiment, found) for experiment, found in results.items()}
    counts = Counter(row.verdict for mine in rows.values() for row in mine)
    intro = [*_intro(counts, quick), _took(results, effort)]
    markdown = ["# What the papers state, measured again", *intro]
    page = [f"<h1>{_html(markdown[0][2:])}</h1>", *(f"<p>{_html(text)}</p>" for text in intro)]
    for experiment, mine in rows.items():
        found, svg = results[experiment], figure_svg(experiment, results[experiment])
        if svg:
            write_atomically(folder / f"{experiment.name}.svg", svg.encode())
        title = f"{experiment.paper}: {experiment.title}"
        first, *more = _tables(experiment, mine, found)
        markdown += [f"## {title}", _markdown(*first[1:])]
        markdown += [f"![{experiment.name}]({experiment.name}.svg)"] if svg else []
        page += [f"<h2>{_html(title)}</h2>", _table(*first[1:]), svg]
        for caption, head, lines in more:
            markdown += [f"{caption}:", _markdown(head, lines)]
            page += [f"<p>{_html(caption)}:</p>", _table(head, lines)]
    took = ("experiment", "runs", "processor (s)", "longest (s)"), [_line(each, results[each]) for each in results]
    markdown += ["## What measuring took", _markdown(*took)]
    page += ["<h2>What measuring took</h2>", _table(*took)]
    _write_csv(folder, rows, results)
    write_atomically(folder / "report.md", ("\n\n".join(markdown) + "\n").encode())
    write_atomically(folder / "report.html", (_PAGE.format(body="\n".join(page))).encode())
    return dict(counts)


def _intro(counts: Counter[str], quick: bool) -> list[str]:
    """What the verdicts say and how they were found."""
    texts = [
        f"{sum(counts.values())} statements: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common()),
        "Ours: mean and 95 % confidence interval over seeds. Each verdict follows a rule that stands with its "
        "experiment; some rules were stated more precisely after a first look, no parameter was set to meet a figure. "
        f"*{Verdict.REPRODUCED}*: direction and size hold; *{Verdict.DIRECTION}*: the whole interval lies on their "
        f"side, the mean not near theirs; *{Verdict.NOT}* otherwise. *Shown*: nothing is printed to compare with.",
        "n: seeds that were measured; `flowlex reproduce` takes ten of most experiments, and all sweeps. Of the optima "
        f"and rates in these runs every {PROVEN}th is certified: a certificate costs more than it takes to find them.",
    ]
    if quick:
        texts.append("**Quick report**: few seeds, small sizes; it shows that everything runs, not what holds.")
    return texts


def _tables(
    experiment: Experiment, rows: Sequence[Row], found: Sequence[Measured]
) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    """Caption, head and lines: the statements (without a caption), policies side by side, the sweep if there is one."""
    head = ("statement", "theirs", "ours", "verdict", "why they may differ")
    tables: list[tuple[str, Sequence[str], list[list[str]]]] = [("", head, [_cells(row) for row in rows])]
    tables += [(each.title, ("", *each.columns.values()), _side_by_side(each, found)) for each in experiment.tables]
    swept = _sweep(experiment, found)
    if len(swept) > 1:
        names = ("parameters", *(each.figure for each in experiment.statements))
        tables.append(("Sweep over what the paper leaves open", names, swept))
    return tables


def _took(results: Mapping[Experiment, Sequence[Measured]], effort: Mapping[str, Any] | None) -> str:
    """What measuring took, in all and by the last command."""
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
    return [experiment.name, str(len(found)), *([f"{sum(known):.1f}", f"{max(known):.1f}"] if known else ["-", "-"])]


def _cells(row: Row) -> list[str]:
    unit = f" {row.statement.unit}" if row.statement.unit else ""
    ours = "-" if row.ours is None else f"{row.ours}{unit} (n = {row.ours.runs})"
    return [row.statement.says, row.statement.theirs, ours, row.verdict, row.statement.reason]


def _write_csv(
    folder: Path, rows: Mapping[Experiment, Sequence[Row]], results: Mapping[Experiment, Sequence[Measured]]
) -> None:
    import pandas as pd

    flat = [
        {
            "paper": row.experiment.paper,
            "experiment": row.experiment.name,
            "figure": row.statement.figure,
            "statement": row.statement.says,
            "theirs": row.statement.theirs,
            "ours": None if row.ours is None else row.ours.mean,
            "half_width": None if row.ours is None or row.ours.runs < 2 else row.ours.half,
            "seeds": 0 if row.ours is None else row.ours.runs,
            "unit": row.statement.unit,
            "verdict": row.verdict,
            "reason": row.statement.reason,
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
</style></head><body>
{body}
</body></html>
"""
