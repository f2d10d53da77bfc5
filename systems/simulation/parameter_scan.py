"""Results of a joint parameter search: effects of parameters, and settings closest to the printed figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowlex.systems.simulation.experiments.statements_and_verdicts import Picture, Statement

#: A table of the report: its caption (empty: none), head and lines.
Lines = tuple[str, Sequence[str], list[list[str]]]


@dataclass(frozen=True)
class Measured:
    """Numbers of one experiment with one seed; ``given`` are the open parameters that differ from the default.

    ``processor_s`` is the processor time of the measurement, ``measured_on`` its day (UTC); None and empty if not
    recorded.
    """

    experiment: str
    seed: int
    given: Mapping[str, Any]
    numbers: Mapping[str, float]
    processor_s: float | None = None
    measured_on: str = ""


def effects(
    picture: Picture, joint: Sequence[Mapping[str, Sequence[Any]]], found: Sequence[Measured]
) -> tuple[Picture, dict[str, float], Lines]:
    """Return the factor by which each parameter changes the figures of a plot, as numbers and as a table.

    Values of a parameter are compared with the first of its grid. A factor is the geometric mean over all pairs of
    points with one seed that differ only in this parameter, so that effects of other parameters are excluded.
    """
    points = {(one.seed, frozenset(one.given.items())): one.numbers for one in found}
    steps = dict.fromkeys((n, v[0], level) for grid in joint for n, v in grid.items() for level in v[1:])
    numbers, lines = dict[str, float](), list[list[str]]()
    for lever, base, level in steps:
        before = {
            key: (key[0], key[1] - {(lever, level)} | {(lever, base)}) for key in points if (lever, level) in key[1]
        }
        pairs = [(points[key], points[other]) for key, other in before.items() if other in points]
        name = f"{lever}: {base} to {level}"
        factors = {figure: _factor(figure, pairs) for figure in picture.lines}
        numbers |= {f"{name} {figure}": factor for figure, factor in factors.items() if factor is not None}
        shown = ("-" if factor is None else f"{factor:.3g}" for factor in factors.values())
        lines.append([name, str(len(pairs)), *shown])
    names = {line[0]: line[0] for line in lines}
    patterns = {f"{{}} {figure}": label for figure, label in picture.lines.items()}
    drawn = replace(picture, groups=names, lines=patterns)
    return drawn, numbers, (picture.title, ("lever", "pairs", *picture.lines.values()), lines)


def _factor(figure: str, pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> float | None:
    ratios = [a[figure] / b[figure] for a, b in pairs if a.get(figure, 0.0) > 0 and b.get(figure, 0.0) > 0]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def nearest_points(statements: Sequence[Statement], found: Sequence[Measured]) -> Lines:
    """Return, for each printed figure, the setting with the nearest value."""
    lines = []
    for each in statements:
        points = [(x, one.given) for one in found if (x := each.of(one.numbers)) is not None]
        if points and each.values:
            best, where = min(points, key=lambda point: abs(point[0] - each.values[0]))
            low, high = min(x for x, _ in points), max(x for x, _ in points)
            lines.append([each.says, each.theirs, f"{low:.3g} to {high:.3g}", f"{best:.3g}", _setting(where)])
    return "Where each printed figure is nearest", ("figure", "theirs", "range", "nearest", "where"), lines


def closest_settings(statements: Sequence[Statement], found: Sequence[Measured]) -> Lines:
    """The five settings that come closest to all printed figures at once."""
    shown = [each for each in statements if each.values]
    distances = sorted(((_distance(shown, one.numbers), k) for k, one in enumerate(found)))[:5]
    lines = [[_setting(found[k].given), str(found[k].seed), f"{distance:.3f}"] for distance, k in distances]
    title = "The joint settings that come closest to all printed figures at once (mean of |log(ours / theirs)|)"
    return title, ("setting", "seed", "distance"), lines


def _setting(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{lever} = {level}" for lever, level in given.items())


def _distance(shown: Sequence[Statement], numbers: Mapping[str, float]) -> float:
    """Return the mean of |log(ours / theirs)|."""
    ratios = [x / each.values[0] for each in shown if (x := each.of(numbers)) is not None and x > 0]
    return sum(abs(math.log(ratio)) for ratio in ratios) / len(ratios) if ratios else math.inf
