"""Values and multipliers of a solver made exact: the equations that hold at a vertex are solved in fractions.

At a vertex, active rows give the columns between their bounds, and columns with no reduced cost give the multipliers of
the rows. Floats say which equations hold; elimination in fractions solves them. What comes out is judged like
everything else, so a wrong guess proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.formulations.program_arrays import Floats
from flowlex.validation.certificates import proof_time_budget
from flowlex.validation.proofs.exact_program import Bounds, Exact, ExactProgram, Objective
from flowlex.validation.proofs.proof import Branch, Derived, Leaf

#: Products of fractions after which one elimination gives up.
_WORK = 100_000
#: Slacks and reduced costs below this share of their terms count as zero.
_ZERO = 1e-7
#: Largest denominator of a number that no equation determines.
_SIMPLE = 1000


class TooMuchWork(ArithmeticError):
    """Elimination takes too long, or the time limit has passed."""


@dataclass
class Budget:
    """Products of fractions that are left for a whole proof."""

    left: int = 3_000_000
    time: proof_time_budget.Budget = field(default_factory=proof_time_budget.Budget)


@dataclass
class Equations:
    """Linear equations in fractions, solved as they come; those that contradict the ones before are left out."""

    #: Of each eliminated unknown: the others and the constant that it equals.
    solved: dict[int, tuple[dict[int, Fraction], Fraction]] = field(default_factory=dict)
    order: dict[int, int] = field(default_factory=dict)
    work: int = 0
    most: int = _WORK
    time: proof_time_budget.Budget = field(default_factory=proof_time_budget.Budget)

    def add(self, terms: Mapping[int, Fraction], side: Fraction) -> None:
        """``sum of terms == side``."""
        open_, rest = dict(terms), side
        while used := [u for u in open_ if u in self.solved]:
            rest = self._substitute(open_, rest, min(used, key=self.order.__getitem__))
        if not open_:
            return
        pivot = min(open_, key=lambda u: (abs(open_[u].numerator) + open_[u].denominator, u))
        by = open_.pop(pivot)
        self.work += len(open_)
        self.order[pivot] = len(self.order)
        self.solved[pivot] = ({u: -v / by for u, v in open_.items()}, rest / by)

    def _substitute(self, terms: dict[int, Fraction], side: Fraction, unknown: int) -> Fraction:
        times = terms.pop(unknown)
        others, constant = self.solved[unknown]
        self.work += len(others) + 1
        if self.work > self.most or self.time.spent:
            raise TooMuchWork("elimination takes too long")
        for other, value in others.items():
            found = terms.get(other, Fraction(0)) + times * value
            if found:
                terms[other] = found
            else:
                terms.pop(other, None)
        return side - times * constant

    def values(self, guess: Floats) -> list[Fraction]:
        """All unknowns: those that are not determined near to a guess."""
        found = {u: _simple(float(v)) for u, v in enumerate(guess.tolist()) if u not in self.solved}
        for unknown, (others, constant) in reversed(self.solved.items()):
            found[unknown] = constant + sum((v * found[u] for u, v in others.items()), Fraction(0))
        return [found[u] for u in range(len(guess))]


def _simple(value: float) -> Fraction:
    near = Fraction(value).limit_denominator(_SIMPLE)
    return near if abs(float(near) - value) <= 1e-9 * max(1.0, abs(value)) else Fraction(value)


def exact_values(
    program: ExactProgram,
    values: Floats,
    kept: Sequence[tuple[Objective, Fraction]] = (),
    zero: float = _ZERO,
    time: proof_time_budget.Budget | None = None,
) -> Exact:
    """Values near to those of a solver that satisfy all active rows and bounds exactly, if elimination finds them.

    Parameters
    ----------
    program
        The problem.
    values
        (n,) floats; integer columns are rounded.
    kept
        Objectives with the values (as minimisations) that they have.
    zero
        Distances from bounds and sides below this share of their size count as none.
    time
        When to give up.
    """
    integer = program.integer
    x = np.where(integer, np.rint(values), values)
    exact: dict[int, Fraction] = {}
    for bounds in (program.lower, program.upper):
        at = bounds.at.floats
        near = ~bounds.missing & ~integer & (np.abs(x - at) <= zero * (1 + np.abs(at)))
        exact |= {k: bounds.at[k] for k in np.flatnonzero(near).tolist() if k not in exact}
    exact |= {k: Fraction(int(x[k])) for k in np.flatnonzero(integer).tolist()}
    place = {k: i for i, k in enumerate(k for k in range(program.count) if k not in exact)}
    rows: list[tuple[int, dict[int, Fraction], Fraction]] = []
    for block in program.rows.values():
        value = Exact(block.value, block.unit).floats
        sums = np.bincount(block.row, value * x[block.column], block.count)
        size = np.bincount(block.row, np.abs(value * x[block.column]), block.count)
        rhs = Exact(block.rhs, block.unit).floats
        active = np.abs(sums - rhs) <= zero * (1 + size)
        made: dict[int, tuple[dict[int, Fraction], Fraction]] = {
            i: ({}, int(block.rhs[i]) * block.unit) for i in np.flatnonzero(active).tolist()
        }
        for t in np.flatnonzero(active[block.row]).tolist():
            _take(made, int(block.row[t]), int(block.column[t]), int(block.value[t]) * block.unit, exact, place)
        rows += [(int(block.relation != "=="), *each) for each in made.values()]
    for objective, worth in kept:
        constant = objective.sign * objective.constant * objective.unit
        single: dict[int, tuple[dict[int, Fraction], Fraction]] = {0: ({}, worth - constant)}
        for column, v in zip(objective.column.tolist(), objective.value.tolist(), strict=True):
            _take(single, 0, column, objective.sign * v * objective.unit, exact, place)
        rows.append((1, *single[0]))
    system = Equations(time=time or proof_time_budget.Budget())
    for _, terms, side in sorted(rows, key=lambda each: (each[0], len(each[1]))):
        system.add(terms, side)
    found = system.values(x[list(place)])
    return Exact.of([exact[k] if k in exact else found[place[k]] for k in range(program.count)])


def _take(
    made: dict[int, tuple[dict[int, Fraction], Fraction]],
    row: int,
    column: int,
    value: Fraction,
    exact: Mapping[int, Fraction],
    place: Mapping[int, int],
) -> None:
    terms, side = made[row]
    if column in exact:
        made[row] = terms, side - value * exact[column]
    else:
        terms[place[column]] = terms.get(place[column], Fraction(0)) + value


def exact_ray(program: ExactProgram, ray: Floats, time: proof_time_budget.Budget | None = None) -> Exact:
    """A direction that keeps all rows and bounds exactly, near to a direction of a solver; its largest entry is 1."""
    size = float(np.abs(ray).max(initial=0)) or 1.0
    zeros = Exact(np.zeros(program.count, np.int64))
    largest = int(np.argmax(np.abs(ray)))
    fixed = ~(program.lower.missing & program.upper.missing)
    fixed[largest] = True
    at = np.zeros(program.count, np.int64)
    at[largest] = 1 if ray[largest] > 0 else -1
    homogeneous = ExactProgram(
        program.columns,
        Bounds(Exact(at), ~fixed),
        Bounds(zeros, np.ones(program.count, bool)),
        np.zeros(program.count, bool),
        {name: replace(block, rhs=block.rhs * 0) for name, block in program.rows.items()},
    )
    return exact_values(homogeneous, ray / size, time=time)


def exact_leaf(
    program: ExactProgram,
    leaf: Leaf,
    cost: Objective | None,
    before: Mapping[str, Objective],
    derived: Sequence[Derived],
    budget: Budget,
) -> Leaf:
    """The leaf with multipliers for which reduced costs that are almost zero are zero, if elimination finds them.

    Parameters
    ----------
    program
        The problem.
    leaf
        With rounded multipliers, which say what counts.
    cost
        What it bounds; None if it is empty.
    before, derived
        Objectives before, by name, and derived rows by number.
    budget
        Of products of fractions, which this uses up.
    """
    unknowns: list[tuple[str, Any, int]] = []
    guess: list[float] = []
    entries: list[tuple[int, int, Fraction]] = []  # column, unknown, coefficient
    reduced, size = np.zeros(program.count), np.zeros(program.count)
    target: dict[int, Fraction] = {}
    if cost is not None and leaf.own:
        for column, v in zip(cost.column.tolist(), cost.value.tolist(), strict=True):
            target[column] = target.get(column, Fraction(0)) + cost.sign * v * cost.unit
            reduced[column] += float(cost.sign * v * cost.unit)
        size += np.abs(reduced)

    def unknown(kind: str, key: Any, k: int, value: float, columns: Any, values: Any, unit: Fraction) -> None:
        for column, v in zip(columns.tolist(), values.tolist(), strict=True):
            entries.append((column, len(unknowns), v * unit))
            reduced[column] -= value * float(v * unit)
            size[column] += abs(value * float(v * unit))
        unknowns.append((kind, key, k))
        guess.append(value)

    for name, y in leaf.rows.items():
        block = program.rows[name]
        used = np.flatnonzero(y.numbers != 0)
        floats = y.floats
        order = np.argsort(block.row, kind="stable")
        begin = np.searchsorted(block.row[order], used, "left")
        end = np.searchsorted(block.row[order], used, "right")
        for i, b, e in zip(used.tolist(), begin.tolist(), end.tolist(), strict=True):
            mine = order[b:e]
            unknown("row", name, i, float(floats[i]), block.column[mine], block.value[mine], block.unit)
    for name, e in leaf.earlier.items():
        o = before[name]
        unknown("earlier", name, 0, float(e), o.column, o.value, o.sign * o.unit)
    for k, e in leaf.derived.items():
        unknown("derived", k, 0, float(e), derived[k].column, derived[k].value, Fraction(1))
    for k, branch in enumerate(leaf.branches):
        if not branch.alone and branch.multiplier:
            unknown("branch", k, 0, float(branch.multiplier), branch.column, branch.value, Fraction(1))
    lone_low = {int(b.column[0]) for b in leaf.branches if b.alone and not b.upper}
    lone_high = {int(b.column[0]) for b in leaf.branches if b.alone and b.upper}
    zero = np.flatnonzero((np.abs(reduced) <= _ZERO * (1 + size)) & (size > 0)).tolist()
    equations: dict[int, dict[int, Fraction]] = {j: {} for j in zero}
    for column, u, v in entries:
        if column in equations:
            equations[column][u] = equations[column].get(u, Fraction(0)) + v
    missing = {
        j: int(program.lower.missing[j] and j not in lone_low) + int(program.upper.missing[j] and j not in lone_high)
        for j in zero
    }
    system = Equations(most=min(_WORK, budget.left), time=budget.time)
    counted = 0
    if not target and guess:  # multipliers of an empty leaf have any scale
        largest = int(np.argmax(np.abs(guess)))
        system.add({largest: Fraction(1)}, _simple(guess[largest]))
    for j in sorted(zero, key=lambda j: (-int(missing[j]), len(equations[j]))):
        try:
            system.add(equations[j], target.get(j, Fraction(0)))
        finally:
            budget.left -= system.work - counted
            counted = system.work
    found = system.values(np.array(guess))
    rows: dict[str, dict[int, Fraction]] = {}
    earlier, cuts, branches = {}, {}, list(leaf.branches)
    for (kind, key, i), value in zip(unknowns, found, strict=True):
        if kind == "row":
            relation = program.rows[key].relation
            signed = min(value, Fraction(0)) if relation == "<=" else max(value, Fraction(0))
            rows.setdefault(key, {})[i] = value if relation == "==" else signed
        elif kind == "earlier":
            earlier[key] = min(value, Fraction(0))
        elif kind == "derived":
            cuts[key] = max(value, Fraction(0))
        else:
            old = branches[key]
            sign = min if old.upper else max
            branches[key] = Branch(old.column, old.value, old.upper, old.side, sign(value, Fraction(0)))
    exact = {
        name: Exact.of([values.get(i, Fraction(0)) for i in range(program.rows[name].count)])
        for name, values in rows.items()
    }
    return Leaf(exact, earlier, cuts, tuple(branches), leaf.own)
