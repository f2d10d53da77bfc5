"""Re-check a proof from the matrix alone, by other code than that which found it.

==================  ==============================================================================================
certificate         what is recomputed
==================  ==============================================================================================
reduction           the removals are replayed: each line was zero, unit or a copy up to sign when it went
blocks              every nonzero lies in one part, and parts share no line
network             the tree is a tree, and its incidence matrix times the matrix is the incidence of the arcs
two sum, three sum  the operands are read off the matrix, the sum is composed again, the parts prove the operands
ghouila houri       all sign vectors are listed again (a proof that has no shorter form)
==================  ==============================================================================================

A witness is checked by the exact determinant of its submatrix, its kind and its names. Numbers must be exact: an
index 6.9 or true is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from flowlex.formulations.program_arrays import Integers
from flowlex.validation.unimodularity import verify_sums
from flowlex.validation.unimodularity.determinant import determinant
from flowlex.validation.unimodularity.named_matrix import NamedMatrix, bipartite
from flowlex.validation.unimodularity.proof_checks import ProofError, integers, lines_of, malformed, require, submatrix
from flowlex.validation.unimodularity.proof_types import Certificate, Witness, in_digits, indices


def kind_of(part: Any) -> str:
    """What a square submatrix looks like: ``"entry"``, ``"odd cycle"`` or ``"submatrix"``."""
    pattern = sp.csr_array(part)
    size = int(pattern.shape[0])
    if size == 1:
        return "entry"
    counts = (np.diff(pattern.indptr), np.bincount(pattern.indices, minlength=size))
    if any(np.any(count != 2) for count in counts):
        return "submatrix"
    around = bipartite(sp.csc_array(pattern))
    return "odd cycle" if connected_components(around, directed=False)[0] == 1 else "submatrix"


def check_witness(named: NamedMatrix, witness: Witness) -> None:
    """Raise `ProofError` unless the witness is a submatrix of this matrix that violates total unimodularity."""
    with malformed():
        require(len(witness.rows) == len(witness.columns) > 0, "the witness is not square")
        part = submatrix(named.matrix, witness.rows, witness.columns)
        value = determinant(part)
        require(
            value == witness.determinant,
            f"the submatrix has determinant {in_digits(value)}, not {in_digits(witness.determinant)}",
        )
        require(value not in (-1, 0, 1), f"determinant {in_digits(value)} violates nothing")
        require(witness.kind == kind_of(part), f"the submatrix is of kind {kind_of(part)!r}, not {witness.kind!r}")
        for given, true, what in (
            (witness.row_names, named.names_of_rows(witness.rows), "rows"),
            (witness.column_names, named.names_of_columns(witness.columns), "columns"),
        ):
            require(given == true, f"the {what} of the witness are called {', '.join(true[:5])}")


def check_certificate(matrix: sp.csc_array, certificate: Certificate) -> None:
    """Raise `ProofError` unless the certificate proves this {-1, 0, 1} matrix totally unimodular."""
    with malformed():
        require(
            sorted(indices(certificate.rows)) == list(range(matrix.shape[0]))
            and sorted(indices(certificate.columns)) == list(range(matrix.shape[1])),
            "the certificate does not cover all rows and columns",
        )
        require(bool(np.all(np.abs(matrix.data) == 1)), "an entry is outside {-1, 0, 1}")
        signs = sp.csc_array((matrix.data.astype(np.int64), matrix.indices, matrix.indptr), shape=matrix.shape)
        prove(signs, certificate)


def prove(matrix: sp.csc_array, certificate: Certificate) -> None:
    """Prove the certificate's submatrix of ``matrix`` (indices of ``matrix``)."""
    kinds: dict[str, Callable[[sp.csc_array, Certificate], list[tuple[sp.csc_array, Certificate]]]] = {
        "reduction": _reduction,
        "blocks": _blocks,
        "network": _network,
        "ghouila_houri": verify_sums.ghouila_houri,
        "two_sum": verify_sums.two_sum,
        "three_sum": verify_sums.three_sum,
    }
    waiting = [(matrix, certificate)]
    while waiting:
        whole, proof = waiting.pop()
        require(proof.kind in kinds, f"unknown argument {proof.kind!r}")
        waiting += kinds[proof.kind](whole, proof)


