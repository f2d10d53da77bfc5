"""Submatrices with their place in the whole, and what can be found about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from flowlex.validation.unimodularity.determinant import determinant
from flowlex.validation.unimodularity.matrix import NamedMatrix
from flowlex.validation.unimodularity.verdict import Certificate, Witness

__all__ = ["Found", "Part", "TimeIsUp", "certificates_of", "with_division", "witness_of"]

Array = NDArray[np.int64]


class TimeIsUp(Exception):
    """The deadline has passed."""


@dataclass(frozen=True)
class Found:
    """A proof or a refutation of one part: a certificate, or rows and columns with the name of the find."""

    certificate: Certificate | None = None
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()
    found_by: str = ""


@dataclass(frozen=True)
class Part:
    """A submatrix and its place in the whole."""

    matrix: sp.csc_array
    rows: Array
    columns: Array

    def prove(self, kind: str, data: dict[str, Any] | None = None, parts: tuple[Certificate, ...] = ()) -> Found:
        """Wrap a proof of this part."""
        rows, columns = tuple(self.rows.tolist()), tuple(self.columns.tolist())
        return Found(Certificate(kind, rows, columns, data or {}, parts))

    def refute(self, rows: Any, columns: Any, found_by: str) -> Found:
        """Wrap a violating submatrix of this part (local indices)."""
        return Found(None, tuple(self.rows[list(rows)].tolist()), tuple(self.columns[list(columns)].tolist()), found_by)

    def cut(self, rows: Array, columns: Array) -> Part:
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


def certificates_of(proofs: list[Found | None]) -> list[Certificate]:
    """The certificates among these proofs."""
    return [proof.certificate for proof in proofs if proof is not None and proof.certificate is not None]


def with_division(certificate: Certificate, divisors: Mapping[int, int | Fraction]) -> Certificate:
    """Say in the proof which rows were divided before it."""
    if not divisors:
        return certificate
    plain = [value if isinstance(value, int) else str(value) for value in divisors.values()]
    data = {"rows": list(divisors), "divisors": plain}
    return replace(certificate, kind="divided_rows", data=data, parts=(certificate,))


def witness_of(
    found: Found, named: NamedMatrix, divided: sp.csc_array, divisors: Mapping[int, int | Fraction]
) -> Witness:
    """Name a violating submatrix and compute its determinant exactly."""
    entry = found.found_by == "entry"
    source = named.matrix if entry else divided
    value = determinant(source.tocsr()[list(found.rows)][:, list(found.columns)])
    if value in (-1, 0, 1):
        raise AssertionError(f"{found.found_by} gave no witness; please report this matrix")
    changed = not entry and any(row in divisors for row in found.rows)
    return Witness(
        found.rows,
        found.columns,
        value,
        found.found_by,
        named.names_of_rows(found.rows),
        named.names_of_columns(found.columns),
        tuple(divisors.get(row, 1) for row in found.rows) if changed else (),
    )
