"""Submatrices with their position in the whole matrix, and proofs or refutations found for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.formulations.program_arrays import Integers
from flowlex.validation.unimodularity.determinant import determinant
from flowlex.validation.unimodularity.named_matrix import NamedMatrix
from flowlex.validation.unimodularity.proof_types import Certificate, Witness
from flowlex.validation.unimodularity.verify_proof import kind_of


@dataclass(frozen=True)
class Found:
    """A proof or a refutation of one part: a certificate, or rows and columns of a violating submatrix."""

    certificate: Certificate | None = None
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()


@dataclass(frozen=True)
class Part:
    """A submatrix and its position in the whole matrix."""

    matrix: sp.csc_array
    rows: Integers
    columns: Integers

    def prove(self, kind: str, data: dict[str, Any] | None = None, parts: tuple[Certificate, ...] = ()) -> Found:
        """Wrap a proof of this part."""
        rows, columns = tuple(self.rows.tolist()), tuple(self.columns.tolist())
        return Found(Certificate(kind, rows, columns, data or {}, parts))

    def refute(self, rows: Any, columns: Any) -> Found:
        """Wrap a violating submatrix of this part (local indices)."""
        return Found(None, tuple(self.rows[list(rows)].tolist()), tuple(self.columns[list(columns)].tolist()))

    def cut(self, rows: Integers, columns: Integers) -> Part:
        """The submatrix with these local rows and columns."""
        piece = sp.csc_array(sp.csc_array(self.matrix[:, columns])[rows])
        piece.sort_indices()
        return Part(piece, self.rows[rows], self.columns[columns])

    @property
    def transposed(self) -> sp.csc_array:
        """The transpose in canonical form."""
        turned = sp.csc_array(self.matrix.T)
        turned.sort_indices()
        return turned


def whole(matrix: sp.csc_array) -> Part:
    """A matrix as the part that is all of it."""
    rows, columns = map(int, matrix.shape)
    return Part(matrix, np.arange(rows), np.arange(columns))


def witness_of(found: Found, named: NamedMatrix) -> Witness:
    """Name a violating submatrix and compute its determinant exactly."""
    part = named.matrix.tocsr()[list(found.rows)][:, list(found.columns)]
    value = determinant(part)
    if value in (-1, 0, 1):
        raise AssertionError("a submatrix found violates nothing; please report this matrix")
    rows, columns = found.rows, found.columns
    names = named.names_of_rows(rows), named.names_of_columns(columns)
    return Witness(rows, columns, value, kind_of(part), *names)
