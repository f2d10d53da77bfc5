"""What all re-checks of `verify_proof` share: requirements, exact integers, submatrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.errors import FlowlexError
from flowlex.formulations.program_arrays import Integers
from flowlex.validation.unimodularity.proof_types import Certificate, indices


class ProofError(FlowlexError):
    """The proof does not hold; the text says where."""


class Standing(StrEnum):
    """Result of judging one statement of a file.

    ``proven`` statements follow from the file and the matrix; ``quoted`` ones could not be proven nor refuted;
    ``reported`` ones (durations, steps) say how the answer was found and nothing about the matrix.
    """

    PROVEN = "proven"
    QUOTED = "quoted"
    REFUSED = "refused"
    REPORTED = "reported"


@dataclass(frozen=True)
class Judged:
    """One statement of a file, and how it was judged."""

    statement: str
    standing: Standing
    detail: str = ""


def judged(statement: str, check: Callable[[], str | None]) -> Judged:
    """Judge a statement: refused if ``check`` raises `ProofError`, quoted if it returns why, else proven."""
    try:
        with malformed():
            open_ = check()
    except ProofError as failure:
        return Judged(statement, Standing.REFUSED, str(failure))
    return Judged(statement, Standing.QUOTED, open_) if open_ else Judged(statement, Standing.PROVEN)


def require(holds: bool, reason: str) -> None:
    """Raise `ProofError` unless it holds."""
    if not holds:
        raise ProofError(reason)


@contextmanager
def malformed() -> Iterator[None]:
    """Turn every exception from malformed data into a `ProofError`."""
    try:
        yield
    except (KeyError, TypeError, IndexError, ValueError, OverflowError, RecursionError, AttributeError) as error:
        raise ProofError(f"the proof is malformed: {type(error).__name__} {error}") from error


def integers(values: Any) -> Integers:
    """A list of integers, exactly."""
    return np.asarray(indices(values), dtype=np.int64)


def submatrix(matrix: sp.csc_array, rows: Any, columns: Any) -> sp.csc_array:
    """The submatrix of these rows and columns, each named once."""
    chosen = integers(rows), integers(columns)
    for array, limit, what in zip(chosen, matrix.shape, ("rows", "columns"), strict=True):
        require(bool(np.all((array >= 0) & (array < limit))), f"{what} outside the matrix")
        require(len(np.unique(array)) == len(array), f"{what} named twice")
    part = sp.csc_array(sp.csc_array(matrix[:, chosen[1]])[chosen[0]])
    part.sort_indices()
    return part


def lines_of(matrix: sp.csc_array, certificate: Certificate, *, by: str) -> sp.csc_array:
    """The certificate's submatrix, turned so that the lines spoken of are columns."""
    require(by in ("columns", "rows"), "by is 'columns' or 'rows'")
    part = submatrix(matrix, certificate.rows, certificate.columns)
    if by == "rows":
        part = sp.csc_array(part.T)
        part.sort_indices()
    return part
