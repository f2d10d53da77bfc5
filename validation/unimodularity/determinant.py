"""Exact determinants of sparse integer (or rational) matrices.

The sparsest row goes first, on an entry of +-1 where it has one, which costs next to nothing on cycles and other
sparse witnesses. Python integers and fractions throughout.
"""

from __future__ import annotations

import heapq
from fractions import Fraction
from typing import Any

import scipy.sparse as sp

from flowlex.validation.unimodularity.named_matrix import exact

Number = int | Fraction


def determinant(matrix: Any) -> Number:
    """Return the determinant of a square matrix (SciPy sparse or dense), exactly.

    Raises `ValueError` if the matrix is not square.
    """
    array = sp.coo_array(matrix)
    if array.shape[0] != array.shape[1]:
        raise ValueError(f"a determinant needs a square matrix, this is {array.shape[0]} x {array.shape[1]}")
    rows: list[dict[int, Number]] = [{} for _ in range(array.shape[0])]
    for row, column, value in zip(array.row.tolist(), array.col.tolist(), array.data, strict=True):
        total = rows[row].get(column, 0) + exact(value)
        if total == 0:
            rows[row].pop(column, None)
        else:
            rows[row][column] = total
    return _eliminate(rows)


def _eliminate(rows: list[dict[int, Number]]) -> Number:
    """Gauss elimination, the shortest row first and on +-1 where it has one."""
    columns: dict[int, set[int]] = {column: set() for column in range(len(rows))}
    for row, entries in enumerate(rows):
        for column in entries:
            columns[column].add(row)
    heap = [(len(entries), row) for row, entries in enumerate(rows)]
    heapq.heapify(heap)
    images: dict[int, int] = {}
    product: Number = 1
    while heap:
        length, row = heapq.heappop(heap)
        if row in images or length != len(rows[row]):
            continue
        if not length:
            return 0
        source = rows[row]
        pivot = min(source, key=lambda column: (source[column] not in (1, -1), len(columns[column])))
        images[row], value = pivot, source[pivot]
        product *= value
        for column in source:
            columns[column].discard(row)
        for other in list(columns[pivot]):
            target = rows[other]
            factor = exact(Fraction(target[pivot]) / value)
            for column, entry in source.items():
                target[column] = target.get(column, 0) - factor * entry
                if target[column]:
                    columns[column].add(other)
                else:
                    del target[column]
                    columns[column].discard(other)
            heapq.heappush(heap, (len(target), other))
    return exact(product * _permutation_sign([images[row] for row in range(len(rows))]))


def _permutation_sign(images: list[int]) -> int:
    sign, seen = 1, [False] * len(images)
    for start in range(len(images)):
        length, here = 0, start
        while not seen[here]:
            seen[here] = True
            here = images[here]
            length += 1
        if length and length % 2 == 0:
            sign = -sign
    return sign
