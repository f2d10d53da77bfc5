"""3-separations of large matrices, from a small core that already has them.

A 3-connected regular matroid that is neither graphic nor cographic is R10 or has an R12 minor, whose 3-separation
induces one of the whole (Seymour 1980). So it suffices to look at a small submatrix:

* `find_core` deletes rows and columns, halves first and single lines last, as long as some 3-connected component
  (after unit and parallel lines, blocks and 2-sums are taken apart) is neither a network matrix nor the transpose
  of one, by its support;
* all 3-separations of the core are listed, a few thousand sets;
* each is extended to the whole matrix: an element that would raise the rank of the off-diagonal parts if it stood
  in Y must stand in X. The ranks are full in the core, so elements are judged one by one, and what is left when
  nothing more is forced is a separation.

The restriction of the induced separation to the core is among those listed, so a core that yields none shows that
the matrix is not that of a regular matroid (a refuter finds out why).
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from flowlex.formulations.program_arrays import Booleans
from flowlex.validation.unimodularity.network.network_matrix import network_matrix
from flowlex.validation.unimodularity.reductions import reduce_matrix, split_blocks
from flowlex.validation.unimodularity.separation_kernels import three_separations
from flowlex.validation.unimodularity.time_limit import Clock
from flowlex.validation.unimodularity.two_and_three_sums import Separation, separation_of, two_sum_parts
from flowlex.validation.unimodularity.violating_submatrix import Part, whole

#: Lines of a core whose 3-separations are listed (2**lines sets), and how many are tried.
MOST_LINES, MOST_SPLITS = 24, 20_000
#: Orders of the lines in which a core is looked for, until it is small.
FEW_LINES, MOST_ORDERS = 22, 8


def three_sum_parts(matrix: sp.csc_array, core: Part, clock: Clock) -> Separation | None:
    """Find a 3-separation with at least four elements on each side that splits the core, or None."""
    if sum(core.matrix.shape) > MOST_LINES:
        return None
    support = matrix.toarray() != 0
    for of_rows, of_columns in _splits(core, clock):
        clock.check()
        seeds = [np.zeros(side, dtype=bool) for side in (*support.shape, *support.shape)]
        seeds[0][core.rows[of_rows]] = seeds[1][core.columns[of_columns]] = True
        seeds[2][core.rows[~of_rows]] = seeds[3][core.columns[~of_columns]] = True
        inside = extend(support, *seeds)
        split = None if inside is None else separation_of(matrix, *inside)
        if split is not None:
            return split
    return None


def find_core(matrix: sp.csc_array, clock: Clock, *, seed: int = 0) -> Part | None:
    """A small 3-connected submatrix that is neither a network matrix nor the transpose of one; None if not found."""
    generator = np.random.default_rng(seed)
    best, part = _smaller_core(whole(matrix), clock), whole(matrix)
    for _ in range(MOST_ORDERS):
        if best is None or sum(best.matrix.shape) <= FEW_LINES:
            break
        core = _smaller_core(part.cut(*map(generator.permutation, part.matrix.shape)), clock)
        best = min(best, core or best, key=lambda part: sum(part.matrix.shape))
    return best


def _smaller_core(part: Part, clock: Clock) -> Part | None:
    core = _hard_component(part, clock)
    if core is None:
        return None
    size = sum(core.matrix.shape) // 2
    start = 0
    while size >= 1:
        lines = sum(core.matrix.shape)
        if start >= lines:
            size, start = size // 2, 0
            continue
        rest = np.delete(np.arange(lines), np.arange(start, min(start + size, lines)))
        rows = int(core.matrix.shape[0])
        smaller = core.cut(rest[rest < rows], rest[rest >= rows] - rows)
        found = _hard_component(smaller, clock) if min(smaller.matrix.shape) >= 3 else None
        if found is None:
            start += size
        else:
            core, start = found, 0
            size = min(size, sum(core.matrix.shape) // 2)
    return core


def _hard_component(part: Part, clock: Clock) -> Part | None:
    """A 3-connected component that is neither a network matrix nor the transpose of one."""
    waiting = [part]
    while waiting:
        clock.check()
        piece = waiting.pop()
        if _easy(piece.matrix, clock):
            continue
        reduced = reduce_matrix(piece.matrix, clock=clock)
        if len(reduced.line):
            if len(reduced.rows) and len(reduced.columns):
                waiting.append(piece.cut(reduced.rows, reduced.columns))
            continue
        blocks = split_blocks(piece.matrix)
        if len(blocks) > 1:
            waiting += [piece.cut(*block) for block in blocks]
            continue
        split = two_sum_parts(piece.matrix, clock)
        if split is None:
            return piece
        waiting += [piece.cut(*lines) for lines in split.places()]
    return None


def _easy(matrix: sp.csc_array, clock: Clock) -> bool:
    return any(network_matrix(matrix, transposed=side, clock=clock).status != "no" for side in (False, True))


def _splits(core: Part, clock: Clock) -> list[tuple[Booleans, Booleans]]:
    """All 3-separations of the core, balanced ones first."""
    dense = core.matrix.toarray() != 0
    rows, columns = dense.shape
    bits = dense @ (1 << np.arange(columns, dtype=np.int64))
    given = bits.astype(np.int64), columns, 4, MOST_SPLITS, clock.stop
    found = clock.run(three_separations, *given, steps=2.0 ** (rows + columns))
    table = (found[:, None] >> np.arange(rows + columns)) & 1 == 1
    order = np.argsort(np.abs(2 * table.sum(axis=1) - rows - columns), kind="stable")
    return [(line[:rows], line[rows:]) for line in table[order]]


def extend(
    support: Booleans, x_rows: Booleans, x_columns: Booleans, y_rows: Booleans, y_columns: Booleans
) -> tuple[Booleans, Booleans] | None:
    """Extend a split of some rows and columns (ranks adding up to 2) to all of them, X as small as possible.

    Returns: None when some element fits on neither side.
    """
    rows, columns = x_rows.copy(), x_columns.copy()
    while True:
        upper = _spanned(support[rows][:, ~columns], y_columns[~columns])
        lower = _spanned(support[~rows][:, columns].T, y_rows[~rows])
        if upper is None or lower is None or upper[1] + lower[1] != 2:
            return None
        forced_columns, forced_rows = np.flatnonzero(~columns)[~upper[0]], np.flatnonzero(~rows)[~lower[0]]
        if not len(forced_columns) and not len(forced_rows):
            return rows, columns
        columns[forced_columns] = True
        rows[forced_rows] = True
        if np.any(columns & y_columns) or np.any(rows & y_rows):
            return None


def _spanned(lines: Booleans, seeds: Booleans) -> tuple[Booleans, int] | None:
    """Which columns lie in the GF(2) span of the seed columns, and its rank; None if that is more than 2."""
    basis: list[Booleans] = []
    inside: Booleans = np.asarray(~lines.any(axis=0))
    for _ in range(3):
        left = np.flatnonzero(seeds & ~inside)
        if not len(left):
            return inside, len(basis)
        if len(basis) == 2:
            return None
        basis.append(lines[:, left[0]])
        inside = np.asarray(inside | np.all(lines == basis[-1][:, None], axis=0))
        if len(basis) == 2:
            inside = np.asarray(inside | np.all(lines == (basis[0] ^ basis[1])[:, None], axis=0))
    return None
