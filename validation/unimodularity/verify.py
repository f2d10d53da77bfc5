"""Re-checks a verdict's proof from the matrix alone, by other code than the one that found it.

==================  ==============================================================================================
certificate         what is recomputed
==================  ==============================================================================================
divided rows        every row named has one absolute value; the part proves the divided matrix
reduction           the removals are replayed: each line was zero, unit or a copy up to sign when it went
blocks              every nonzero lies in one part, and parts share lines as in a forest
heller tompkins     negating one part of the lines leaves no two entries of one sign in a column (row)
consecutive ones    every column (row) is one block of equal entries
network             the tree is a tree, and every column is the signed path between the ends of its arc
two sum, three sum  the operands are rebuilt from the matrix, the parts prove them, the sum is composed again
ghouila houri       the list of all sign vectors is made again (a proof that has no shorter form)
eulerian program    HiGHS solves the integer program again (its word, not a proof on paper)
cmr                 CMR is asked again (its word; without the ``tu`` extra this proof cannot be checked)
==================  ==============================================================================================

A witness is checked by the exact determinant of its submatrix.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.determinant import determinant
from flowlex.validation.unimodularity.matrix import canonical, exact, fingerprint, matrix_of
from flowlex.validation.unimodularity.verdict import Answer, Certificate, Verdict, Witness

__all__ = ["OTHER_MATRIX", "verification_error"]

#: How the reason starts when the verdict is about another matrix.
OTHER_MATRIX = "the verdict is for another matrix"


class _Failed(Exception):
    """The proof does not hold; the text says where."""


def verification_error(verdict: Verdict, source: Any) -> str:
    """Return why the verdict's proof does not hold for this matrix; empty when it holds.

    Parameters
    ----------
    verdict
        Of `check`, or read from a file.
    source
        The matrix, in any form `matrix_of` takes.
    """
    matrix = matrix_of(source).matrix
    try:
        if tuple(matrix.shape) != verdict.shape:
            mine = f"{matrix.shape[0]} x {matrix.shape[1]}"
            theirs = f"{verdict.shape[0]} x {verdict.shape[1]}"
            raise _Failed(f"{OTHER_MATRIX}: it speaks of {theirs}, this is {mine}")
        if fingerprint(matrix) != verdict.fingerprint or matrix.nnz != verdict.nonzeros:
            raise _Failed(f"{OTHER_MATRIX} of the same shape: the entries differ")
        if verdict.answer is Answer.UNDECIDED:
            raise _Failed("the verdict is undecided: there is no proof to check")
        if verdict.answer is Answer.NOT_TU:
            if verdict.witness is None or verdict.certificate is not None:
                raise _Failed("a verdict 'not_tu' carries a witness and nothing else")
            _witness(matrix, verdict.witness)
        else:
            if verdict.certificate is None or verdict.witness is not None:
                raise _Failed("a verdict 'tu' carries a certificate and nothing else")
            _certificate(matrix, verdict.certificate)
    except _Failed as failure:
        return str(failure)
    except (KeyError, TypeError, IndexError, ValueError, OverflowError, RecursionError) as error:
        return f"the proof is malformed: {type(error).__name__} {error}"
    return ""


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise _Failed(reason)


def _submatrix(matrix: sp.csc_array, rows: Any, columns: Any) -> sp.csc_array:
    for indices, limit, what in ((rows, matrix.shape[0], "rows"), (columns, matrix.shape[1], "columns")):
        array = np.asarray(indices, dtype=np.int64)
        _require(bool(np.all((array >= 0) & (array < limit))), f"{what} outside the matrix")
        _require(len(np.unique(array)) == len(array), f"{what} named twice")
    part = sp.csc_array(matrix[:, np.asarray(columns, dtype=np.int64)])
    part = sp.csc_array(part[np.asarray(rows, dtype=np.int64)])
    part.sort_indices()
    return part


def _witness(matrix: sp.csc_array, witness: Witness) -> None:
    _require(len(witness.rows) == len(witness.columns) > 0, "the witness is not square")
    part = _submatrix(matrix, witness.rows, witness.columns)
    if witness.row_divisors:
        _require(len(witness.row_divisors) == len(witness.rows), "one divisor per row of the witness")
        whole = matrix.tocsr()
        lines = []
        for row, divisor in zip(witness.rows, witness.row_divisors, strict=True):
            values = [exact(value) for value in whole.data[whole.indptr[row] : whole.indptr[row + 1]]]
            divided = divisor == 1 or all(abs(value) == divisor for value in values)
            _require(divided, f"row {row} is no multiple of {divisor} by -1, 0, 1")
            lines.append(divisor)
        dense = part.toarray()
        signed = [
            [_integer(Fraction(exact(value)) / line) for value in row] for row, line in zip(dense, lines, strict=True)
        ]
        value = determinant(np.array(signed, dtype=object) if len(signed) < 2 else _object(signed))
    else:
        value = determinant(part)
    _require(value == witness.determinant, f"the submatrix has determinant {value}, not {witness.determinant}")
    _require(value not in (-1, 0, 1), f"determinant {value} violates nothing")


def _integer(value: Fraction) -> int:
    _require(value.denominator == 1, "a divided entry is no integer")
    return int(value)


def _object(rows: list[list[int]]) -> np.ndarray:
    return np.array(rows, dtype=np.int64)


def _certificate(matrix: sp.csc_array, certificate: Certificate) -> None:
    _require(
        sorted(certificate.rows) == list(range(matrix.shape[0]))
        and sorted(certificate.columns) == list(range(matrix.shape[1])),
        "the certificate does not cover all rows and columns",
    )
    if certificate.kind == "divided_rows":
        divided = matrix.tocsr().astype(object) if matrix.dtype == object else matrix.tocsr().copy()
        rows, divisors = certificate.data["rows"], certificate.data["divisors"]
        _require(len(rows) == len(divisors) == len(set(rows)), "one divisor per divided row")
        for row, divisor in zip(rows, divisors, strict=True):
            part = slice(int(divided.indptr[row]), int(divided.indptr[row + 1]))
            values = [exact(value) for value in divided.data[part]]
            _require(all(abs(value) == Fraction(divisor) for value in values), f"row {row} is not +-{divisor}")
            divided.data[part] = np.sign(divided.data[part])
        matrix = canonical(divided)
        certificate = _only_part(certificate)
    _require(bool(np.all(np.abs(matrix.data) == 1)), "an entry is outside {-1, 0, 1}")
    signs = sp.csc_array((matrix.data.astype(np.int64), matrix.indices, matrix.indptr), shape=matrix.shape)
    _prove(signs, certificate, depth=0)


def _only_part(certificate: Certificate) -> Certificate:
    _require(len(certificate.parts) == 1, f"{certificate.kind} has one part")
    part = certificate.parts[0]
    _require(
        set(part.rows) == set(certificate.rows) and set(part.columns) == set(certificate.columns),
        f"the part of {certificate.kind} is about other rows or columns",
    )
    return part


def _prove(matrix: sp.csc_array, certificate: Certificate, depth: int) -> None:
    """Prove the certificate's submatrix of ``matrix`` (indices of ``matrix``)."""
    kinds: dict[str, Callable[[sp.csc_array, Certificate, int], None]] = {
        "reduction": _reduction,
        "blocks": _blocks,
        "heller_tompkins": _heller_tompkins,
        "consecutive_ones": _consecutive_ones,
        "network": _network,
        "ghouila_houri": _ghouila_houri,
        "eulerian_program": _eulerian,
        "two_sum": _sum,
        "three_sum": _sum,
        "cmr": _cmr,
    }
    _require(certificate.kind in kinds, f"unknown argument {certificate.kind!r}")
    kinds[certificate.kind](matrix, certificate, depth + 1)


