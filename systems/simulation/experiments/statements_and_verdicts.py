"""Statements of papers, the experiments that measure them, and the rules of the verdicts.

Declarations are data: ``experiments.toml`` (measurements, sweeps and plots) and ``statements.csv`` (a row per statement
with its rule); `flowlex.systems.simulation.experiments.declarations` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Any, Literal

import numpy as np

from flowlex.systems.simulation.confidence_intervals import Estimate

#: Experiments certify every n-th optimum of a round, and rates at every n-th change: certifying costs more than
#: solving, and a simulation has thousands of both. Tests certify all of them on small runs.
PROVEN = 20

#: Source of statements that no paper makes.
OURS = "a claim of ours"

Numbers = Mapping[str, float]


class Verdict(StrEnum):
    """Verdict on a statement."""

    REPRODUCED = "reproduced"
    DIRECTION = "direction only"
    UNDECIDED = "undecided"
    NOT = "not reproduced"
    SHOWN = "shown"
    HOLDS = "holds"
    FAILS = "fails"
    UNMEASURED = "not measured"


@dataclass(frozen=True)
class Rule:
    """Rule by which our 95 % confidence interval decides whether a statement is reproduced.

    A statement has a *range* [low, high]; around a printed figure it is as wide as the paper's own precision or spread.
    The side of ``neutral`` on which the range lies is the *direction*; ``neutral`` itself is on no side.

    ====================  ==============================================================================
    reproduced            the interval is within the range; or, for a printed figure, it is wholly on its side of
                          neutral and intersects the range
    direction only        the interval is wholly on the paper's side of neutral, but not within the range
    not reproduced        it is wholly outside of the range (and not on its side), or within ``resolution`` of
                          no effect
    undecided             it contains both sides, or comes from one run that would differ with another seed
    ====================  ==============================================================================
    """

    # low, high: The range
    low: float
    high: float
    neutral: float | None = None  # where nothing is said; None for a statement without direction
    printed: bool = False  # whether the range stands around a printed figure
    # effects up to this cannot be distinguished from none with the paper's precision (of a range without ``neutral``,
    # no effect is its finite end)
    resolution: float = 0.0

    def judge(self, ours: Estimate) -> Verdict:
        """Apply the rule.

        >>> Rule(1.3, 1.4, neutral=1.0, printed=True).judge(Estimate(1.5, 0.2, 10)).value
        'reproduced'
        >>> Rule(1.3, 1.4, neutral=1.0, printed=True).judge(Estimate(1.2, 0.3, 10)).value
        'undecided'
        """
        low, high = ours.low, ours.high
        if self.low <= low and high <= self.high:
            return Verdict.REPRODUCED
        none = self.low if math.isfinite(self.low) else self.high
        none = none if self.neutral is None else self.neutral
        if max(abs(low - none), abs(high - none)) <= self.resolution:
            return Verdict.NOT
        apart = high < self.low or low > self.high
        if self.neutral is None:
            return Verdict.NOT if apart else Verdict.UNDECIDED
        above = self.low >= self.neutral
        if low > self.neutral if above else high < self.neutral:
            return Verdict.REPRODUCED if self.printed and not apart else Verdict.DIRECTION
        reversed_ = high <= self.neutral if above else low >= self.neutral
        return Verdict.NOT if reversed_ else Verdict.UNDECIDED


@dataclass(frozen=True)
class Statement:
    """One printed statement: a row of ``statements.csv``."""

    figures: tuple[str, ...]  # names of the measured numbers; several for a trend over them
    # over, minus: divisor or subtrahend of the first figure
    over: str
    minus: str
    # says, theirs: the statement in our words, and the printed value
    says: str
    theirs: str
    unit: str  # unit of the figure; empty for ratios
    values: tuple[float, ...]  # the printed figures; several for a trend
    rule: Rule | None  # None: shown next to the printed value without a verdict
    tolerance: str  # reason for the width of the range
    source: str  # section, table or figure of the paper
    quote: str  # at most ten words of the paper, in its language; empty where no sentence of it is at hand
    # why a statement is not reproduced: ``left out`` (the paper omits what decides it), ``contradicts itself``, or
    # ``believed wrong``
    cause: str
    because: str  # the argument, and our assumptions

    @property
    def trend(self) -> bool:
        """Whether it is about the order of several figures."""
        return len(self.figures) > 1

    @property
    def name(self) -> str:
        """The name of the measured quantity."""
        first = f"{self.figures[0]}..{self.figures[-1]}" if self.trend else self.figures[0]
        return first + (f" / {self.over}" if self.over else "") + (f" - {self.minus}" if self.minus else "")

    def of(self, numbers: Numbers) -> float | None:
        """Return the figure in one run, or for a trend the correlation of ours with theirs; None if incomplete."""
        needed = [*self.figures, *(name for name in (self.over, self.minus) if name)]
        if any(numbers.get(name) is None for name in needed):
            return None
        ours = [numbers[name] for name in self.figures]
        if self.trend:
            return float(np.corrcoef(ours, self.values)[0, 1]) if np.ptp(ours) else 0.0
        if self.over:
            return ours[0] / numbers[self.over] if numbers[self.over] else None
        return ours[0] - (numbers[self.minus] if self.minus else 0.0)

    def estimate(self, runs: Sequence[Numbers], *, exact: bool = False) -> Estimate | None:
        """Estimate the figure over seeds; ``exact``: a single run has no spread."""
        found = [value for value in map(self.of, runs) if value is not None and math.isfinite(value)]
        if not found:
            return None
        return Estimate(found[0], 0.0, 1) if exact and len(found) == 1 else Estimate.of(found)


@dataclass(frozen=True)
class Picture:
    """A plot like a figure of a paper, of our numbers with theirs marked."""

    # name, title, x, y: file name, title of the figure, labels of its axes
    name: str
    title: str
    x: str
    y: str
    # ``lines``: numbers ``NAME@X`` over X, a line per name; ``cdf``: the same with X the share and the number on the
    # horizontal axis; ``bars``: a bar per line within each group; ``effects``: of a joint search, the factors by which
    # levers change the numbers
    kind: Literal["lines", "cdf", "bars", "effects"]
    # name (or pattern with ``{}`` for the group) of the numbers, and their label
    lines: Mapping[str, str]
    groups: Mapping[str, str] = field(default_factory=dict)  # for bars: the text for ``{}``, and its label
    theirs: Numbers = field(default_factory=dict)  # printed figures by name of the number (``NAME@X`` for lines)
    front: bool = False  # whether it is on the report's first page

    def points(self, prefix: str, numbers: Numbers) -> dict[float, float]:
        """X to y of one line among the numbers of one run."""
        start = f"{prefix}@"
        return {float(name.removeprefix(start)): value for name, value in numbers.items() if name.startswith(start)}


@dataclass(frozen=True)
class Table:
    """Measured numbers of several policies in comparison, with default parameters."""

    title: str  # of the table
    rows: Mapping[str, str]  # part of the numbers' names, and its label; one row each
    columns: Mapping[str, str]  # pattern of the numbers' names with ``{}`` for the row's part, and the heading


@dataclass(frozen=True, eq=False)  # compared by identity: it is a key of results
class Experiment:
    """One experiment of a paper."""

    name: str  # unique; also the name of its files
    paper: str  # short name of the paper: the module with its measuring functions
    title: str  # what is measured
    # ``measure(seed, quick, **open)``: numbers by name for one seed; deterministic in its arguments (except for
    # measured seconds). A module-level function, so that other processes can call it.
    measure: Callable[..., Numbers]
    statements: tuple[Statement, ...] = ()  # the paper's statements about it
    # parameters that the paper leaves open, with the values of a one-at-a-time sweep; the first is the default
    open: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    # grids of which all combinations are swept instead of the defaults: a search, without verdicts
    joint: tuple[Mapping[str, Sequence[Any]], ...] = ()
    also: tuple[Mapping[str, Any], ...] = ()  # further points of the sweep, each with several parameters changed
    # seeds, quick_seeds, sweep_seeds, first_seed: number of seeds of the full report, of the quick report and of the
    # sweep (no sweep if quick), and the first seed
    seeds: int = 10
    quick_seeds: int = 3
    sweep_seeds: int = 3
    first_seed: int = 0
    exact: bool = False  # the result does not depend on the seed
    alone: bool = False  # whether it must run alone, because it measures seconds of this machine
    # approximate processor seconds of one run at full size; long runs start first, so that parallel processes finish
    # at about the same time
    takes_s: float = 5.0
    # pictures, tables: shown in addition to the statements
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    # keyword arguments that the caller of ``measure`` supplies for each seed: ``service``, a running node information
    # service (see `flowlex.systems.simulation.experiments.load_partition.Information`); ``trace`` and ``openb``, paths
    # of public data. The experiment is skipped if one is missing.
    needs: tuple[str, ...] = ()

    def variants(self) -> list[dict[str, Any]]:
        """Return the changed open parameters of each variant: first none, then every point of the sweep."""
        if self.joint:
            return [dict(zip(grid, values, strict=True)) for grid in self.joint for values in product(*grid.values())]
        single = ({name: value} for name, values in self.open.items() for value in values[1:])
        return [{}, *single, *map(dict, self.also)]
