"""What a paper states, how to compute it here, and the rule of the verdict, fixed before anything is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from flowlex.simulation.statistics import Estimate

__all__ = ["PROVEN", "Curves", "Experiment", "Rule", "Statement", "Table", "Verdict"]

#: Experiments certify every so manieth optimum of a round, and rates at every so manieth change: each costs more than
#: finding it, and a simulation makes thousands. Tests certify all of them on small runs.
PROVEN = 20


class Verdict(StrEnum):
    """What became of a statement."""

    REPRODUCED = "reproduced"
    DIRECTION = "direction only"
    NOT = "not reproduced"


@dataclass(frozen=True)
class Rule:
    """When a statement counts as reproduced.

    Attributes
    ----------
    direction
        (low, high): the whole confidence interval must lie in it for the direction to hold. A single run has no
        interval; its value must lie in it.
    size
        (low, high): the mean must lie in it too to be *reproduced*; None for a statement of direction alone.
    """

    direction: tuple[float, float]
    size: tuple[float, float] | None = None

    @classmethod
    def near(cls, theirs: float, neutral: float, tolerance: float = 0.5) -> Rule:
        """On the same side of ``neutral`` as theirs; within a fraction of their distance from it.

        >>> Rule.near(1.5, neutral=1.0)
        Rule(direction=(1.0, inf), size=(1.25, 1.75))
        """
        reach = abs(theirs - neutral) * tolerance
        side = (neutral, math.inf) if theirs > neutral else (-math.inf, neutral)
        return cls(side, (theirs - reach, theirs + reach))

    def judge(self, ours: Estimate) -> Verdict:
        """Apply the rule."""
        low, high = self.direction
        half = ours.half if math.isfinite(ours.half) else 0.0
        if not (low <= ours.mean - half and ours.mean + half <= high):
            return Verdict.NOT
        if self.size is None or self.size[0] <= ours.mean <= self.size[1]:
            return Verdict.REPRODUCED
        anything = (low, high) == (-math.inf, math.inf)  # a size without a direction
        return Verdict.NOT if anything else Verdict.DIRECTION


@dataclass(frozen=True)
class Statement:
    """One printed statement.

    Attributes
    ----------
    figure
        The measured number it is about.
    says
        The statement in our words.
    theirs
        What is printed, as text; never an outcome of ours.
    unit
        Of the figure; empty for ratios.
    rule
        Of the verdict; None: shown beside theirs without a verdict (nothing is printed to compare with).
    reason
        Why ours differs or may differ; what had to be assumed.
    """

    figure: str
    says: str
    theirs: str
    unit: str
    rule: Rule | None
    reason: str


@dataclass(frozen=True)
class Curves:
    """A picture of measured numbers over something.

    Attributes
    ----------
    title, x, y
        Of the picture and its axes.
    lines
        Prefix of the numbers' names, and how the picture calls the line: ``wait@3`` is the line ``wait`` at x = 3.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, str]

    def points(self, prefix: str, numbers: Mapping[str, float]) -> dict[float, float]:
        """X to y of one line among the numbers of one run."""
        start = f"{prefix}@"
        return {float(name.removeprefix(start)): value for name, value in numbers.items() if name.startswith(start)}


@dataclass(frozen=True)
class Table:
    """Measured numbers of several policies side by side, at the defaults.

    Attributes
    ----------
    title
        Of the table.
    rows
        Part of the numbers' names, and what the table calls it: a line each.
    columns
        Pattern of the numbers' names with ``{}`` for the row's part, and the heading.
    theirs
        What is printed, by name of the number; shown in brackets.
    """

    title: str
    rows: Mapping[str, str]
    columns: Mapping[str, str]
    theirs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)  # compared by identity: it is a key of results
class Experiment:
    """One experiment of a paper.

    Attributes
    ----------
    name
        Unique; also the name of its files.
    paper
        Short name of the paper: the module's name.
    title
        What is measured.
    statements
        What the paper says about it.
    measure
        ``measure(seed, quick, **open)``: numbers by name for one seed; the same arguments, the same numbers (but for
        measured seconds). A module-level function, so that other processes can call it.
    open
        Parameters that the paper leaves open: the values of a sweep, one parameter at a time, the first the default.
    also
        Further points of the sweep, each several parameters at once: what matters only together.
    seeds, quick_seeds
        How many seeds the full and the quick report take; a sweep takes ``sweep_seeds`` (none when quick).
    alone
        Runs on its own, because it measures seconds of this machine.
    takes_s
        About how many seconds of a processor one run takes at full size; runs that take long begin first, so that
        several processes end together.
    curves
        Pictures beside the statements' own.
    tables
        Numbers by policy beside the statements.
    needs
        What whoever measures must hand in as a keyword, anew for each seed: ``service``, a running node information
        service (see `flowlex.simulation.experiments.load_partition.Information`); ``trace`` and ``openb``, paths of
        public data. Where something is missing the experiment is left out.
    """

    name: str
    paper: str
    title: str
    statements: tuple[Statement, ...]
    measure: Callable[..., Mapping[str, float]]
    open: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    also: tuple[Mapping[str, Any], ...] = ()
    seeds: int = 10
    quick_seeds: int = 3
    sweep_seeds: int = 3
    alone: bool = False
    takes_s: float = 5.0
    curves: tuple[Curves, ...] = ()
    tables: tuple[Table, ...] = ()
    needs: tuple[str, ...] = ()
