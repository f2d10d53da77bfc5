"""Total unimodularity by definition: every square submatrix of a tiny matrix."""

from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.named_matrix import canonical, ternary

__all__ = ["bareiss", "bordered_second", "brute_force", "one_sum"]


def bareiss(matrix: Any) -> int:
    """The determinant of an integer matrix by fraction-free elimination."""
    rows = [[int(value) for value in row] for row in matrix]
    sign = previous = 1
    for step in range(len(rows) - 1):
        pivot = next((row for row in range(step, len(rows)) if rows[row][step]), None)
        if pivot is None:
            return 0
        if pivot != step:
            rows[step], rows[pivot], sign = rows[pivot], rows[step], -sign
        for row in rows[step + 1 :]:
            row[step + 1 :] = [
                (value * rows[step][step] - row[step] * above) // previous
                for value, above in zip(row[step + 1 :], rows[step][step + 1 :], strict=True)
            ]
        previous = rows[step][step]
    return sign * rows[-1][-1]


def brute_force(matrix: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return rows and columns of a smallest square submatrix of determinant outside {-1, 0, 1}, or None.

    The number of submatrices is binomial(m + n, m): meant for m + n up to about 14.
    """
    dense = np.asarray(sp.coo_array(matrix).toarray())
    rows, columns = dense.shape
    for size in range(1, min(rows, columns) + 1):
        for chosen in combinations(range(rows), size):
            strip = dense[list(chosen)]
            for across in combinations(range(columns), size):
                if bareiss(strip[:, list(across)]) not in (-1, 0, 1):
                    return chosen, across
    return None


def bordered_second(matrix: sp.csc_array) -> sp.csc_array:
    """Turn [A a a; c 0 1] into [1 0 b; d d B], with rows and columns moved: the other operand of a 3-sum."""
    rows, columns = map(int, matrix.shape)
    order = [columns - 1, columns - 2, *range(columns - 2)]
    return ternary(canonical(matrix.tocsr()[[rows - 1, *range(rows - 1)]][:, order]))


def one_sum(one: sp.csc_array, two: sp.csc_array) -> sp.csc_array:
    """The block diagonal matrix."""
    return ternary(canonical(sp.block_diag([one, two], format="csc")))