def _reduction(matrix: sp.csc_array, certificate: Certificate) -> list[tuple[sp.csc_array, Certificate]]:
    part = submatrix(matrix, certificate.rows, certificate.columns).tocoo()
    sides = {"row": certificate.rows, "column": certificate.columns}
    lines: dict[tuple[str, int], dict[int, int]] = {(axis, i): {} for axis, all_ in sides.items() for i in all_}
    row_of, column_of = certificate.rows, certificate.columns
    for row, column, value in zip(part.row.tolist(), part.col.tolist(), part.data.tolist(), strict=True):
        lines["row", row_of[row]][column_of[column]] = value
        lines["column", column_of[column]][row_of[row]] = value
    for axis, index, why, other in certificate.data["operations"]:
        require(type(index) is int and type(other) is int, "lines are numbered by integers")
        line = lines.pop((axis, index), None)
        if line is None:
            raise ProofError(f"{axis} {index} is removed twice or is not there")
        if why == "zero":
            require(not line, f"{axis} {index} is not zero when it is removed")
        elif why == "unit":
            require(len(line) == 1, f"{axis} {index} is no unit {axis} when it is removed")
        elif why in ("equal", "opposite"):
            twin = lines.get((axis, other))
            copy = line if why == "equal" else {place: -value for place, value in line.items()}
            require(twin == copy, f"{axis} {index} is no copy of {axis} {other} when it is removed")
        else:
            raise ProofError(f"unknown reason {why!r}")
        across = "column" if axis == "row" else "row"
        for place in line:
            del lines[across, place][index]
    left = {axis: sorted(index for kind, index in lines if kind == axis) for axis in sides}
    if not certificate.parts:
        require(not left["row"] or not left["column"], "the reduction leaves a matrix without a proof")
        return []
    require(len(certificate.parts) == 1, "a reduction has one part")
    rest = certificate.parts[0]
    require(
        sorted(rest.rows) == left["row"] and sorted(rest.columns) == left["column"],
        "the part of a reduction is not what it leaves",
    )
    return [(matrix, rest)]


def _blocks(matrix: sp.csc_array, certificate: Certificate) -> list[tuple[sp.csc_array, Certificate]]:
    for lines in ("rows", "columns"):
        named = [line for part in certificate.parts for line in getattr(part, lines)]
        require(len(set(named)) == len(named), f"blocks share {lines}")
        require(set(named) <= set(getattr(certificate, lines)), "a block reaches outside")
    nonzeros = sum(submatrix(matrix, part.rows, part.columns).nnz for part in certificate.parts)
    whole = submatrix(matrix, certificate.rows, certificate.columns)
    require(nonzeros == whole.nnz, "the blocks miss some nonzeros")
    return [(matrix, part) for part in certificate.parts]


def _network(matrix: sp.csc_array, certificate: Certificate) -> list[tuple[sp.csc_array, Certificate]]:
    """The columns are the only solution of (incidence of the tree) x = (incidence of the arcs)."""
    data = certificate.data
    require(type(data["transposed"]) is bool, "transposed is true or false")
    part = lines_of(matrix, certificate, by="rows" if data["transposed"] else "columns")
    rows, columns = map(int, part.shape)
    ends = [integers(data[key]) for key in ("tree_tail", "tree_head", "arc_tail", "arc_head")]
    require([len(end) for end in ends] == [rows, rows, columns, columns], "one arc per line")
    for end in ends:
        require(bool(np.all((end >= 0) & (end <= rows))), "an arc ends outside the tree")
    tree, arcs = _incidence(ends[0], ends[1], rows + 1), _incidence(ends[2], ends[3], rows + 1)
    pairs = sp.csr_array((np.ones(rows, np.int8), (ends[0], ends[1])), shape=(rows + 1, rows + 1))
    require(connected_components(pairs, directed=False)[0] == 1, "the tree arcs do not form a tree")
    off = (tree @ part - arcs).tocoo()
    wrong = off.col[off.data != 0]
    require(not wrong.size, f"line {int(wrong[0]) if wrong.size else 0} is not the path of its arc")
    return []


def _incidence(tail: Integers, head: Integers, nodes: int) -> sp.csc_array:
    """+1 at the tail, -1 at the head; loops vanish."""
    arcs = np.arange(len(tail))
    entries = np.repeat(np.array([1, -1], np.int64), len(tail))
    places = (np.concatenate([tail, head]), np.concatenate([arcs, arcs]))
    return sp.csc_array(sp.coo_array((entries, places), shape=(nodes, len(tail))))
