"""The matrix under test, with the names of its rows and columns and what is known of the program around it.

The checker works on one canonical form: a SciPy CSC array without explicit zeros, indices sorted
(`matrix_adapters.matrix_of` converts other objects to it).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from flowlex.errors import FlowlexError
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays


class MatrixError(FlowlexError, ValueError):
    """Input that is not a valid matrix; the message states where and why."""


@dataclass(frozen=True)
class LeftOut:
    """Numbers of free rows and fixed columns (and integer declarations of those) that were removed from a program."""

    rows: int = 0
    columns: int = 0
    integer: int = 0


@dataclass(frozen=True)
class Program:
    """The program around a constraint matrix, as far as conclusions need it."""

    sides: Floats  # lower and upper sides of the rows, (2, m); infinite where there is none
    bounds: Floats  # lower and upper bounds of the columns, (2, n)
    integer: NDArray[np.bool_]  # which columns are declared integer, (n,)
    #: Linear objective, to be minimised (n,), and its constant.
    cost: Floats
    #: Why an optimum need not be a vertex of the polyhedron, e.g. ``"the objective is quadratic"``; empty for a linear
    #: program.
    nonlinear: str = ""
    offset: float = 0.0
    #: What fixed columns that were left out add to a row, exactly; the sides still include it.
    constants: Mapping[int, int | Fraction] = field(default_factory=dict)
    left_out: LeftOut = LeftOut()  # what `sources.constraints_of` has left out

    @property
    def equations(self) -> NDArray[np.bool_]:
        """Rows whose two sides are equal."""
        return np.asarray(self.sides[0] == self.sides[1])

    @property
    def free(self) -> NDArray[np.bool_]:
        """Columns without finite bounds."""
        return np.asarray(~np.isfinite(self.bounds).any(axis=0))


@dataclass(frozen=True)
class NamedMatrix:
    """A canonical matrix with the names of its rows and columns."""

    matrix: sp.csc_array  # ``csc_array`` of ``int64`` when all entries are integers below 2**53, else ``float64``
    #: Functions giving all names (made only when a witness needs some).
    row_names: Callable[[], Sequence[str]] | None = None
    column_names: Callable[[], Sequence[str]] | None = None
    program: Program | None = None  # sides, bounds, integer declarations and objective, when the input knows them

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    def names_of_rows(self, rows: Sequence[int]) -> tuple[str, ...]:
        """Names of the given rows; ``r<index>`` where the input has none."""
        return _names(self.row_names, "r", rows)

    def names_of_columns(self, columns: Sequence[int]) -> tuple[str, ...]:
        """Names of the given columns; ``c<index>`` where the input has none."""
        return _names(self.column_names, "c", columns)


def program_matrix(
    arrays: LinearProgramArrays,
    row_names: Callable[[], Sequence[str]] | None,
    column_names: Callable[[], Sequence[str]] | None,
    nonlinear: str = "",
) -> NamedMatrix:
    """The matrix of a linear program with the program around it."""
    sign = -1.0 if arrays.maximize else 1.0
    program = Program(
        sides=np.stack([arrays.row_lower, arrays.row_upper]).astype(float),
        bounds=np.stack([arrays.column_lower, arrays.column_upper]).astype(float),
        integer=np.asarray(arrays.integrality, dtype=bool),
        cost=np.asarray(arrays.cost, dtype=float) * sign,
        offset=float(arrays.offset) * sign,
        nonlinear=nonlinear,
    )
    return NamedMatrix(canonical(arrays.matrix), row_names, column_names, program)


def _names(make: Callable[[], Sequence[str]] | None, letter: str, indices: Sequence[int]) -> tuple[str, ...]:
    if make is None:
        return tuple(f"{letter}{index}" for index in indices)
    names = make()
    return tuple(str(names[index]) for index in indices)


def canonical(source: Any) -> sp.csc_array:
    """Check the entries and return a CSC array, duplicates summed, zeros dropped, indices sorted."""
    if sp.issparse(source):
        sparse: Any = source  # the stubs of issparse tell less than is known
        if sparse.ndim != 2:
            raise MatrixError(f"a matrix has two dimensions, this has {sparse.ndim}")
        matrix = sp.csc_array(sparse, copy=True)
    else:
        matrix = sp.csc_array(_dense(source))
    if np.iscomplexobj(matrix.data):
        raise MatrixError("the matrix is complex; total unimodularity is defined for real matrices")
    if matrix.data.dtype == object or matrix.data.dtype.kind not in "biuf":
        raise MatrixError(f"entries of type {matrix.data.dtype} are not numbers")
    if matrix.data.dtype.kind == "f":
        matrix = _checked_floats(matrix)
    elif matrix.data.dtype.kind in "bu":
        if matrix.data.size and int(matrix.data.max()) >= 2**53:
            raise MatrixError(f"the entry {matrix.data.max()} is too large to be exact (limit 2**53)")
        matrix = matrix.astype(np.int64)
    else:
        matrix = matrix.astype(np.int64)
        if matrix.data.size and max(int(matrix.data.max()), -int(matrix.data.min())) >= 2**53:
            raise MatrixError("an entry is too large to be exact (limit 2**53)")
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


def _dense(source: Any) -> np.ndarray:
    try:
        array = np.asarray(source)
    except ValueError as error:
        lengths = [len(row) for row in source if hasattr(row, "__len__")] if isinstance(source, list | tuple) else []
        odd = next((k for k, length in enumerate(lengths) if length != lengths[0]), None)
        found = str(error) if odd is None else f"row 0 has {lengths[0]} entries, row {odd} has {lengths[odd]}"
        raise MatrixError(f"rows of one length are expected: {found}") from error
    if array.ndim != 2:
        raise MatrixError(f"a matrix has two dimensions, this has {array.ndim}")
    if array.dtype.kind not in "biufcO":
        raise MatrixError(f"entries of type {array.dtype} are not numbers")
    return _of_objects(array) if array.dtype == object else array


def _of_objects(array: np.ndarray) -> np.ndarray:
    """Integers, fractions and decimals of Python, each as the double that stands for it."""
    values = np.zeros(array.shape)
    for place, entry in np.ndenumerate(array):
        where = f"the entry at row {place[0]}, column {place[1]}"
        if not isinstance(entry, Real | Decimal | np.bool_):
            raise MatrixError(f"{where} is {type(entry).__name__}, not a number")
        try:
            values[place] = float(entry)
            rounded = np.isfinite(values[place]) and exact(values[place]) != exact(entry)
        except (OverflowError, ValueError) as error:
            raise MatrixError(f"{where} is too large to be exact (limit 2**53)") from error
        if abs(values[place]) >= 2**53:
            raise MatrixError(f"{where} is too large to be exact (limit 2**53)")
        if rounded:
            raise MatrixError(f"{where} is {entry}, which is no decimal fraction; multiply its row by the denominator")
    return values


def _checked_floats(matrix: sp.csc_array) -> sp.csc_array:
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if bad.size:
        place = int(bad[0])
        column = int(np.searchsorted(matrix.indptr, place, side="right")) - 1
        value = "NaN" if np.isnan(matrix.data[place]) else "infinite"
        raise MatrixError(f"the entry at row {int(matrix.indices[place])}, column {column} is {value}")
    if np.all(matrix.data == np.rint(matrix.data)):
        if matrix.data.size and np.abs(matrix.data).max() >= 2**53:
            raise MatrixError("an entry is too large to be exact (limit 2**53)")
        return matrix.astype(np.int64)
    return matrix.astype(np.float64)


def ternary(matrix: sp.csc_array) -> sp.csc_array:
    """Return the matrix as ``int8``, or raise if an entry is not -1, 0 or 1."""
    if matrix.data.size and not np.all(np.abs(matrix.data) == 1):
        raise MatrixError("an entry is outside {-1, 0, 1}")
    return sp.csc_array((matrix.data.astype(np.int8), matrix.indices, matrix.indptr), shape=matrix.shape)


def bipartite(matrix: sp.csc_array) -> sp.csr_array:
    """The graph whose nodes are the rows, then the columns, and whose edges are the nonzeros."""
    rows, columns = map(int, matrix.shape)
    ones = sp.csr_array((np.ones(matrix.nnz, np.int8), matrix.indices, matrix.indptr), shape=(columns, rows))
    graph: sp.csr_array = sp.block_array([[None, ones.T], [ones, None]], format="csr")
    return graph


def exact(value: Any) -> int | Fraction:
    """Return the rational number a person means: 0.1 is 1/10, not the double next to it.

    A double is read as the shortest decimal that denotes it, which is what stands in a model file.
    """
    plain = value.item() if isinstance(value, np.generic) else value
    fraction = Fraction(repr(plain)) if isinstance(plain, float) else Fraction(plain)
    return int(fraction) if fraction.denominator == 1 else fraction


def fingerprint(matrix: sp.csc_array) -> str:
    """Return a short hash of shape and entries, so that a stored verdict knows its matrix."""
    digest = hashlib.sha256(repr(tuple(int(side) for side in matrix.shape)).encode())
    for array in (matrix.indptr, matrix.indices):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    digest.update(np.ascontiguousarray(matrix.data, dtype="<f8").tobytes())
    return digest.hexdigest()[:32]
