"""Divide the rows of a matrix by their content.

The content of a row is the largest rational that divides all its entries to integers: 3 for (3, -6), 1/10 for
(0.1, 0.3). A row and its side may be divided by it without changing what the row says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from math import gcd, lcm

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.named_matrix import canonical, exact
from flowlex.validation.unimodularity.proof_checks import require
from flowlex.validation.unimodularity.proof_types import Number

#: Rows whose entries would exceed this after division stay undivided: 0.333 is not meant as a third.
LARGEST = 2**31


def divisors_of(matrix: sp.csc_array) -> dict[int, Number]:
    """Return the content of every row where it is not 1."""
    if not matrix.nnz or np.all(np.abs(matrix.data) == 1):
        return {}
    by_row = sp.csr_array(matrix)
    start = by_row.indptr[:-1][np.diff(by_row.indptr) > 0]
    full = np.flatnonzero(np.diff(by_row.indptr))
    integral = by_row.data == np.rint(by_row.data)
    plain = np.logical_and.reduceat(integral, start)
    content = np.gcd.reduceat(np.abs(np.where(integral, by_row.data, 0)).astype(np.int64), start)
    found: dict[int, Number] = {
        int(row): int(value) for row, value in zip(full[plain], content[plain], strict=True) if value != 1
    }
    for row in full[~plain].tolist():
        values = [Fraction(exact(value)) for value in by_row.data[by_row.indptr[row] : by_row.indptr[row + 1]]]
        divisor = Fraction(gcd(*(v.numerator for v in values)), lcm(*(v.denominator for v in values)))
        if max(abs(value / divisor) for value in values) <= LARGEST:
            found[row] = exact(divisor)
    return dict(sorted(found.items()))


def divided(matrix: sp.csc_array, divisors: Mapping[int, Number]) -> sp.csc_array:
    """Divide rows, exactly; the rows named must become integral."""
    by_row = sp.csr_array(matrix, copy=True)
    for row, divisor in divisors.items():
        part = slice(int(by_row.indptr[row]), int(by_row.indptr[row + 1]))
        values = [Fraction(exact(value)) / divisor for value in by_row.data[part]]
        require(all(value.denominator == 1 for value in values), f"row {row} is no multiple of {divisor}")
        by_row.data[part] = [int(value) for value in values]
    return canonical(by_row)


def unit_scaling(matrix: sp.csc_array) -> tuple[dict[int, Number], dict[int, Number]] | None:
    """Return positive factors r of rows and c of columns with ``abs(a[i, j]) == r[i] * c[j]``, where they are not 1.

    None if there are none. They are unique up to a constant for each connected part, chosen so that most of its columns
    have the factor 1.
    """
    if not matrix.nnz or np.all(np.abs(matrix.data) == 1):
        return {}, {}
    rows = int(matrix.shape[0])
    sizes = sp.coo_array(matrix)
    near: dict[int, list[tuple[int, Fraction]]] = {}
    for row, column, value in zip(sizes.row.tolist(), sizes.col.tolist(), sizes.data.tolist(), strict=True):
        size = abs(Fraction(exact(value)))
        near.setdefault(row, []).append((rows + column, size))
        near.setdefault(rows + column, []).append((row, size))
    factor: dict[int, Fraction] = {}
    for start in near:
        if start in factor:
            continue
        factor[start] = Fraction(1)
        part = [start]
        for line in part:  # grows
            for other, size in near[line]:
                if other not in factor:
                    factor[other] = size / factor[line]
                    part.append(other)
                elif factor[other] * factor[line] != size:
                    return None
        usual = Counter(factor[line] for line in part if line >= rows).most_common(1)[0][0]
        for line in part:
            factor[line] = factor[line] / usual if line >= rows else factor[line] * usual
    named = {line: exact(value) for line, value in sorted(factor.items()) if value != 1}
    return (
        {line: value for line, value in named.items() if line < rows},
        {line - rows: value for line, value in named.items() if line >= rows},
    )


def check_divisors(matrix: sp.csc_array, divisors: Mapping[int, Number]) -> None:
    """Raise unless the divisors are positive and name rows of the matrix."""
    require(bool(divisors), "a scaled verdict divides some row")
    for row, divisor in divisors.items():
        require(0 <= row < matrix.shape[0], f"row {row} is outside the matrix")
        require(divisor > 0, f"row {row} is divided by {divisor}")