def _reduction(matrix: sp.csc_array, certificate: Certificate, depth: int) -> None:
    part = _submatrix(matrix, certificate.rows, certificate.columns).tocoo()
    sides = {"row": certificate.rows, "column": certificate.columns}
    lines: dict[tuple[str, int], dict[int, int]] = {(axis, i): {} for axis, all_ in sides.items() for i in all_}
    row_of, column_of = certificate.rows, certificate.columns
    for row, column, value in zip(part.row.tolist(), part.col.tolist(), part.data.tolist(), strict=True):
        lines["row", row_of[row]][column_of[column]] = value
        lines["column", column_of[column]][row_of[row]] = value
    for axis, index, why, other in certificate.data["operations"]:
        line = lines.pop((axis, index), None)
        if line is None:
            raise _Failed(f"{axis} {index} is removed twice or is not there")
        if why == "zero":
            _require(not line, f"{axis} {index} is not zero when it is removed")
        elif why == "unit":
            _require(len(line) == 1, f"{axis} {index} is no unit {axis} when it is removed")
        elif why in ("equal", "opposite"):
            twin = lines.get((axis, other))
            copy = line if why == "equal" else {place: -value for place, value in line.items()}
            _require(twin == copy, f"{axis} {index} is no copy of {axis} {other} when it is removed")
        else:
            raise _Failed(f"unknown reason {why!r}")
        across = "column" if axis == "row" else "row"
        for place in line:
            del lines[across, place][index]
    left = {axis: sorted(index for kind, index in lines if kind == axis) for axis in sides}
    if not certificate.parts:
        _require(not left["row"] and not left["column"], "the reduction leaves a matrix without a proof")
        return
    _require(len(certificate.parts) == 1, "a reduction has one part")
    rest = certificate.parts[0]
    _require(
        sorted(rest.rows) == left["row"] and sorted(rest.columns) == left["column"],
        "the part of a reduction is not what it leaves",
    )
    _prove(matrix, rest, depth)


