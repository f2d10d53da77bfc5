"""The definition itself: every square submatrix of a tiny matrix."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.determinant import bareiss

__all__ = ["brute_force"]


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
