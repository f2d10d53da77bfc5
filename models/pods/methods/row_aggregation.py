r"""Linear programs in which thousands of groups of pods choose a node class, solved over cells of similar groups.

Where hardly two pods are alike, a bound takes 0.2 s instead of 18.5 s (`benchmarks/pods.py`).

With few coupling rows (duals y) and one row for the n_g pods of each group, such a program is

    min sum_gc k_gc x_gc + k z    with    sum_gc a_gc x_gc + A z in b,    sum_c x_gc <= n_g (or = n_g).

If all groups of a cell get the same shares of the classes, the program is small, and its optimum is an upper bound. Its
duals y give a lower bound of the full program, with y_g = min_c (k_gc - y a_gc), or at most 0 if the group may wait.
The gap is sum_g n_g (dual of its cell - y_g). Cells with a large gap are split by the cheapest class of each group,
until the gap is negligible (dynamic constraint aggregation; Elhallaoui et al., 2005, for crew scheduling).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy  # lazy: scipy.sparse is imported where it is first used

from flowlex.formulations.engines.highs import solve_arrays
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Booleans, Floats, Integers, LinearProgramArrays
from flowlex.formulations.solver_outcome import Outcome, SolveOptions, Status

#: Largest relative gap between the optimum over cells and the bound; rounds of splitting.
_APART, _ROUNDS = 1e-6, 40
#: Cells that lose more than this share of the average are split.
_SPLIT = 0.1


@dataclass(frozen=True, eq=False)
class Choices:
    """Groups and their choices in a program."""

    # column, group, kind: (X,) columns, with the group and the node class of each
    column: Integers
    group: Integers
    kind: Integers
    # row, count, waits: (G,) row that sums the columns of a group, number of its pods, and whether these may wait
    row: Integers
    count: Floats
    waits: Booleans


def solve_by_cells(
    arrays: LinearProgramArrays, choices: Choices, cell: Integers, size: Floats, options: SolveOptions
) -> tuple[Outcome, Integers]:
    """Solve by aggregation; return duals and bound of the full program, with values over cells, and the cells.

    ``cell``: (G,) initial cell of each group; groups of a cell have the same classes, and either all or none may wait.
    ``size``: (G,) sizes by which cells are halved if the program over cells is infeasible.
    All rounds together keep the time limit; a bound of an earlier round is weaker, but proven.
    """
    best: Outcome | None = None
    until = None if options.time_limit_s is None else processor_seconds() + options.time_limit_s
    for _ in range(_ROUNDS):
        small = _Small(arrays, choices, cell)
        left = None if until is None else until - processor_seconds()
        if left is not None and left <= 0.0 and best is not None:
            break
        outcome = solve_arrays(small.arrays, replace(options, time_limit_s=None if left is None else max(0.1, left)))
        if outcome.status is Status.INFEASIBLE and (halves := _halves(cell, size)).max() > cell.max():
            cell = halves
            continue
        if outcome.status is not Status.OPTIMAL or outcome.duals is None or outcome.values is None:
            return best or outcome, cell
        found, lost, cheapest = small.priced(outcome, outcome.duals, outcome.values)
        if best is None or (found.bound < best.bound) == arrays.maximize:  # type: ignore[operator]
            best = found
        if lost.sum() <= _APART * abs(float(outcome.objective or 0.0)):
            break
        lossy = np.bincount(cell, lost)
        _, cell = np.unique(
            np.stack([cell, np.where((lossy > _SPLIT * lossy.mean())[cell], cheapest, -2)]), axis=1, return_inverse=True
        )
    assert best is not None, "there is an answer over single groups where there is one at all"
    return best, cell


class _Small:
    """The program over cells, and the bound that its duals prove for all groups."""

    def __init__(self, arrays: LinearProgramArrays, choices: Choices, cell: Integers) -> None:
        self.of: LinearProgramArrays
        self.of, self.choices, self.cell = arrays, choices, cell
        coupling, rest = np.ones(arrays.matrix.shape[0], bool), np.ones(arrays.matrix.shape[1], bool)
        coupling[choices.row], rest[choices.column] = False, False
        self.coupling, self.rest = np.flatnonzero(coupling), np.flatnonzero(rest)
        pods: Floats = np.bincount(cell, choices.count).astype(np.float64)
        kinds = int(choices.kind.max()) + 1
        pairs, at = np.unique(cell[choices.group] * kinds + choices.kind, return_inverse=True)
        self.owner, cells = pairs // kinds, len(pods)
        share = (choices.count / pods[cell])[choices.group]
        self.spread: Any = scipy.sparse.csc_array((share, (np.arange(len(at)), at)), (len(at), len(pairs)))
        coupled = arrays.matrix.tocsr()[self.coupling].tocsc()
        self.mine: Any = coupled[:, choices.column]
        sums = scipy.sparse.csc_array((np.ones(len(pairs)), (self.owner, np.arange(len(pairs)))), (cells, len(pairs)))
        blocks: Any = [[self.mine @ self.spread, coupled[:, self.rest]], [sums, None]]
        self.waits = np.zeros(cells, bool)
        self.waits[cell] = choices.waits

        def stacked(first: Floats, second: Floats) -> Floats:
            return np.concatenate([first, second])

        self.arrays = LinearProgramArrays(
            scipy.sparse.block_array(blocks, format="csc"),
            stacked(arrays.row_lower[self.coupling], np.where(self.waits, -np.inf, pods)),
            stacked(arrays.row_upper[self.coupling], pods),
            stacked(np.zeros(len(pairs)), arrays.column_lower[self.rest]),
            stacked(np.full(len(pairs), np.inf), arrays.column_upper[self.rest]),
            stacked(self.spread.T @ arrays.cost[choices.column], arrays.cost[self.rest]),
            arrays.offset,
            np.zeros(len(pairs) + len(self.rest), bool),
            arrays.maximize,
        )

    def priced(self, outcome: Outcome, prices: Floats, x: Floats) -> tuple[Outcome, Floats, Integers]:
        """Return duals, bound and values of the full program; (G,) gap of each group; (G,) its cheapest class."""
        choices, sign = self.choices, -1.0 if self.of.maximize else 1.0
        rows, columns = self.of.matrix.shape
        duals, values = np.zeros(rows), np.zeros(columns)
        duals[self.coupling] = prices[: len(self.coupling)]
        cost = sign * (self.of.cost[choices.column] - self.mine.T @ duals[self.coupling])
        least, at = _least(cost, choices.group, choices.waits)
        together, _ = _least(self.spread.T @ cost, self.owner, self.waits)
        duals[choices.row] = sign * least
        values[choices.column], values[self.rest] = self.spread @ x[: len(self.owner)], x[len(self.owner) :]
        lost = choices.count * (together[self.cell] - least)
        bound = float(outcome.objective or 0.0) - sign * float(lost.sum())
        found = replace(outcome, objective=bound, bound=bound, duals=duals, values=values)
        return found, lost, np.where(at < 0, -1, choices.kind[at])


def _least(cost: Floats, of: Integers, waits: Booleans) -> tuple[Floats, Integers]:
    """By owner: the least cost of its entries, at most 0 if it may wait, and this entry (-1: it waits)."""
    order = np.lexsort((cost, of))
    at = order[np.searchsorted(of[order], np.arange(len(waits)))]
    idle = waits & (cost[at] > 0)
    return np.where(idle, 0.0, cost[at]), np.where(idle, -1, at)


def _halves(cell: Integers, size: Floats) -> Integers:
    """Split every cell into two halves by size."""
    order = np.lexsort((size, cell))
    rank = np.empty(len(cell), np.int64)
    rank[order] = np.arange(len(cell)) - np.searchsorted(cell[order], cell[order])
    _, halves = np.unique(2 * cell + (2 * rank >= np.bincount(cell)[cell]), return_inverse=True)
    return halves
