r"""Stages of a sorted vector of linear entries, solved over the entries instead of all pairs of rank and entry.

Stage k minimises :math:`\sum_j d_{kj} - k t_k` with :math:`d_{kj} \ge t_k - g_j` (the negative of the k smallest
entries). As programs of all stages these have a row for each pair, and every stage a more difficult basis. But the
optimum of the first stages fixes entries for good: the next smallest value v is shared by a set S of entries that no
answer raises, and the stages before stay optimal exactly if :math:`\sum_{l \in F} g_l + g_j \ge V` for each j of S,
with the entries F fixed before. So stage k is a linear program with one such row for each fixed entry, and
``d`` for the others. Multipliers of that row are those of the earlier stage and of its rows of F and j; the leaf that
they make is judged like any other.
Source: max-min fairness by repeated linear programs (Ogryczak, Pioro and Tomaszewski, 2005), with its duals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np
import scipy

from flowlex.formulations.engines.highs import pass_model, quiet, run
from flowlex.formulations.lexicographic.branch_and_bound_leaves import Leaf
from flowlex.formulations.lexicographic.stage_program import StageProgram
from flowlex.formulations.program_arrays import Floats, Integers, LinearProgramArrays

#: Entries whose values differ by less, relative to their size, are the same value.
_SAME = 1e-7


@dataclass(eq=False)
class SortedVector:
    """Where the stages of a sorted vector stand in a program.

    Attributes
    ----------
    first
        Number of its first stage; there is one for each rank.
    threshold
        (n,) column of the threshold of each rank.
    excess, rows
        (n, n) column and row of each rank and entry: ``excess - sign * threshold + entry >= side``, or with ``+``.
    """

    first: int
    threshold: Integers
    excess: Integers
    rows: Integers
    #: (n, columns) terms of the entries, their sides, and the sign of the threshold.
    _entries: tuple[Any, Floats, float] | None = None
    #: Groups of entries that have their value for good, and whether the rows of the next group are stated.
    _groups: list[Integers] = field(default_factory=list)
    _open: bool = False
    _solver: highspy.Highs = field(init=False)
    #: What the rows of the solver are in the whole program.
    _places: list[tuple[Any, ...]] = field(default_factory=list)

    def fits(self, arrays: LinearProgramArrays, costs: Sequence[Floats]) -> bool:
        """Whether the program is continuous, and its rows and stages are those of a sorted vector."""
        n, flat = len(self.threshold), self.rows.ravel()
        if arrays.integrality.any() or np.isfinite(arrays.row_upper[flat]).any():
            return False
        sign = np.sign(costs[self.first][self.threshold[0]])
        for k, cost in enumerate(costs[self.first : self.first + n]):
            wanted = np.zeros(len(cost))
            wanted[self.threshold[k]], wanted[self.excess[k]] = sign * (k + 1), 1.0
            if not np.array_equal(cost, wanted):
                return False
        own = np.zeros(len(arrays.cost), bool)
        own[self.threshold] = own[self.excess.ravel()] = True
        block = arrays.matrix.tocsr()[flat].tocoo()
        mine = own[block.col]
        at = np.append(self.excess.ravel(), np.repeat(self.threshold, n))
        ones = np.append(np.ones(n * n), np.full(n * n, sign))
        parts = scipy.sparse.csr_array((ones, (np.tile(np.arange(n * n), 2), at)), shape=(n * n, len(own)))
        found = scipy.sparse.csr_array((block.data[mine], (block.row[mine], block.col[mine])), shape=parts.shape)
        terms = scipy.sparse.csr_array((block.data[~mine], (block.row[~mine], block.col[~mine])), shape=parts.shape)
        first, sides = terms[:n], arrays.row_lower[self.rows]
        if abs(found - parts).sum() or abs(terms - scipy.sparse.vstack([first] * n)).sum() or (sides != sides[0]).any():
            return False
        if arrays.matrix[:, np.flatnonzero(own)].nnz != 2 * n * n:
            return False  # another row restricts them
        self._entries = (first, sides[0], float(sign))
        return True

    def stage(self, program: StageProgram, number: int, cost: Floats) -> tuple[Floats, Leaf] | None:
        """An answer of a stage and the leaf of its multipliers; None: this way does not find them."""
        k = number - self.first + 1
        if self._entries is None or not 1 <= k <= len(self.threshold):
            return None
        if k == 1:
            self._begin(program)
        terms, offset, sign = self._entries
        solver, width = self._solver, len(self._base)
        fixed = np.concatenate([np.zeros(0, np.int64), *self._groups])
        if k > len(fixed) + 1 and not self._open:
            self._state_least(program, np.setdiff1d(np.arange(len(offset)), fixed), len(fixed))
        solver.changeColCost(width, -float(k - len(fixed)))
        solver.setOptionValue("time_limit", solver.getRunTime() + program.left)
        run(solver)
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            self._entries = None
            return None
        solution = solver.getSolution()
        x = np.zeros(len(cost))
        x[self._base] = np.array(solution.col_value)[:width]
        entries = np.asarray(terms @ x) - offset
        ordered = np.sort(entries)
        x[self.threshold] = -sign * ordered
        x[self.excess] = np.maximum(ordered[:, None] - entries, 0.0)
        leaf = self._leaf(program, cost, np.array(solution.row_dual), number, fixed)
        if self._open:
            least = self._value(program, len(fixed) + 1) - self._value(program, len(fixed))
            close = _SAME * max(1.0, abs(least))
            if -float(cost @ x) - self._value(program, k - 1) > least + close:
                free = np.setdiff1d(np.arange(len(offset)), fixed)
                members = free[entries[free] <= least + close]
                if len(members) != k - 1 - len(fixed):
                    self._entries = None  # values too close to tell apart: the next stages are solved as they stand
                else:
                    self._close(members)
        return x, leaf

    def _value(self, program: StageProgram, rank: int) -> float:
        """The sum of so many smallest entries."""
        return -program.kept[self.first + rank - 1][1] if rank else 0.0

    def _begin(self, program: StageProgram) -> None:
        """State the program of the first stage: base columns, the threshold, the excess of each entry."""
        assert self._entries is not None
        a, (terms, offset, _), n = program.arrays, self._entries, len(self.threshold)
        own = np.zeros(len(a.cost), bool)
        own[self.threshold] = own[self.excess.ravel()] = True
        self._base = np.flatnonzero(~own)
        plain = np.setdiff1d(np.arange(len(a.row_lower)), self.rows.ravel())
        base = scipy.sparse.csr_array(a.matrix.tocsr()[plain][:, self._base])
        before = [scipy.sparse.csr_array(cost[self._base][None, :]) for cost, _ in program.kept]
        mine = scipy.sparse.csr_array(terms[:, self._base])
        excess: Any = scipy.sparse.hstack([mine, scipy.sparse.csr_array(-np.ones((n, 1))), scipy.sparse.eye_array(n)])
        above: Any = scipy.sparse.csr_array(scipy.sparse.vstack([base, *before]))
        above.resize((above.shape[0], excess.shape[1]))
        free = np.full(n, np.inf)
        self._mine, self._places = mine, [("row", k) for k in plain.tolist()]
        self._places += [("earlier", k) for k in range(len(before))] + [("excess", j) for j in range(n)]
        self._solver = quiet(solver="simplex", random_seed=program.options.seed)
        pass_model(
            self._solver,
            LinearProgramArrays(
                matrix=scipy.sparse.csc_array(scipy.sparse.vstack([above, excess])),
                row_lower=np.concatenate([a.row_lower[plain], np.full(len(before), -np.inf), offset]),
                row_upper=np.concatenate([a.row_upper[plain], [side for _, side in program.kept], free]),
                column_lower=np.concatenate([a.column_lower[self._base], [-np.inf], np.zeros(n)]),
                column_upper=np.concatenate([a.column_upper[self._base], [np.inf], free]),
                cost=np.concatenate([np.zeros(len(self._base)), [-1.0], np.ones(n)]),
                offset=0.0,
                integrality=np.zeros(len(self._base) + 1 + n, bool),
                maximize=False,
            ),
        )

    def _terms(self, entry: int) -> tuple[list[int], list[float]]:
        row = slice(*self._mine.indptr[entry : entry + 2])
        return self._mine.indices[row].tolist(), self._mine.data[row].tolist()

    def _sum_column(self, group: int) -> int:
        """The column of the sum of the groups up to this one."""
        return len(self._base) + 1 + len(self.threshold) + group

    def _state_least(self, program: StageProgram, members: Integers, fixed: int) -> None:
        """State what the first stage of the next group demands of each entry."""
        assert self._entries is not None
        group, stage = len(self._groups), self.first + fixed
        for j in members.tolist():
            columns, values = self._terms(j)
            if group:
                columns, values = [*columns, self._sum_column(group - 1)], [*values, 1.0]
            low = self._value(program, fixed + 1) + float(self._entries[1][j])
            self._solver.addRow(low, np.inf, len(columns), np.array(columns, np.int32), np.array(values))
            self._places.append(("least", group, stage, j))
        self._open = True

    def _close(self, members: Integers) -> None:
        """Fix a group: its entries count in full, and only they need the rows of its stage."""
        assert self._entries is not None
        solver, group, inside = self._solver, len(self._groups), set(members.tolist())
        gone = [
            k for k, place in enumerate(self._places)
            if place[0] == "least" and place[1] == group and place[3] not in inside
        ]  # fmt: skip
        solver.deleteRows(len(gone), np.array(gone, np.int32))
        without = set(gone)
        self._places = [place for k, place in enumerate(self._places) if k not in without]
        start = self._places.index(("excess", 0))
        for j in inside:
            solver.changeRowBounds(start + j, -np.inf, np.inf)
            solver.changeColCost(len(self._base) + 1 + j, 0.0)
        none = np.zeros(0)
        solver.addCol(-1.0, -np.inf, np.inf, 0, none.astype(np.int32), none)
        link: dict[int, float] = {self._sum_column(group): 1.0}
        if group:
            solver.changeColCost(self._sum_column(group - 1), 0.0)
            link[self._sum_column(group - 1)] = -1.0
        for j in members.tolist():
            for column, value in zip(*self._terms(j), strict=True):
                link[column] = link.get(column, 0.0) - value
        side = -float(self._entries[1][members].sum())
        solver.addRow(side, side, len(link), np.array(list(link), np.int32), np.array(list(link.values())))
        self._places.append(("sum",))
        self._groups.append(members)
        self._open = False

    def _leaf(self, program: StageProgram, cost: Floats, duals: Floats, number: int, fixed: Integers) -> Leaf:
        """The multipliers as those of the whole program."""
        a, mine = program.arrays, self.rows[number - self.first]
        y, earlier = np.zeros(len(a.row_lower)), np.zeros(len(program.kept))
        for place, dual in zip(self._places, duals.tolist(), strict=True):
            if place[0] == "row":
                y[place[1]] = dual
            elif place[0] == "earlier":
                earlier[place[1]] = min(dual, 0.0)
            elif place[0] == "excess":
                y[mine[place[1]]] = max(dual, 0.0)
            elif place[0] == "least" and dual > 0:
                _, group, stage, j = place
                rows = self.rows[stage - self.first]
                earlier[stage] -= dual
                y[rows[np.concatenate([[j], *self._groups[:group]]).astype(np.int64)]] += dual
        y[mine[fixed]] = 1.0
        more = np.array([0.0 if is_cut else earlier[k] for is_cut, k in program.added])
        return program.leaf((), np.append(y, more), 1, cost, a.column_lower, a.column_upper)