def _blocks(matrix: sp.csc_array, certificate: Certificate, depth: int) -> None:
    whole = _submatrix(matrix, certificate.rows, certificate.columns)
    rows, columns = set(certificate.rows), set(certificate.columns)
    parent: dict[tuple[str, int], tuple[str, int]] = {}

    def find(node: tuple[str, int]) -> tuple[str, int]:
        root = node
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[node] != root:
            parent[node], node = root, parent[node]
        return root

    nonzeros = 0
    for number, part in enumerate(certificate.parts):
        _require(rows.issuperset(part.rows) and columns.issuperset(part.columns), "a block reaches outside")
        for line in [*(("row", row) for row in part.rows), *(("column", column) for column in part.columns)]:
            one, two = find(("part", number)), find(line)
            _require(one != two, "blocks share more than one line")
            parent[one] = two
        nonzeros += _submatrix(matrix, part.rows, part.columns).nnz
    _require(nonzeros == whole.nnz, "the blocks miss some nonzeros")
    for part in certificate.parts:
        _prove(matrix, part, depth)


def _heller_tompkins(matrix: sp.csc_array, certificate: Certificate, depth: int) -> None:
    part = _lines_of(matrix, certificate, by=certificate.data["by"])
    side = np.asarray(certificate.data["part"], dtype=np.int64)
    _require(len(side) == part.shape[0] and bool(np.all((side == 0) | (side == 1))), "one part, 0 or 1, per line")
    counts = np.diff(part.indptr)
    _require(int(counts.max(initial=0)) <= 2, "a line has three nonzeros")
    turned = part.data * (1 - 2 * side[part.indices])
    sums = np.bincount(np.repeat(np.arange(part.shape[1]), counts), weights=turned, minlength=part.shape[1])
    _require(bool(np.all(sums[counts == 2] == 0)), "two entries of a line do not fit the two parts")


def _lines_of(matrix: sp.csc_array, certificate: Certificate, *, by: str) -> sp.csc_array:
    """The certificate's submatrix, turned so that the lines spoken of are columns."""
    _require(by in ("columns", "rows"), "by is 'columns' or 'rows'")
    part = _submatrix(matrix, certificate.rows, certificate.columns)
    if by == "rows":
        part = sp.csc_array(part.T)
        part.sort_indices()
    return part


def _consecutive_ones(matrix: sp.csc_array, certificate: Certificate, depth: int) -> None:
    part = _lines_of(matrix, certificate, by=certificate.data["by"])
    counts = np.diff(part.indptr)
    full = np.flatnonzero(counts)
    first, last = part.indices[part.indptr[full]], part.indices[part.indptr[full + 1] - 1]
    _require(bool(np.all(last - first + 1 == counts[full])), "a line is not consecutive")
    head = part.data[part.indptr[full]]
    _require(bool(np.all(np.repeat(head, counts[full]) == part.data)), "a line has both signs")


