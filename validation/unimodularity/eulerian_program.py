"""Step 6, second part: Camion's Eulerian criterion as an integer program that a reader can print.

A {-1, 0, 1} matrix is not totally unimodular exactly when it has a submatrix with all row sums and all column
sums even whose entries sum to 2 mod 4 (Camion 1965). With x and y choosing rows and columns::

    sum_c a[r,c] y[c] = 2 h[r]   if x[r] = 1;    h[r] = 0   if x[r] = 0      ("row_even", "row_off")
    sum_r a[r,c] x[r] = 2 g[c]   if y[c] = 1;    g[c] = 0   if y[c] = 0      ("column_even", "column_off")
    sum_r h[r] = 2 k + 1                                                     ("odd_half")

Feasible: not totally unimodular, and `square_witness` cuts the submatrix down to a square one. Infeasible:
totally unimodular, on HiGHS's word (`verify` solves it again).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.determinant import violates

if TYPE_CHECKING:
    from flowlex.formulations.linear_program import LinearProgram

__all__ = ["Eulerian", "eulerian_program", "eulerian_search", "square_witness"]


@dataclass(frozen=True)
class Eulerian:
    """Answer of `eulerian_search`: ``"feasible"`` with rows and columns, ``"infeasible"`` or ``"time limit"``."""

    status: str
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()


def eulerian_program(matrix: sp.csc_array, *, smallest: bool = False) -> LinearProgram:
    """State the criterion for a {-1, 0, 1} matrix; ``smallest`` minimises the number of rows chosen."""
    from flowlex.formulations.linear_program import LinearProgram

    rows, columns = map(int, matrix.shape)
    entries = matrix.tocoo()
    value = entries.data.astype(float)
    program = LinearProgram("eulerian_submatrix")
    x = program.variables("row", rows, upper=1, integer=True)
    y = program.variables("column", columns, upper=1, integer=True)
    for name, count, ours, theirs, key, other in (
        ("row", rows, x, y, entries.row, entries.col),
        ("column", columns, y, x, entries.col, entries.row),
    ):
        plus = np.bincount(key[value > 0], minlength=count).astype(float)
        minus = np.bincount(key[value < 0], minlength=count).astype(float)
        half = program.variables(
            f"{name}_half", count, lower=-np.floor(minus / 2), upper=np.floor(plus / 2), integer=True
        )
        excess = (theirs[other] * value).sum_by(key, count) - half * 2.0
        program.constrain(f"{name}_even_above", excess + ours * plus, "<=", plus)
        program.constrain(f"{name}_even_below", excess - ours * minus, ">=", -minus)
        program.constrain(f"{name}_off_above", half - ours * np.floor(plus / 2), "<=", 0)
        program.constrain(f"{name}_off_below", half + ours * np.floor(minus / 2), ">=", 0)
        if name == "row":
            k = program.variables("k", 1, lower=-float(rows * columns), upper=float(rows * columns), integer=True)
            program.constrain("odd_half", half.sum() - k * 2.0, "==", 1)
    if smallest:
        program.minimize(x.sum())
    return program


def eulerian_search(
    matrix: sp.csc_array, *, seconds: float | None = None, smallest: bool = False, seed: int = 0
) -> Eulerian:
    """Solve the program with HiGHS; a submatrix found is checked in integers."""
    from flowlex.formulations.engines import solve
    from flowlex.formulations.outcome import Status

    program = eulerian_program(matrix, smallest=smallest)
    outcome = solve(program, "highs", time_limit_s=seconds, seed=seed)
    if outcome.values is None:
        status = "infeasible" if outcome.status is Status.INFEASIBLE else "time limit"
        return Eulerian(status)
    parts = program.split_columns(outcome.values)
    rows = np.flatnonzero(np.rint(parts["row"]) == 1)
    columns = np.flatnonzero(np.rint(parts["column"]) == 1)
    chosen = matrix.tocsr()[rows][:, columns].toarray().astype(np.int64)
    if (chosen.sum(axis=0) % 2).any() or (chosen.sum(axis=1) % 2).any() or chosen.sum() % 4 != 2:
        return Eulerian("time limit")  # rounding let a wrong point through: it is no proof
    used_rows, used_columns = rows[chosen.any(axis=1)], columns[chosen.any(axis=0)]
    return Eulerian("feasible", tuple(used_rows.tolist()), tuple(used_columns.tolist()))


def square_witness(
    matrix: sp.csc_array, rows: Sequence[int], columns: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cut a submatrix E with even sums and total 2 mod 4 down to a square one of determinant beyond +-1.

    The point 1/2 ... 1/2 solves ``E y = E 1 / 2``, 0 <= y <= 1, and no integral point does (it would be an
    equitable bicolouring, and make the total 0 mod 4). So every vertex is fractional, and its fractional
    columns with as many independent rows form a matrix that maps a fractional vector to an integral one.
    """
    from flowlex.formulations.engines import solve
    from flowlex.formulations.linear_program import LinearProgram

    part = matrix.tocsr()[list(rows)][:, list(columns)].tocoo()
    program = LinearProgram("half_integral")
    y = program.variables("y", part.shape[1], upper=1)
    half = np.bincount(part.row, weights=part.data, minlength=part.shape[0]) / 2
    expression = (y[part.col] * part.data.astype(float)).sum_by(part.row, int(part.shape[0]))
    program.constrain("half", expression, "==", half)
    program.minimize((y * np.random.default_rng(0).random(int(part.shape[1]))).sum())
    values = solve(program, "highs", algorithm="simplex").values
    if values is None:
        raise RuntimeError("HiGHS found no vertex of a polytope that has one")
    fractional = np.flatnonzero(np.abs(values - np.rint(values)) > 1e-6)
    strip = part.toarray()[:, fractional]
    picked = _independent_rows(strip)
    found = tuple(int(rows[row]) for row in picked), tuple(int(columns[int(column)]) for column in fractional)
    if len(found[0]) != len(found[1]) or not violates(strip[picked]):
        raise RuntimeError("the vertex found gives no witness; please report this matrix")
    return found


def _independent_rows(strip: np.ndarray) -> list[int]:
    """Greedy row basis, by elimination modulo a prime (independent there means independent)."""
    prime = 2_147_483_629
    basis: list[tuple[int, np.ndarray]] = []
    chosen = []
    for row in range(strip.shape[0]):
        vector = strip[row].astype(np.int64) % prime
        for lead, other in basis:
            if vector[lead]:
                vector = (vector - vector[lead] * other) % prime
        nonzero = np.flatnonzero(vector)
        if nonzero.size:
            lead = int(nonzero[0])
            inverse = pow(int(vector[lead]), -1, prime)
            basis.append((lead, vector * inverse % prime))
            chosen.append(row)
            if len(chosen) == strip.shape[1]:
                break
    return chosen
