"""Exact determinants of sparse integer (or rational) matrices.

Entries of +-1 are eliminated first, sparsest row first, which costs next to nothing on cycles and other
sparse witnesses; what is left goes through Bareiss' fraction-free elimination. Python integers throughout.
"""

from __future__ import annotations

import heapq
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.matrix import exact

__all__ = ["bareiss", "determinant", "violates"]

Number = int | Fraction


def determinant(matrix: Any) -> Number:
    """Return the determinant of a square matrix (SciPy sparse or dense), exactly.

    Raises
    ------
    ValueError
        If the matrix is not square.
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


def violates(matrix: Any) -> bool:
    """Whether the determinant is not -1, 0 or 1."""
    return determinant(matrix) not in (-1, 0, 1)


def _eliminate(rows: list[dict[int, Number]]) -> Number:
    size = len(rows)
    columns: list[set[int]] = [set() for _ in range(size)]
    for row, entries in enumerate(rows):
        for column in entries:
            columns[column].add(row)
    live_rows = set(range(size))
    pivots: dict[int, int] = {}
    product: Number = 1
    heap = [(len(entries), row) for row, entries in enumerate(rows)]
    heapq.heapify(heap)
    while heap:
        length, row = heapq.heappop(heap)
        if row not in live_rows or length != len(rows[row]):
            continue
        units = [column for column, value in rows[row].items() if value in (1, -1)]
        if not units:
            if not rows[row]:
                return 0
            continue
        pivot = min(units, key=lambda column: len(columns[column]))
        product *= rows[row][pivot]
        pivots[row] = pivot
        live_rows.discard(row)
        _clear_column(rows, columns, row, pivot, heap)
    rest = sorted(live_rows)
    free = sorted(set(range(size)) - set(pivots.values()))
    pivots.update(zip(rest, free, strict=True))
    dense = [[rows[row].get(column, 0) for column in free] for row in rest]
    return product * _permutation_sign([pivots[row] for row in range(size)]) * bareiss(dense)


def _clear_column(
    rows: list[dict[int, Number]],
    columns: list[set[int]],
    row: int,
    pivot: int,
    heap: list[tuple[int, int]],
) -> None:
    source = rows[row]
    for column in source:
        columns[column].discard(row)
    for other in list(columns[pivot]):
        target = rows[other]
        factor = target[pivot] * source[pivot]  # the pivot is +-1, so this is the exact quotient
        for column, value in source.items():
            new = target.get(column, 0) - factor * value
            if new == 0:
                target.pop(column, None)
                columns[column].discard(other)
            else:
                target[column] = new
                columns[column].add(other)
        heapq.heappush(heap, (len(target), other))


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


def bareiss(matrix: list[list[Number]] | np.ndarray) -> Number:
    """Return the determinant of a dense matrix by fraction-free elimination."""
    rows = [[exact(value) for value in row] for row in matrix]
    if any(isinstance(value, Fraction) for row in rows for value in row):
        rows = [[Fraction(value) for value in row] for row in rows]
    sign: int = 1
    previous: Number = 1
    for step in range(len(rows) - 1):
        pivot = next((row for row in range(step, len(rows)) if rows[row][step] != 0), None)
        if pivot is None:
            return 0
        if pivot != step:
            rows[step], rows[pivot] = rows[pivot], rows[step]
            sign = -sign
        top = rows[step]
        for row in rows[step + 1 :]:
            head = row[step]
            for column in range(step + 1, len(rows)):
                value = row[column] * top[step] - head * top[column]
                row[column] = value // previous if isinstance(value, int) else value / previous
        previous = top[step]
    return exact(sign * rows[-1][-1]) if rows else 1