def _network(matrix: sp.csc_array, certificate: Certificate, depth: int) -> None:
    data = certificate.data
    part = _lines_of(matrix, certificate, by="rows" if data["transposed"] else "columns")
    rows, columns = part.shape
    tail, head, arc_tail, arc_head = (
        np.asarray(data[key], dtype=np.int64) for key in ("tree_tail", "tree_head", "arc_tail", "arc_head")
    )
    _require(len(tail) == len(head) == rows and len(arc_tail) == len(arc_head) == columns, "one arc per line")
    for ends in (tail, head, arc_tail, arc_head):
        _require(bool(np.all((ends >= 0) & (ends <= rows))), "an arc ends outside the tree")
    above, arc, depth_of = _rooted(tail, head)
    for column in range(columns):
        wanted = dict(
            zip(
                part.indices[part.indptr[column] : part.indptr[column + 1]].tolist(),
                part.data[part.indptr[column] : part.indptr[column + 1]].tolist(),
                strict=True,
            )
        )
        one, two = int(arc_tail[column]), int(arc_head[column])
        while one != two:
            climb = depth_of[one] >= depth_of[two]
            low = one if climb else two
            row = arc[low]
            # Up from the tail runs along an arc that leaves the lower end; down to the head, along one that enters.
            along = (tail[row] == low) == climb
            _require(wanted.pop(row, 0) == (1 if along else -1), f"line {column} is not the path of its arc")
            if climb:
                one = above[low]
            else:
                two = above[low]
        _require(not wanted, f"line {column} has entries off the path of its arc")


def _rooted(tail: np.ndarray, head: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """Root the tree at node 0: per node its parent, the arc to it and its depth."""
    nodes = len(tail) + 1
    near: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
    for row, (one, two) in enumerate(zip(tail.tolist(), head.tolist(), strict=True)):
        near[one].append((two, row))
        near[two].append((one, row))
    above, arc, depth = [-1] * nodes, [-1] * nodes, [-1] * nodes
    depth[0] = 0
    stack = [0]
    seen = 1
    while stack:
        here = stack.pop()
        for far, row in near[here]:
            if depth[far] < 0:
                above[far], arc[far], depth[far] = here, row, depth[here] + 1
                stack.append(far)
                seen += 1
    _require(seen == nodes, "the tree arcs do not form a tree")
    return above, arc, depth


def _ghouila_houri(matrix: sp.csc_array, certificate: Certificate, depth: int) -> None:
    from flowlex.validation.unimodularity.ghouila_houri import uncolourable_rows

    part = _lines_of(matrix, certificate, by=certificate.data["by"])
    # "by rows" lists subsets of rows, "by columns" those of columns; _lines_of turned the matrix for "rows".
    listed = sp.csc_array(part.T)
    _require(uncolourable_rows(listed) is None, "some set has no equitable bicolouring")


def _eulerian(matrix: sp.csc_array, certificate: Certificate, depth: int) -> None:
    from flowlex.validation.unimodularity.eulerian_program import eulerian_search

    part = _submatrix(matrix, certificate.rows, certificate.columns)
    status = eulerian_search(part, seconds=600.0, seed=1).status
    _require(status == "infeasible", f"the integer program is {status} when solved again")


def _cmr(matrix: sp.csc_array, certificate: Certificate, depth: int) -> None:
    from flowlex.validation.unimodularity.cmr import ask_cmr

    answer = ask_cmr(_submatrix(matrix, certificate.rows, certificate.columns), seconds=600.0)
    _require(answer.status == "tu", f"CMR, asked again, answers: {answer.status} {answer.reason}".rstrip())


def _sum(matrix: sp.csc_array, certificate: Certificate, depth: int) -> None:
    from flowlex.validation.unimodularity.sums import rebuild

    part = _submatrix(matrix, certificate.rows, certificate.columns)
    for operand, proof in zip(rebuild(part, certificate), certificate.parts, strict=True):
        _require(
            sorted(proof.rows) == list(range(operand.shape[0]))
            and sorted(proof.columns) == list(range(operand.shape[1])),
            "the proof of an operand is about another matrix",
        )
        _prove(operand, proof, depth)
