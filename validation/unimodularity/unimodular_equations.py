"""Unimodularity of a program with equations and free variables, whose matrix need not be totally unimodular.

Inequality rows get a slack: M = [A | I]. A vertex is given by a basis, a choice of as many columns of M as there are
rows that holds every free variable (no bound could hold it outside). All vertices are integral for all integral
sides and bounds exactly when every such basis has determinant 0, 1 or -1 (Hoffman and Kruskal 1956; Veinott and
Dantzig 1968). With only inequalities and bounded variables that is total unimodularity; with equations it is less:
{x + 2y = 7, y = 3} is fine though 2 is not 0, 1 or -1.

One basis B and its tableau X with B X = M settle it: the determinant of B must be 1 or -1, and the rows of X whose
basic variable is not free must be totally unimodular, since exchanging columns multiplies the determinant by a
minor of them.

Equations that follow from others are left out first: an integral combination of equations says nothing new, about
vertices or about the sides that can be met.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from flowlex.validation.unimodularity.determinant import determinant
from flowlex.validation.unimodularity.integrality_conclusion import Line
from flowlex.validation.unimodularity.named_matrix import NamedMatrix, canonical, exact
from flowlex.validation.unimodularity.proof_checks import require
from flowlex.validation.unimodularity.proof_types import (
    Answer,
    Certificate,
    Number,
    Witness,
    describe_certificate,
    in_digits,
    indices,
)
from flowlex.validation.unimodularity.row_scaling import divided
from flowlex.validation.unimodularity.time_limit import Clock
from flowlex.validation.unimodularity.verify_proof import check_certificate

#: Entries that an elimination may visit before it gives up.
MOST_WORK = 3_000_000

Combination = tuple[int, tuple[tuple[int, int], ...]]
Decide = Callable[[sp.csc_array], "Certificate | Witness | None"]


@dataclass(frozen=True)
class Senses:
    """Whether every basis has determinant 0, 1 or -1."""

    #: `Answer.TU`: they all have; `Answer.NOT_TU`: ``basis`` has not.
    answer: Answer = field(metadata={"key": "verdict"})
    basis: tuple[int, ...]  # columns of M in the order of the rows: variables, then n + i for the slack of row i
    determinant: Number  # of the basis, exact
    #: With TU: row, column and value of the tableau X of the other columns (in ascending order).
    entries: tuple[tuple[int, int, int], ...] = ()
    certificate: Certificate | None = None  # with TU: proof for the rows of X whose basic variable is not free
    #: Equations left out, each with the multiples (row, factor) of other equations that it is the sum of; ``basis``
    #: and ``entries`` speak of the other rows.
    redundant: tuple[Combination, ...] = ()

    def __str__(self) -> str:
        if self.certificate is not None:
            return "with these row senses unimodular, proof: " + describe_certificate(self.certificate)
        return f"not unimodular with these row senses either: a basis has determinant {in_digits(self.determinant)}"


def senses_of(named: NamedMatrix, matrix: sp.csc_array, clock: Clock, decide: Decide) -> Senses | None:
    """Find a basis of determinant beyond +-1, or prove that there is none; None if that takes too long.

    ``named``: gives the senses of rows and the free columns.
    ``matrix``: its matrix, integral (rows divided where that is needed).
    ``decide``: certificate or witness of a {-1, 0, 1} matrix.
    """
    if named.program is None or matrix.dtype != np.int64:
        return None
    equations, free = named.program.equations, set(np.flatnonzero(named.program.free).tolist())
    solved = _Tableau(matrix, equations, named.program.free).solve(clock)
    if solved is None:
        return None
    basis, lines, left_out = solved
    if not free <= set(basis):
        return None  # there are no vertices: see `line_of`
    kept = np.setdiff1d(np.arange(matrix.shape[0]), left_out)
    with_slacks = extended(matrix)[kept]
    redundant = _combinations(matrix, kept, left_out, basis)
    if redundant is None:
        return None
    value = determinant(with_slacks[:, basis])
    if value not in (-1, 1):
        return Senses(Answer.NOT_TU, tuple(basis), value, redundant=redundant)
    outside = np.setdiff1d(_labels(matrix, equations), basis)
    column_of = {int(label): column for column, label in enumerate(outside)}
    entries = [
        (row, column_of[label], int(entry)) for row, line in enumerate(lines) for label, entry in line.items() if entry
    ]
    bound = [row for row, label in enumerate(basis) if label not in free]
    tableau = _sparse(entries, len(basis), len(outside))
    if not bound or not len(outside):
        none = Certificate("reduction", (), ())
        return Senses(Answer.TU, tuple(basis), value, tuple(entries), none, redundant)
    found = decide(canonical(tableau.tocsr()[bound]))
    if isinstance(found, Certificate):
        return Senses(Answer.TU, tuple(basis), value, tuple(entries), found, redundant)
    if found is None:
        return None
    for row, column in zip(found.rows, found.columns, strict=True):  # multiplies the determinant by the witness's
        basis[bound[row]] = int(outside[column])
    return Senses(Answer.NOT_TU, tuple(basis), determinant(with_slacks[:, basis]), redundant=redundant)


def line_of(named: NamedMatrix, clock: Clock) -> Line | None:
    """A line that moves free columns and changes no row, so that the polyhedron has no vertices.

    None if there is none, or if the search takes too long.
    """
    program = named.program
    if program is None or not program.free.any():
        return None
    free = np.flatnonzero(program.free)
    nothing = np.zeros(named.shape[0], dtype=bool)
    solved = _Tableau(sp.csc_array(named.matrix[:, free]), nothing, np.ones(len(free), dtype=bool)).solve(clock)
    if solved is None:
        return None
    basis, lines, _ = solved
    outside = sorted(set(range(len(free))) - set(basis))
    if not outside:
        return None
    move: dict[int, Fraction] = {outside[0]: Fraction(1)}
    move |= {basis[row]: -Fraction(line[outside[0]]) for row, line in enumerate(lines) if line.get(outside[0])}
    scale = lcm(*(amount.denominator for amount in move.values()))
    return tuple((int(free[label]), int(amount * scale)) for label, amount in sorted(move.items()))


def check_line(named: NamedMatrix, line: Line) -> None:
    """Raise `ProofError` unless the line moves free columns and changes no row."""
    require(named.program is not None, "only a program has vertices")
    assert named.program is not None
    moves = [indices(pair) for pair in line]
    columns = [column for column, _ in moves]
    require(len(set(columns)) == len(columns) > 0 and all(move for _, move in moves), "that is no line")
    require(all(0 <= column < named.shape[1] for column in columns), "a column of the line lies outside the matrix")
    require(bool(named.program.free[columns].all()), "a column of the line has a bound")
    total: dict[int, Number] = {}
    for column, move in moves:
        part = slice(int(named.matrix.indptr[column]), int(named.matrix.indptr[column + 1]))
        for row, value in zip(named.matrix.indices[part].tolist(), named.matrix.data[part], strict=True):
            total[row] = total.get(row, 0) + exact(value) * move
    require(not any(total.values()), "the line changes a row")


def _combinations(
    matrix: sp.csc_array, kept: Any, left_out: list[int], basis: list[int]
) -> tuple[Combination, ...] | None:
    """Write rows as integral combinations of the kept ones; None if that is impossible.

    Solved in doubles, rounded, then compared exactly.
    """
    if not left_out:
        return ()
    from scipy.sparse.linalg import splu

    whole = extended(matrix)
    lines = sp.csr_array(matrix)[left_out]
    beside = sp.hstack([lines, sp.csr_array((len(left_out), matrix.shape[0]), dtype=np.int64)], format="csc")
    solver = splu(sp.csc_array(whole[kept][:, basis].T, dtype=float))
    right: NDArray[np.float64] = sp.csc_array(beside)[:, basis].toarray().T.astype(np.float64)
    factors = np.rint(solver.solve(right).T)
    combined = sp.csr_array(factors.astype(np.int64)) @ sp.csr_array(matrix)[kept]
    if (combined - lines).count_nonzero():
        return None
    return tuple(
        (row, tuple((int(kept[place]), int(line[place])) for place in np.flatnonzero(line)))
        for row, line in zip(left_out, factors, strict=True)
    )


def check_senses(named: NamedMatrix, divisors: Mapping[int, Number], senses: Senses) -> None:
    """Raise `ProofError` unless the basis and its tableau say what they claim."""
    program = named.program
    require(program is not None, "only a program has senses of rows")
    assert program is not None
    matrix = divided(named.matrix, divisors)
    kept = _check_redundant(matrix, program.equations, senses.redundant)
    whole = extended(matrix)[kept]
    labels = _labels(matrix, program.equations)
    basis = list(indices(senses.basis))
    require(len(set(basis)) == len(basis) == len(kept) and set(basis) <= set(labels.tolist()), "no basis")
    value = determinant(whole[:, basis])
    require(
        value == senses.determinant,
        f"the basis has determinant {in_digits(value)}, not {in_digits(senses.determinant)}",
    )
    free = set(np.flatnonzero(program.free).tolist())
    require(free <= set(basis), "the basis leaves out a free variable")
    if senses.answer is Answer.NOT_TU:
        require(
            value not in (-1, 0, 1) and senses.certificate is None, f"determinant {in_digits(value)} violates nothing"
        )
        return
    require(senses.answer is Answer.TU and value in (-1, 1), f"the basis has determinant {in_digits(value)}")
    outside = np.setdiff1d(labels, basis)
    tableau = _sparse(senses.entries, len(basis), len(outside))
    off = sp.csc_array(whole[:, basis]) @ tableau - whole[:, outside]
    require(not np.any(off.data), "the tableau is not that of the basis")
    bound = [row for row, label in enumerate(basis) if label not in free]
    part = canonical(tableau.tocsr()[bound]) if bound and len(outside) else None
    if part is not None:
        require(senses.certificate is not None, "there is no proof for the tableau")
        assert senses.certificate is not None
        check_certificate(part, senses.certificate)


def _check_redundant(matrix: sp.csc_array, equations: Any, redundant: tuple[Combination, ...]) -> Any:
    """Raise unless the rows left out are the stated combinations of equations; return the kept rows."""
    left_out = [row for row, _ in redundant]
    require(len(set(left_out)) == len(left_out) and set(left_out) <= set(range(matrix.shape[0])), "no row left out")
    by_row = sp.csr_array(matrix)
    for row, terms in redundant:
        require(all(equations[other] and other not in left_out for other, _ in terms), f"row {row}: not of equations")
        require(bool(equations[row]), f"row {row} is no equation")
        off = -by_row[[row]]
        for other, factor in terms:
            off = off + factor * by_row[[other]]
        require(not off.count_nonzero(), f"row {row} is not that combination of the others")
    return np.setdiff1d(np.arange(matrix.shape[0]), left_out)


def extended(matrix: sp.csc_array) -> sp.csc_array:
    """[A | I]; the slacks of equations only keep the numbering and are never used."""
    return sp.csc_array(sp.hstack([matrix, sp.eye_array(matrix.shape[0], dtype=np.int64)], format="csc"))


def _labels(matrix: sp.csc_array, equations: Any) -> Any:
    columns = int(matrix.shape[1])
    return np.concatenate([np.arange(columns), columns + np.flatnonzero(~equations)])


def _sparse(entries: Any, rows: int, columns: int) -> sp.csc_array:
    table = np.array([tuple(entry) for entry in entries], dtype=np.int64).reshape(-1, 3)
    return sp.csc_array((table[:, 2], (table[:, 0], table[:, 1])), shape=(rows, columns))


class _Tableau:
    """Exact Gauss-Jordan elimination that brings a basis of the equations and the free variables in."""

    def __init__(self, matrix: sp.csc_array, equations: Any, free: Any) -> None:
        by_row, columns = sp.csr_array(matrix), int(matrix.shape[1])
        self.lines: list[dict[int, Number]] = []
        self.basis: list[int | None] = []
        self.holders: dict[int, set[int]] = {}
        self.free = set(np.flatnonzero(free).tolist())
        self.work = 0
        for row in range(int(matrix.shape[0])):
            part = slice(int(by_row.indptr[row]), int(by_row.indptr[row + 1]))
            entries = [exact(value) for value in by_row.data[part]]
            line: dict[int, Number] = dict(zip(by_row.indices[part].tolist(), entries, strict=True))
            self.basis.append(None if equations[row] else columns + row)
            self.lines.append(line)
            for label in line:
                self.holders.setdefault(label, set()).add(row)

    def solve(self, clock: Clock) -> tuple[list[int], list[dict[int, Number]], list[int]] | None:
        """Return the basis, the tableau without its unit columns, and rows that follow from others; None if late."""
        missing = {row for row, label in enumerate(self.basis) if label is None}
        redundant: list[int] = []
        while missing:
            row = min(missing, key=lambda row: len(self.lines[row]))
            missing.discard(row)
            if not self.lines[row]:
                redundant.append(row)
                continue
            self._pivot(row, min(self.lines[row], key=lambda label: self._rank(row, label)))
            if self._late(clock):
                return None
        for label in sorted(self.free - set(self.basis)):
            rows = [row for row in self.holders.get(label, ()) if self.basis[row] not in self.free]
            if rows:
                self._pivot(min(rows, key=lambda row: self._rank(row, label)), label)
            if self._late(clock):
                return None
        kept = [(label, line) for label, line in zip(self.basis, self.lines, strict=True) if label is not None]
        return [label for label, _ in kept], [line for _, line in kept], sorted(redundant)

    def _late(self, clock: Clock) -> bool:
        return self.work > MOST_WORK or clock.left() <= 0

    def _rank(self, row: int, label: int) -> tuple[bool, bool, int]:
        """Units first, free variables before others, short columns before long."""
        return self.lines[row][label] not in (1, -1), label not in self.free, len(self.holders[label])

    def _pivot(self, row: int, label: int) -> None:
        line = self.lines[row]
        value = line.pop(label)
        holders = self.holders.pop(label)
        holders.discard(row)
        left = self.basis[row]
        if left is not None:  # the variable that leaves the basis gets a column
            line[left] = 1
            self.holders.setdefault(left, set()).add(row)
        for key in line:
            line[key] = _quotient(line[key], value)
        self.basis[row] = label
        for other in holders:
            target = self.lines[other]
            factor = target.pop(label)
            self.work += len(line)
            for key, entry in line.items():
                new = target.get(key, 0) - factor * entry
                if new:
                    target[key] = new
                    self.holders[key].add(other)
                elif key in target:
                    del target[key]
                    self.holders[key].discard(other)


def _quotient(entry: Number, value: Number) -> Number:
    ratio = Fraction(entry) / value
    return int(ratio) if ratio.denominator == 1 else ratio
