r"""The integer program of flow scheduling with amounts: classes of tasks on places, stage by stage.

A place is a machine, or (for the relaxation) a kind of machines that nothing tells apart, which then counts as often as
there are machines. Of a capacity C of a resource, tasks that ask for q take ``floor(q / d)`` of ``floor(C / d)`` *slots
of size d*, whatever d is: a sum of rounded parts is at most the rounded sum. With the unit of the resource as d that is
the capacity itself; with the demand of a class as d it says how many such tasks fit, which the relaxation of the
capacity does not know. Source: rounding of Chvatal and Gomory; the choice of sizes is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers
from flowlex.formulations.expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.models.flow.capacities.classes import Classes, Places

__all__ = ["Costs", "Program", "Size"]


class Size(NamedTuple):
    """Slots of ``size`` units of a resource on a place."""

    place: int
    resource: int
    size: int


@dataclass(frozen=True, eq=False)
class Costs:
    """What a stage charges: (K, P) running, (K,) waiting, (J,) shortfall, (S,) slots; 0 for what it does not."""

    run: Integers
    wait: Integers
    short: Integers
    slot: Integers


@dataclass(frozen=True, eq=False)
class Program:
    """The program of one instance over places.

    Attributes
    ----------
    shares
        (J, 2) least and most running tasks of each job.
    tasks
        (J,) tasks of each job.
    ranks
        Names of the ranks of costs.
    """

    name: str
    classes: Classes
    places: Places
    shares: Integers
    tasks: Integers
    ranks: tuple[str, ...]
    labels: tuple[list[str], list[str]]

    @cached_property
    def stages(self) -> dict[str, Costs]:
        """Cost of each stage by name, in strict order; no shortfall where no share can fall short."""
        c, p = self.classes, self.places
        each = (p.cost[0], c.count, self.tasks, p.slots.count)
        none = Costs(*(np.zeros_like(size) for size in each))
        found = {"shortfall": Costs(none.run, none.wait, np.ones_like(self.tasks), none.slot)}
        for level in sorted(set(c.level[c.level > 0].tolist()), reverse=True):
            found[f"waiting_{level}"] = Costs(none.run, (c.level == level).astype(np.int64), none.short, none.slot)
        for rank, name in enumerate(self.ranks):
            found[name] = Costs(p.cost[rank], c.wait[rank], none.short, p.slots.cost[rank])
        if not self.shares[:, 0].any():
            del found["shortfall"]
        return found

    @cached_property
    def pairs(self) -> Integers:
        """(n, 2) class and place of every column of running tasks, by place."""
        pairs: Integers = np.argwhere(self.places.may.T)[:, ::-1].astype(np.int64)
        return pairs

    @cached_property
    def _first(self) -> Integers:
        found: Integers = np.searchsorted(self.pairs[:, 1], np.arange(self.places.size + 1)).astype(np.int64)
        return found

    def taken(self, size: Size) -> Integers:
        """(K,) slots of a size that a task of each class takes."""
        return self.classes.demand[:, size.resource] // size.size

    def there(self, size: Size) -> int:
        """Slots of a size on a place."""
        return int(self.places.count[size.place]) * int(self.places.capacity[size.place, size.resource] // size.size)

    def build(self, stage: str, sizes: Iterable[Size], fixed: Mapping[str, int], *, integer: bool) -> LinearProgram:
        """The program of a stage, with no more of the ``fixed`` stages' costs than said."""
        c, p, pairs = self.classes, self.places, self.pairs
        classes, machines = self.labels
        lp = LinearProgram(self.name)
        run = lp.variables(
            "run",
            len(pairs),
            upper=np.minimum(c.count[pairs[:, 0]], p.count[pairs[:, 1]] * np.array(self._most)[pairs[:, 1]]),
            integer=integer,
            labels=[f"{classes[k]},{machines[m]}" for k, m in pairs.tolist()],
        )
        wait = lp.variables("wait", len(c.count), upper=c.count, integer=integer, labels=classes)
        must, least = self.tasks - self.shares[:, 1], self.shares[:, 0]
        share = lp.variables("share", len(must), lower=must, upper=self.tasks - least)
        short = lp.variables("short", len(must), upper=least)
        slot = lp.variables("slot", len(p.slots.count), upper=p.slots.count)
        lp.constrain("task", run.sum_by(pairs[:, 0], len(c.count)) + wait, "==", c.count, labels=classes)
        lp.constrain("unscheduled", wait.sum_by(c.job, len(must)) - share - short, "==", 0)
        used = run.sum_by(pairs[:, 1], p.size)
        lp.constrain("machine", used - slot.sum_by(p.slots.place, p.size), "==", 0, labels=machines)
        sizes = list(sizes)
        for name, unit in (("capacity", True), ("slot_size", False)):
            rows = [size for size in sizes if (size.size == 1) == unit]
            if rows:
                lp.constrain(name, self._sizes(rows), "<=", [self.there(size) for size in rows])
        self._apart(lp)

        def charged(costs: Costs) -> Expression:
            by = costs.run[pairs[:, 0], pairs[:, 1]]
            parts = (wait * costs.wait, short * costs.short, slot * costs.slot)
            return sum((part.sum() for part in parts), (run * by).sum())

        if fixed:
            earlier = _stacked([charged(self.stages[name]) for name in fixed])
            lp.constrain("stage", earlier, "<=", list(fixed.values()), labels=list(fixed))
        lp.minimize(charged(self.stages[stage]))
        return lp

    @cached_property
    def _most(self) -> list[int]:
        """Slots of one machine of each place."""
        slots = np.bincount(self.places.slots.place, weights=self.places.slots.count, minlength=self.places.size)
        most: list[int] = (slots // np.maximum(self.places.count, 1)).astype(np.int64).tolist()
        return most

    def _sizes(self, sizes: list[Size]) -> Expression:
        """Slots taken, row by row (columns of running tasks are the program's first)."""
        rows, columns, values = [], [], []
        for row, size in enumerate(sizes):
            at = np.arange(self._first[size.place], self._first[size.place + 1])
            taken = self.taken(size)[self.pairs[at, 0]]
            at, taken = at[taken > 0], taken[taken > 0]
            rows.append(np.full(len(at), row))
            columns.append(at)
            values.append(taken.astype(np.float64))
        joined = [np.concatenate(each) for each in (rows, columns, values)]
        return Expression(joined[0].astype(np.int64), joined[1].astype(np.int64), joined[2], np.zeros(len(sizes)))

    @cached_property
    def together(self) -> tuple[Integers, list[tuple[str, int]]]:
        """(n,) row of each column of running tasks under rules of different machines, -1 for none; rule and place."""
        number: dict[tuple[str, int], int] = {}
        of = np.full(len(self.pairs), -1)
        for column, (k, p) in enumerate(self.pairs.tolist() if any(self.classes.apart) else ()):
            if self.classes.apart[k]:
                of[column] = number.setdefault((self.classes.apart[k], p), len(number))
        return of, list(number)

    def _apart(self, lp: LinearProgram) -> None:
        of, rows = self.together
        if rows:
            at = np.flatnonzero(of >= 0)
            least = self.places.count[[p for _, p in rows]]
            lp.constrain("apart", lp.variable("run")[at].sum_by(of[at], len(rows)), "<=", least)

    def counts(self, values: NDArray[Any]) -> Integers:
        """(K, P) tasks of each class on each place, from the columns' values."""
        found = np.zeros(self.places.may.shape, np.int64)
        found[self.pairs[:, 0], self.pairs[:, 1]] = np.rint(values[: len(self.pairs)]).astype(np.int64)
        return found


def _stacked(rows: list[Expression]) -> Expression:
    """Expressions of one row each, one below the other."""
    number = np.concatenate([row.row + k for k, row in enumerate(rows)])
    column, value, constant = (
        np.concatenate([getattr(row, part) for row in rows]) for part in ("column", "value", "constant")
    )
    return Expression(number, column, value, constant)
