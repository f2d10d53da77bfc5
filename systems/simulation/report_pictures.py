"""Plots of the report: one per figure of a paper, of the same kind, with the printed numbers marked."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.plot_style import BLACK, colours
from flowlex.systems.simulation.confidence_intervals import Estimate
from flowlex.systems.simulation.experiments.statements_and_verdicts import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Runs = Sequence[Mapping[str, float]]


def picture_svg(picture: Picture, runs: Runs) -> str:
    """Plot ours (mean, 95 % interval) and mark theirs; return an empty text if nothing was measured."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "flowlex", "svg.fonttype": "none"}  # same numbers, same bytes; text as text
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
    ax.tick_params(labelsize=7)
    drawn = _lines(ax, picture, runs) if picture.kind in ("lines", "cdf") else _bars(ax, picture, runs)
    if drawn and picture.theirs:
        ax.plot([], [], "D", color=BLACK, markersize=4, linestyle="", label="printed")
    ax.set_xlabel(picture.x, fontsize=8)
    ax.set_ylabel(picture.y, fontsize=8)
    ax.set_title(picture.title, fontsize=8, loc="left", wrap=True)
    if drawn:
        ax.legend(fontsize=7) if len(picture.groups) <= 9 else ax.legend(fontsize=6, ncols=3, loc="upper left")
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :] if drawn else ""


def _estimate(name: str, runs: Runs) -> Estimate | None:
    found = [numbers[name] for numbers in runs if name in numbers]
    return Estimate.of(found) if found else None


def _bars(ax: Axes, picture: Picture, runs: Runs) -> bool:
    groups = list(picture.groups.items()) or [("", "")]
    width, drawn = 0.8 / len(picture.lines), False
    base = 1.0 if picture.kind == "effects" else 0.0  # a factor of 1 is no effect
    ax.set_yscale("log" if base else "linear")
    for k, ((pattern, label), colour) in enumerate(
        zip(picture.lines.items(), colours(len(picture.lines)), strict=True)
    ):
        names = [pattern.format(part) for part, _ in groups]
        found = [(at, one) for at, name in enumerate(names) if (one := _estimate(name, runs)) is not None]
        places = [at + (k - (len(picture.lines) - 1) / 2) * width for at, _ in found]
        halves = [one.half if one.runs > 1 else 0.0 for _, one in found]
        means = np.array([one.mean for _, one in found])
        look: dict[str, Any] = {"yerr": halves, "color": colour, "label": label, "capsize": 2}
        ax.bar(places, means - base, width, bottom=base, **look)
        for (at, _), place in zip(found, places, strict=True):
            if names[at] in picture.theirs:
                ax.plot(place, picture.theirs[names[at]], "D", color=BLACK, markersize=4)
        drawn = drawn or bool(found)
    ax.set_xticks(range(len(groups)), [label for _, label in groups])
    if len(groups) > 9:
        ax.tick_params(axis="x", rotation=60, labelsize=6)
        ax.margins(y=0.4)
    return drawn


def _lines(ax: Axes, picture: Picture, runs: Runs) -> bool:
    """Plot each line's mean over the seeds that have the point, and its interval; horizontally for a distribution."""
    drawn = False
    for (name, label), colour in zip(picture.lines.items(), colours(len(picture.lines)), strict=True):
        points = [picture.points(name, numbers) for numbers in runs]
        xs = sorted({x for one in points for x in one})
        ours = [Estimate.of([one[x] for one in points if x in one]) for x in xs]
        means, halves = [one.mean for one in ours], [one.half if one.runs > 1 else 0.0 for one in ours]
        low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
        marker = "." if len(xs) < 20 else ""
        theirs = [(x, picture.theirs[key]) for x in xs if (key := f"{name}@{x:g}") in picture.theirs]
        theirs += [(x, picture.theirs[key]) for x in xs if (key := f"{name}@{x}") in picture.theirs]
        if picture.kind == "cdf":
            ax.plot(means, xs, marker=marker, color=colour, label=label)
            ax.fill_betweenx(xs, low, high, color=colour, alpha=0.15, linewidth=0)
            theirs = [(y, x) for x, y in theirs]
        else:
            ax.plot(xs, means, marker=marker, color=colour, label=label)
            ax.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
        for x, y in dict.fromkeys(theirs):
            ax.plot(x, y, "D", color=BLACK, markerfacecolor=colour, markersize=5)
        drawn = drawn or bool(xs)
    return drawn
