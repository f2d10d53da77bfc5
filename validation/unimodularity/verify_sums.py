"""`verify_proof` for sums and bicolourings."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.formulations.program_arrays import Integers
from flowlex.validation.unimodularity.proof_checks import lines_of, require, submatrix
from flowlex.validation.unimodularity.proof_types import Certificate, indices

Rest = list[tuple[sp.csc_array, Certificate]]


def two_sum(matrix: sp.csc_array, certificate: Certificate) -> Rest:
    """The matrix is [A 0; d c B], and [A; c] and [d B] are proven."""
    whole, rows, columns = _split(matrix, certificate)
    row, column = _entry(certificate.data["entry"], rows, columns, of_x=False)
    one = np.vstack([whole[rows][:, columns], whole[row, columns]])
    two = np.hstack([whole[~rows][:, [column]], whole[~rows][:, ~columns]])
    corner = np.zeros((int(rows.sum()), int((~columns).sum())), np.int64)
    composed = np.block([[one[:-1], corner], [np.outer(two[:, 0] * whole[row, column], one[-1]), two[:, 1:]]])
    require(bool(whole[row, column] != 0) and _is(whole, rows, columns, composed), "the 2-sum is another matrix")
    return _operands(certificate, one, two)


def three_sum(matrix: sp.csc_array, certificate: Certificate) -> Rest:
    """After the pivot the matrix is [A ab; dc B]; [A a a; c 0 s] and [s 0 b; d d B] are proven."""
    data = certificate.data
    whole, rows, columns = _split(matrix, certificate)
    if data["pivot"] is not None:
        whole = _exchange(whole, *_pair(data["pivot"]))
    sign = data["sign"]
    require(type(sign) is int and sign in (1, -1), "the sign of a 3-sum is 1 or -1")
    row, column = _entry(data["entry"], rows, columns, of_x=False)
    top, side = _entry(data["other_entry"], rows, columns, of_x=True)
    c, d = whole[row, columns], whole[~rows, column] * whole[row, column]
    a, b = whole[rows, side], whole[top, ~columns] * whole[top, side]
    block_a, block_b = whole[rows][:, columns], whole[~rows][:, ~columns]
    composed = np.block([[block_a, np.outer(a, b)], [np.outer(d, c), block_b]])
    full = whole[row, column] != 0 and whole[top, side] != 0
    require(bool(full) and _is(whole, rows, columns, composed), "the 3-sum is another matrix")
    one = np.block([[block_a, a[:, None], a[:, None]], [c, np.array([0, sign])]])
    two = np.block([[np.array([sign, 0]), b], [d[:, None], d[:, None], block_b]])
    return _operands(certificate, one, two)


def _split(matrix: sp.csc_array, certificate: Certificate) -> tuple[Integers, Any, Any]:
    whole = submatrix(matrix, certificate.rows, certificate.columns).toarray()
    flags = [np.asarray(indices(certificate.data[side])) for side in ("rows", "columns")]
    for flag, size in zip(flags, whole.shape, strict=True):
        require(len(flag) == size and set(flag.tolist()) <= {0, 1}, "one side, 0 or 1, per line of a sum")
    return whole, flags[0] == 1, flags[1] == 1


def _pair(values: Any) -> tuple[int, int]:
    row, column = indices(values)
    return row, column


def _entry(values: Any, rows: Any, columns: Any, *, of_x: bool) -> tuple[int, int]:
    row, column = _pair(values)
    inside = 0 <= row < len(rows) and 0 <= column < len(columns)
    require(inside, "an entry of a sum lies outside the matrix")
    require(bool(rows[row] == of_x and columns[column] != of_x), "an entry of a sum is on the wrong side")
    return row, column


def _is(whole: Integers, rows: Any, columns: Any, composed: Integers) -> bool:
    order = [np.concatenate([np.flatnonzero(flag), np.flatnonzero(~flag)]) for flag in (rows, columns)]
    return np.array_equal(whole[np.ix_(*order)], composed)


def _exchange(whole: Integers, row: int, column: int) -> Integers:
    """The tableau after the exchange of a basic and a nonbasic variable, entry by entry as in the textbook."""
    require(0 <= row < whole.shape[0] and 0 <= column < whole.shape[1], "the pivot lies outside the matrix")
    value = int(whole[row, column])
    require(value in (1, -1), "the pivot is not 1 or -1")
    new: Integers = whole - np.outer(whole[:, column], whole[row]) // value
    new[row], new[:, column], new[row, column] = whole[row] * value, -whole[:, column] * value, value
    require(int(np.abs(new).max()) <= 1, "the pivot leads outside {-1, 0, 1}")
    return new


def _operands(certificate: Certificate, *operands: Integers) -> Rest:
    require(len(certificate.parts) == len(operands), "a sum has two parts")
    rest = []
    for dense, proof in zip(operands, certificate.parts, strict=True):
        covers = [sorted(indices(lines)) for lines in (proof.rows, proof.columns)]
        require(
            covers == [list(range(side)) for side in dense.shape], "the proof of an operand is about another matrix"
        )
        rest.append((sp.csc_array(dense), proof))
    return rest


def ghouila_houri(matrix: sp.csc_array, certificate: Certificate) -> Rest:
    """Every set of lines has a sign vector with sums in {-1, 0, 1}: all vectors are numbered in base three."""
    lines = lines_of(matrix, certificate, by=certificate.data["by"]).toarray()
    size = lines.shape[1]
    lines = lines.T  # "by rows" speaks of sets of rows, and lines_of made them columns
    require(size <= 12, f"{size} lines are too many to list all their sign vectors")
    fair = np.zeros(1 << size, dtype=bool)
    for start in range(0, 3**size, 1 << 14):
        number = np.arange(start, min(3**size, start + (1 << 14)))
        signs = number[:, None] // 3 ** np.arange(size) % 3 - 1
        good = signs[np.abs(signs @ lines).max(axis=1, initial=0) <= 1]
        fair[np.abs(good) @ (1 << np.arange(size))] = True
    require(bool(fair.all()), "some set has no equitable bicolouring")
    return []
