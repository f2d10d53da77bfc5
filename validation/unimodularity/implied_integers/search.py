"""Find redundant integer declarations: search for a large block and for determined columns (see `integrality_proof`).

A column can be in the block when its entries are +-1 once rows are divided by their content, its bounds and the
sides of its rows are integral, and its rows hold no continuous column that cannot. The block is grown in halves of
what is left, continuous and short columns first, by any quick proof of total unimodularity.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.formulations.program_arrays import Booleans, Integers
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.implied_integers.integrality_proof import (
    ImpliedIntegers,
    note_of,
    program_fingerprint,
    program_of,
)
from flowlex.validation.unimodularity.matrix_adapters import matrix_of
from flowlex.validation.unimodularity.named_matrix import NamedMatrix, bipartite, canonical, exact
from flowlex.validation.unimodularity.row_scaling import divided, divisors_of
from flowlex.validation.unimodularity.time_limit import Clock

__all__ = ["implied_integers"]

#: Proofs tried while growing a block in halves.
MOST_PROOFS = 120


def implied_integers(
    source: Any, *, time_limit: float = 60.0, seed: int = 0, progress: Callable[[str], None] | None = None
) -> ImpliedIntegers:
    """Find integer declarations that are redundant given that the others hold, with a proof.

    Parameters
    ----------
    source
        Anything `flowlex.check` takes. A bare matrix A stands for A x <= b with integers x >= 0 and any integral b.
    time_limit
        Processor seconds for the search; what is proven by then is the answer.
    seed
        Seed of the proofs.
    progress
        Called with a line about the current step, once a second after two seconds.

    Raises
    ------
    MatrixError
        If the source is no matrix of finite real numbers.
    InstanceError
        If a file cannot be read, or holds no matrix.

    Examples
    --------
    >>> from flowlex.formulations.linear_program import LinearProgram
    >>> lp = LinearProgram("fixed_charge")
    >>> flow = lp.variables("flow", 3, upper=10, integer=True)
    >>> open_ = lp.variables("open", 3, upper=1, integer=True)
    >>> _ = lp.constrain("link", flow - open_ * 10, "<=", 0)
    >>> _ = lp.constrain("demand", flow.sum(), "==", 12)
    >>> implied_integers(lp).dropped_names
    ('flow[0]', 'flow[1]', 'flow[2]')
    """
    start = time.perf_counter()
    named = matrix_of(source)
    with Clock(time_limit, progress) as clock:
        return _Search(named, clock, seed).answer(start)


class _Search:
    """One search on one program."""

    def __init__(self, named: NamedMatrix, clock: Clock, seed: int) -> None:
        self.named, self.program, self.clock, self.seed = named, program_of(named), clock, seed
        divisors = divisors_of(named.matrix)
        self.matrix = divided(named.matrix, divisors)
        self.good_rows = self._integral_rows(divisors)

    def _integral_rows(self, divisors: Any) -> Booleans:
        """Rows that are integral, sides too, once divided by their content."""
        sides = self.program.sides
        whole = self.matrix.data == np.rint(self.matrix.data)
        good = np.ones(self.named.shape[0], dtype=bool)
        good[self.matrix.indices[~whole]] = False
        good &= np.all(~np.isfinite(sides) | (sides == np.rint(sides)), axis=0)
        for row, divisor in divisors.items():
            finite = [Fraction(exact(side)) / divisor for side in sides[:, row] if np.isfinite(side)]
            good[row] = all(side.denominator == 1 for side in finite)
        return good

    def answer(self, start: float) -> ImpliedIntegers:
        """Search and assemble the proof."""
        declared = int(self.program.integer.sum())
        note = note_of(self.program)
        block = np.zeros(self.named.shape[1], dtype=bool)
        determined: list[tuple[int, int]] = []
        if not note and declared:
            block = self._block()
            determined = self._determined(self.program.integer & ~block)
        certificate = None
        columns = np.flatnonzero(block)
        rows = np.unique(self.matrix[:, columns].indices)
        if not len(rows):
            block[:], columns = False, columns[:0]  # columns without entries need no proof
        if len(columns):
            part = canonical(sp.csc_array(self.matrix[:, columns]).tocsr()[rows])
            with self.clock.outside():
                certificate = check(part, seed=self.seed).certificate
            if certificate is None:
                raise AssertionError("a block grown by proofs has none; please report this program")
        dropped = sorted({*np.flatnonzero(block & self.program.integer).tolist(), *(c for c, _ in determined)})
        return ImpliedIntegers(
            declared=declared,
            dropped=tuple(dropped),
            dropped_names=self.named.names_of_columns(dropped),
            block_rows=tuple(rows.tolist()),
            block_row_names=self.named.names_of_rows(rows.tolist()),
            block_columns=tuple(columns.tolist()),
            certificate=certificate,
            determined=tuple(determined),
            fingerprint=program_fingerprint(self.named),
            seconds=time.perf_counter() - start,
            note=note,
        )

    def _block(self) -> Booleans:
        """Grow a block; a refused continuous column excludes its rows, so the search restarts without it."""
        refused = np.zeros(self.named.shape[1], dtype=bool)
        while True:
            candidates = np.flatnonzero(self._candidates(refused))
            if not len(candidates):
                return np.zeros_like(refused)
            accepted = np.zeros_like(refused)
            accepted[candidates[self._by_halves(candidates)]] = True
            spoilt = self._candidates(refused) & ~accepted & ~self.program.integer
            if not spoilt.any():
                accepted[self._alone(accepted)] = False
                return accepted
            refused |= spoilt

    def _candidates(self, refused: Booleans) -> Booleans:
        """Columns that may be in the block; ``refused`` are continuous columns known not to fit."""
        units = np.ones(self.named.shape[1], dtype=bool)
        columns = np.repeat(np.arange(self.named.shape[1]), np.diff(self.matrix.indptr))
        units[columns[np.abs(self.matrix.data) != 1]] = False
        bounds = self.program.bounds
        good = units & ~refused & np.all(~np.isfinite(bounds) | (bounds == np.rint(bounds)), axis=0)
        rows = self.good_rows.copy()
        while True:
            spoilt = ~good & ~self.program.integer  # excluded continuous columns exclude their rows
            rows[self.matrix.indices[spoilt[columns]]] = False
            left = good.copy()
            left[columns[~rows[self.matrix.indices]]] = False
            if np.array_equal(left, good):
                return np.asarray(good)
            good = left

    def _alone(self, accepted: Booleans) -> Integers:
        """Continuous columns whose component has no integer column, so that nothing needs a proof."""
        from scipy.sparse.csgraph import connected_components

        columns = np.flatnonzero(accepted)
        _, label = connected_components(bipartite(sp.csc_array(self.matrix[:, columns])), directed=False)
        mine = label[self.matrix.shape[0] :]
        useful = np.unique(mine[self.program.integer[columns]])
        return columns[~np.isin(mine, useful)]

    def _by_halves(self, candidates: Integers) -> Booleans:
        """Add halves of the remaining columns as long as the block is proven totally unimodular."""
        accepted = np.zeros(len(candidates), dtype=bool)
        length = np.diff(self.matrix.indptr)[candidates]
        waiting = [np.lexsort((length, self.program.integer[candidates]))]
        proofs = 0
        while waiting and proofs < MOST_PROOFS and self.clock.left() > 0:
            chunk = waiting.pop()
            accepted[chunk] = True
            proofs += 1
            if self._proven(candidates[accepted]):
                continue
            accepted[chunk] = False
            if len(chunk) > 1:
                half = len(chunk) // 2
                waiting += [chunk[half:], chunk[:half]]
        return accepted

    def _proven(self, columns: Integers) -> bool:
        self.clock.doing = f"a totally unimodular block of {len(columns)} columns"
        part = canonical(self.matrix[:, columns])
        rows = np.unique(part.indices)
        limit = max(0.01, min(self.clock.left(), 5.0))
        return len(rows) == 0 or check(part.tocsr()[rows], seed=self.seed, time_limit=limit, orders=8).is_tu

    def _determined(self, kept: Booleans) -> list[tuple[int, int]]:
        """Kept columns that an equation expresses by other kept ones; those others stay kept."""
        by_row = self.matrix.tocsr()
        fixed, pinned = kept.copy(), np.zeros_like(kept)
        found: list[tuple[int, int]] = []
        for row in np.flatnonzero(self.program.equations & self.good_rows).tolist():
            part = slice(int(by_row.indptr[row]), int(by_row.indptr[row + 1]))
            columns, values = by_row.indices[part], by_row.data[part]
            if not np.all(fixed[columns]):
                continue
            free = columns[(np.abs(values) == 1) & ~pinned[columns]]
            if free.size == 0:
                continue
            column = int(free[np.argmax(np.diff(self.matrix.indptr)[free])])
            pinned[columns] = True  # the others must stay kept, as they determine this column
            found.append((column, row))
        return found
