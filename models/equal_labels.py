r"""Labels that a problem cannot tell apart are counted instead of named, one method for all statements.

Two tasks with the same costs on the same machines may be exchanged without a change of the problem. Where labels of a
level fall into such classes, the columns of a class are added up, :math:`y_{cj} = \sum_{i \in c} x_{ij}`, and its rows
too. The counted problem is smaller and has no symmetric branches. Its answer is dealt out to the labels, and its
multipliers count for each label of a class, so that the problem as it is stated judges both (Margot, 2010, *Symmetry in
integer linear programming*, on why naming equal things makes trees grow).

An integer answer can be dealt out where the rows of each label add up its columns with equal coefficients, and the
columns can be put in an order in which each row holds a run of them (at most one machine for each task; at most two
in a zone). Dealing the units of that order in turn then gives all labels of a class the same sums up to one, the first
labels the first columns. Levels of
other rows (capacities of machines) are not counted.

What it is worth (``benchmarks/equal_labels.py``): 45 tasks of 3 kinds on 8 machines with two capacities are proven
optimal in 0.04 s, named one by one they are not in 8 s; of 500 tasks on 100 machines, tasks worth 1200 run after 10 s,
named one by one 1052.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.language.labels import Index, Level
from flowlex.formulations.language.statement import Statement
from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.validation.proofs.exact_program import Exact, ExactProgram, Objective
from flowlex.validation.proofs.proof import Branch, Derived, Leaf, Proof

_Hashes: TypeAlias = NDArray[np.uint64]
StatementT = TypeVar("StatementT", bound=Statement)
#: Problems of fewer columns are solved as they are.
_FEWEST = 40
#: Counting must leave at most this share of the columns.
_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class EqualLabels(Generic[StatementT]):
    """A problem in which the equal labels of one level are counted.

    Attributes
    ----------
    level
        The level.
    counted
        The problem over classes; each has the name of its first label.
    column
        (n,) column of the counted problem that adds up each column.
    row
        By name, (k,) row of the counted problem that adds up each row.
    """

    level: str
    counted: StatementT
    column: Integers
    row: Mapping[str, Integers]
    #: (n,) place of a column's label in its class; (c,) labels of a class, by column of the counted problem.
    turn: Integers
    many: Integers
    #: Columns of the counted problem in the order in which units are dealt out, and where those of their class begin.
    order: Integers
    begin: Integers
    integer: Booleans

    def summed(self, values: Floats) -> Floats:
        """(c,) values of the counted problem from (n,) values."""
        return np.bincount(self.column, values, len(self.many)).astype(np.float64)

    def dealt(self, values: Exact) -> Exact:
        """(n,) values from (c,) values of the counted problem."""
        every = [int(v) * values.unit for v in values.numbers.tolist()]
        found: list[Fraction | int] = [
            every[c] / m for c, m in zip(self.column.tolist(), self.many[self.column].tolist(), strict=True)
        ]
        whole = np.array([math.floor(v) for v in every], object)
        before = np.zeros(len(whole), object)
        so_far = np.cumsum(whole[self.order]) - whole[self.order]
        before[self.order] = so_far - so_far[self.begin]
        mine = np.flatnonzero(self.integer[self.column])
        of, turn = self.column[mine], self.turn[mine]
        many, first = self.many[of], before[of]
        # Units first .. first + whole - 1 are dealt in turn: label i of n gets those that leave i when divided by n.
        units = (first + whole[of] - turn + many - 1) // many - (first - turn + many - 1) // many
        for k, v in zip(mine.tolist(), units.tolist(), strict=True):
            found[k] = int(v)
        return Exact.of(found)

    def expanded(self, proof: Proof, program: ExactProgram) -> Proof:
        """The proof of the problem from that of the counted one, which ``program`` is."""
        terms = _Terms(program, proof.derived)
        kept = {o.name: o for o in program.objectives}
        stages = {
            name: tuple(self._leaf(leaf, kept[name], terms, kept) for leaf in leaves)
            for name, leaves in proof.stages.items()
        }
        derived = []
        for each in proof.derived:
            cost = Objective("", each.column, each.value, 0, Fraction(1))
            cases = tuple(self._leaf(case, cost, terms, kept) for case in each.cases)
            derived.append(Derived(*self._members(each.column, each.value), cases, each.stage))
        nothing = Objective("", np.zeros(0, np.int64), np.zeros(0, np.int64), 0, Fraction(1))
        empty = tuple(self._leaf(leaf, nothing, terms, kept) for leaf in proof.empty)
        points = {name: self.dealt(x) for name, x in proof.points.items()}
        return Proof(stages, tuple(derived), empty, points=points)

    def _leaf(self, leaf: Leaf, cost: Objective, terms: _Terms, objectives: Mapping[str, Objective]) -> Leaf:
        rows = {name: Exact(y.numbers[self.row[name]], y.unit) for name, y in leaf.rows.items()}
        tightest: dict[tuple[int, bool], Branch] = {}
        for b in leaf.branches:
            if b.alone:
                key = int(b.column[0]), b.upper
                best = tightest.setdefault(key, b)
                if (b.side < best.side) == b.upper:
                    tightest[key] = b
        branches = []
        for b in leaf.branches:
            multiplier = b.multiplier
            if b.alone and tightest[int(b.column[0]), b.upper] is b:
                reduced = terms.reduced(int(b.column[0]), leaf, cost, objectives)
                multiplier = min(reduced, Fraction(0)) if b.upper else max(reduced, Fraction(0))
            columns, values = self._members(b.column, b.value)
            branches.append(Branch(columns, values, b.upper, b.side, multiplier if len(columns) > 1 else b.multiplier))
        return replace(leaf, rows=rows, branches=tuple(branches))

    def _members(self, columns: Integers, values: Any) -> tuple[Integers, Any]:
        """The columns that are added up in columns of the counted problem, with their values."""
        value = np.zeros(len(self.many), object)
        value[columns] = values
        used = np.zeros(len(self.many), bool)
        used[columns] = True
        members = np.flatnonzero(used[self.column])
        listed = value[self.column[members]]
        try:
            return members, listed.astype(np.int64)
        except OverflowError:
            return members, listed


class _Terms:
    """Coefficients of single columns of a problem, for their reduced costs in a leaf."""

    def __init__(self, program: ExactProgram, derived: Sequence[Derived]) -> None:
        self.program, self.derived = program, derived
        self._of: dict[tuple[str, int], list[tuple[int, Fraction]]] = {}
        self._sorted: dict[str, tuple[Integers, Integers]] = {}

    def _rows_of(self, name: str, column: int) -> list[tuple[int, Fraction]]:
        """Rows of a name that a column is in, with its coefficients."""
        key = name, column
        if key not in self._of:
            block = self.program.rows[name]
            if name not in self._sorted:
                order = np.argsort(block.column, kind="stable")
                self._sorted[name] = order, block.column[order]
            order, ordered = self._sorted[name]
            at = order[np.searchsorted(ordered, column) : np.searchsorted(ordered, column, "right")]
            self._of[key] = [(int(block.row[k]), int(block.value[k]) * block.unit) for k in at.tolist()]
        return self._of[key]

    def reduced(self, column: int, leaf: Leaf, cost: Objective, objectives: Mapping[str, Objective]) -> Fraction:
        """The reduced cost of a column in a leaf: branches on several columns are rows, those on one are bounds."""
        reduced = leaf.own * cost.sign * _coefficient(cost, column)
        for name, duals in leaf.rows.items():
            for row, value in self._rows_of(name, column):
                reduced -= int(duals.numbers[row]) * duals.unit * value
        for name, multiplier in leaf.earlier.items():
            reduced -= multiplier * objectives[name].sign * _coefficient(objectives[name], column)
        for k, multiplier in leaf.derived.items():
            reduced -= multiplier * int(self.derived[k].value[self.derived[k].column == column].sum())
        for branch in leaf.branches:
            if not branch.alone and branch.multiplier:
                reduced -= branch.multiplier * int(branch.value[branch.column == column].sum())
        return Fraction(reduced)


def _coefficient(objective: Objective, column: int) -> Fraction:
    return int(objective.value[objective.column == column].sum()) * objective.unit


def equal_labels(problem: StatementT) -> EqualLabels[StatementT] | None:
    """The problem with the equal labels of a level counted; None if that is not worth it or not possible.

    Parameters
    ----------
    problem
        The problem; only such with integer variables are counted.
    """
    n = problem.column_count
    if n < _FEWEST or not any(b.integer.any() for b in problem.blocks.values()):
        return None
    if any(o.sorted_of for o in problem.objectives):
        return None
    every = [each for level in problem.levels if (each := _Classes.found(problem, level)) is not None]
    left = {each.level: int(each.stands(each.label).sum()) for each in every}
    for classes in sorted(every, key=lambda each: left[each.level]):
        if left[classes.level] <= _SHARE * n and (made := classes.counted(problem)) is not None:
            return made
    return None


@dataclass(frozen=True, eq=False)
class _Classes:
    """Classes of equal labels of a level: two labels are equal if exchanging them does not change the problem.

    ``of``: (labels,) first label of the class of each. ``label``, ``rest``: (n,) label of each column, -1 for none, and
    a hash of the column but for its label. ``rows``: by name, the same of rows.
    """

    level: str
    of: Integers
    label: Integers
    rest: _Hashes
    rows: Mapping[str, tuple[Integers, _Hashes]]

    @classmethod
    def found(cls, problem: Statement, level: str) -> _Classes | None:
        """The classes of a level; None if no column has a label of it."""
        n, domain = problem.column_count, problem.levels[level]
        label, rest, kind = np.full(n, -1, np.int64), np.zeros(n, np.uint64), np.zeros(n, np.uint64)
        for number, block in enumerate(problem.blocks.values()):
            label[block.columns], rest[block.columns] = _parted(block.index, domain, number)
            kind[block.columns] = _hash(rest[block.columns], block.lower, block.upper, block.integer)
        if (label < 0).all():
            return None
        signature, apart = np.zeros(len(domain), np.uint64), np.zeros(len(domain), bool)

        def add(labels: Integers, what: _Hashes) -> None:
            np.add.at(signature, labels[labels >= 0], what[labels >= 0])

        add(label, kind)
        for number, o in enumerate(problem.objectives):
            add(label[o.columns], _hash(number, rest[o.columns], o.values))
        rows, named = {}, np.where(label >= 0, rest, _hash(np.arange(n)))
        for number, row in enumerate(problem.rows.values()):
            of_row, role = rows[row.name] = _parted(row.index, domain, number)
            add(of_row, _hash(role, row.rhs))
            mine, theirs = of_row[row.rows], label[row.columns]
            term = _hash(role[row.rows], named[row.columns], row.values)
            add(np.where(mine >= 0, mine, theirs), term)
            crossed = (mine >= 0) & (theirs >= 0) & (mine != theirs)
            apart[mine[crossed]] = apart[theirs[crossed]] = True
        signature[apart] = _hash(np.flatnonzero(apart), -1)
        _, first, of = np.unique(signature, return_index=True, return_inverse=True)
        return cls(level, first[of], label, rest, rows)

    def stands(self, labels: Integers) -> Booleans:
        """Whether columns or rows with these labels stay: without a label, or with the first of a class."""
        found: Booleans = (labels < 0) | (self.of[labels] == labels)
        return found

    def twins(self, labels: Integers, rest: _Hashes) -> Integers:
        """For columns or rows, the place of the one that stays for it among those that stay."""
        key = _hash(rest, np.where(labels < 0, -1, self.of[labels]))
        kept = key[self.stands(labels)]
        order = np.argsort(kept, kind="stable")
        return order[np.searchsorted(kept[order], key)]

    def dealing_order(self, problem: Statement, many: Integers) -> Integers | None:
        """The columns in an order in which each row of a label holds a run with equal coefficients; None: none found.

        ``many``: (n,) labels in the class of each column, 1 for columns that are not counted or not integer.
        """
        rows: dict[int, list[tuple[float, int]]] = {}
        start = 0
        for row in problem.rows.values():
            of_row, _ = self.rows[row.name]
            mine = (of_row[row.rows] >= 0) & self.stands(of_row)[row.rows] & (many[row.columns] > 1)
            for r, c, v in zip(
                row.rows[mine].tolist(), row.columns[mine].tolist(), row.values[mine].tolist(), strict=True
            ):
                rows.setdefault(start + r, []).append((v, c))
            start += row.index.count
        if any(len({v for v, _ in terms}) > 1 or len({c for _, c in terms}) < len(terms) for terms in rows.values()):
            return None
        runs = [[c for _, c in terms] for terms in rows.values() if len(terms) > 1]
        inside: dict[int, list[int]] = {c: [] for c in np.flatnonzero(self.stands(self.label) & (many > 1)).tolist()}
        for number, run in enumerate(sorted(runs, key=len, reverse=True)):
            for c in run:
                inside[c].append(number)
        order = sorted(inside, key=lambda c: (self.label[c], inside[c], c))
        place = {c: k for k, c in enumerate(order)}
        for run in runs:
            places = [place[c] for c in run]
            if max(places) - min(places) >= len(run):
                return None
        return np.array(order, np.int64)

    def counted(self, problem: StatementT) -> EqualLabels[StatementT] | None:
        """The problem with one label for each class; None if its answers could not be dealt out."""
        size = np.bincount(self.of, minlength=len(self.of))[self.of]
        rank = np.zeros(len(self.of), np.int64)
        by_class = np.argsort(self.of, kind="stable")
        starts = np.flatnonzero(np.diff(self.of[by_class], prepend=-1))
        rank[by_class] = np.arange(len(by_class)) - np.repeat(starts, np.diff(starts, append=len(by_class)))
        many = np.where(self.label < 0, 1, size[self.label])
        integer = np.concatenate([block.integer for block in problem.blocks.values()]).astype(bool)
        order = self.dealing_order(problem, np.where(integer, many, 1))
        if order is None:
            return None
        kept, column = self.stands(self.label), self.twins(self.label, self.rest)
        fresh, place = problem.copy(), np.cumsum(kept) - 1
        for block in problem.blocks.values():
            mine = np.flatnonzero(kept[block.columns])
            times = many[block.columns][mine]
            fresh.blocks[block.name] = replace(
                block,
                index=block.index.take(mine),
                start=int(place[block.start + mine[0]]) if len(mine) else int(kept[: block.start].sum()),
                lower=block.lower[mine] * times,
                upper=block.upper[mine] * times,
                integer=block.integer[mine],
            )
        row_of = {}
        for row in problem.rows.values():
            of_row, role = self.rows[row.name]
            stays = self.stands(of_row)
            at, times = np.cumsum(stays) - 1, np.where(of_row < 0, 1, size[of_row])
            used = stays[row.rows] & kept[row.columns]
            r, c = row.rows[used], row.columns[used]
            fresh.rows[row.name] = replace(
                row,
                index=row.index.take(np.flatnonzero(stays)),
                rows=at[r],
                columns=place[c],
                values=row.values[used] * np.where(self.label[c] < 0, times[r], 1),
                rhs=row.rhs[stays] * times[stays],
            )
            row_of[row.name] = self.twins(of_row, role)
        fresh.objectives = [
            replace(o, columns=place[o.columns[mine]], values=o.values[mine])
            for o in problem.objectives
            for mine in [kept[o.columns]]
        ]
        turn = np.where(self.label < 0, 0, rank[self.label])
        begin = np.searchsorted(self.label[order], self.label[order])
        return EqualLabels(self.level, fresh, column, row_of, turn, many[kept], place[order], begin, integer[kept])


def _parted(index: Index, level: Level, number: int) -> tuple[Integers, _Hashes]:
    """Of each member its label in a level (-1: the level is no key), and a hash of all other labels."""
    mine = index.levels[level.name] if level.name in index.keys else None
    own = mine is level or (mine is not None and mine.labels == level.labels)  # a renamed level has other labels
    others = [index.codes[key] for key in index.keys if not (own and key == level.name)]
    label = index.codes[level.name].astype(np.int64) if own else np.full(index.count, -1, np.int64)
    return label, _hash(np.full(index.count, number), *others)


def _hash(*parts: Any) -> _Hashes:
    """A hash for each place of arrays of one length (or single numbers), so that sums of hashes tell sets apart."""
    count = max(np.size(part) for part in parts)
    found = np.full(count, 0x9E3779B97F4A7C15, np.uint64)
    for part in parts:
        numbers = np.asarray(part)
        plain = numbers + 0.0 if numbers.dtype.kind == "f" else numbers.astype(np.int64)
        bits = plain.view(np.uint64)
        found = (found ^ bits) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
        found ^= found >> np.uint64(29)
    return found
