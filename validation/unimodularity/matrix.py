"""The matrix under test, whatever it was given as, with the names of its rows and columns.

The checker works on one canonical form: a SciPy CSC array without explicit zeros, indices sorted. Everything
that can be brought to that form is accepted by `matrix_of`: SciPy sparse, NumPy, our `LinearProgram`,
`FlowNetwork` and models, and any object that speaks PuLP's public protocol.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["MatrixError", "NamedMatrix", "exact", "fingerprint", "matrix_of", "ternary"]


class MatrixError(ValueError):
    """Input that is no matrix to test: says where and why."""


@dataclass(frozen=True)
class NamedMatrix:
    """A canonical matrix and how its rows and columns are called.

    Attributes
    ----------
    matrix
        ``csc_array`` of ``int64`` when all entries are integers below 2**53, else ``float64``.
    row_names, column_names
        Functions giving all names (made only when a witness needs some).
    integer_columns
        How many columns are declared integer, when the input knows.
    row_sides
        Finite and infinite sides of the rows, (2, m), when the input knows.
    integral_bounds
        Whether the variables' bounds are all integral, when the input knows.
    """

    matrix: sp.csc_array
    row_names: Callable[[], Sequence[str]] | None = None
    column_names: Callable[[], Sequence[str]] | None = None
    integer_columns: int | None = None
    row_sides: NDArray[np.float64] | None = None
    integral_bounds: bool | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    def integral_data(self, divisors: Mapping[int, int | Fraction]) -> bool | None:
        """Say whether sides and bounds are integral once the rows are divided; None when the input does not tell."""
        if self.row_sides is None or self.integral_bounds is None:
            return None
        sides = self.row_sides.copy()
        for row, divisor in divisors.items():
            sides[:, row] /= float(divisor)
        return self.integral_bounds and _integral(sides)

    def names_of_rows(self, rows: Sequence[int]) -> tuple[str, ...]:
        """Names of the given rows; ``r<index>`` where the input has none."""
        return _names(self.row_names, "r", rows)

    def names_of_columns(self, columns: Sequence[int]) -> tuple[str, ...]:
        """Names of the given columns; ``c<index>`` where the input has none."""
        return _names(self.column_names, "c", columns)


def _names(make: Callable[[], Sequence[str]] | None, letter: str, indices: Sequence[int]) -> tuple[str, ...]:
    if make is None:
        return tuple(f"{letter}{index}" for index in indices)
    names = make()
    return tuple(str(names[index]) for index in indices)


def _integral(values: Any) -> bool:
    numbers = np.asarray(values, dtype=float)
    return bool(np.all(~np.isfinite(numbers) | (numbers == np.rint(numbers))))


def matrix_of(source: Any, *, bounds: bool = False) -> NamedMatrix:
    """Bring ``source`` to the canonical form.

    Parameters
    ----------
    source
        SciPy sparse matrix or array, NumPy 2-d array or nested lists, `NamedMatrix`, `LinearProgram`,
        `FlowNetwork`, a model with a ``formulation``, or a ``pulp.LpProblem``.
    bounds
        Append one unit row per finite variable bound, as the polyhedron has it. (It never changes the
        answer: unit rows keep total unimodularity. It changes what a picture shows.)

    Raises
    ------
    MatrixError
        Empty, complex, NaN or infinite entries, integers too large to be exact, or an unknown kind of object.
    """
    if isinstance(source, NamedMatrix):
        return source
    if sp.issparse(source) or isinstance(source, np.ndarray | list | tuple):
        return NamedMatrix(canonical(source))
    formulation = getattr(source, "formulation", None)
    if formulation is not None:
        return matrix_of(formulation() if callable(formulation) else formulation, bounds=bounds)
    if hasattr(source, "incidence") and hasattr(source, "tail"):
        return _of_network(source)
    if hasattr(source, "arrays") and hasattr(source, "row_names"):
        return _of_program(source, bounds)
    if hasattr(source, "constraints") and hasattr(source, "variables"):
        return _of_pulp(source, bounds)
    raise MatrixError(
        f"cannot take a matrix from {type(source).__name__}; give a SciPy sparse or NumPy matrix, a "
        "LinearProgram, a FlowNetwork, a model of this project or a pulp.LpProblem"
    )


def canonical(source: Any) -> sp.csc_array:
    """Check the entries and return a CSC array, duplicates summed, zeros dropped, indices sorted."""
    if sp.issparse(source):
        sparse: Any = source  # the stubs of issparse tell less than is known
        if sparse.ndim != 2:
            raise MatrixError(f"a matrix has two dimensions, this has {sparse.ndim}")
        matrix = sp.csc_array(sparse, copy=True)
    else:
        matrix = sp.csc_array(_dense(source))
    if 0 in matrix.shape:
        raise MatrixError(f"the matrix is empty ({matrix.shape[0]} rows, {matrix.shape[1]} columns)")
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
        raise MatrixError(f"ragged rows: {error}") from error
    if array.ndim != 2:
        raise MatrixError(f"a matrix has two dimensions, this has {array.ndim}")
    if array.dtype.kind not in "biufcO":
        raise MatrixError(f"entries of type {array.dtype} are not numbers")
    if array.dtype == object:
        raise MatrixError("the entries are not all numbers that NumPy can hold exactly")
    return array


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


def exact(value: Any) -> int | Fraction:
    """Return the exact value of a NumPy or Python number."""
    fraction = Fraction(value.item() if isinstance(value, np.generic) else value)
    return int(fraction) if fraction.denominator == 1 else fraction


def fingerprint(matrix: sp.csc_array) -> str:
    """Return a short hash of shape and entries, so that a stored verdict knows its matrix."""
    digest = hashlib.sha256(repr(tuple(int(side) for side in matrix.shape)).encode())
    for array in (matrix.indptr, matrix.indices):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    digest.update(np.ascontiguousarray(matrix.data, dtype="<f8").tobytes())
    return digest.hexdigest()[:32]


def _of_network(network: Any) -> NamedMatrix:
    nodes = network.node_names
    return NamedMatrix(
        canonical(network.incidence()),
        row_names=nodes if callable(nodes) else lambda: list(nodes),
        column_names=network.arc_names if callable(network.arc_names) else lambda: list(network.arc_names),
        row_sides=np.stack([network.supply, network.supply]).astype(float),
        integral_bounds=True,  # a FlowNetwork holds int64 data only
    )


def _of_program(program: Any, bounds: bool) -> NamedMatrix:
    arrays = program.arrays()
    named = NamedMatrix(
        canonical(arrays.matrix),
        row_names=program.row_names,
        column_names=program.column_names,
        integer_columns=int(np.count_nonzero(arrays.integrality)),
        row_sides=np.stack([arrays.row_lower, arrays.row_upper]).astype(float),
        integral_bounds=_integral([arrays.column_lower, arrays.column_upper]),
    )
    return with_bounds(named, arrays.column_lower, arrays.column_upper) if bounds else named


def with_bounds(named: NamedMatrix, lower: Any, upper: Any) -> NamedMatrix:
    """Append one unit row for every finite lower bound, then one for every finite upper bound."""
    columns = named.shape[1]
    chosen = [np.flatnonzero(np.isfinite(np.asarray(side, dtype=float))) for side in (lower, upper)]
    unit = sp.eye_array(columns, format="csr", dtype=named.matrix.dtype)
    stacked = sp.vstack([named.matrix.tocsr(), *(unit[indices] for indices in chosen)])

    def rows() -> list[str]:
        names = named.names_of_columns(range(columns))
        base = list(named.names_of_rows(range(named.shape[0])))
        return base + [
            f"{kind}({names[index]})"
            for kind, indices in zip(("lower", "upper"), chosen, strict=True)
            for index in indices
        ]

    sides = named.row_sides
    if sides is not None:
        sides = np.pad(sides, ((0, 0), (0, sum(map(len, chosen)))))  # bounds are told of by integral_bounds
    return replace(named, matrix=canonical(stacked), row_names=rows, row_sides=sides)


def _of_pulp(problem: Any, bounds: bool) -> NamedMatrix:
    """Read PuLP's public protocol: ``variables()``, and ``constraints`` mapping names to expressions."""
    variables = problem.variables()
    place = {variable: index for index, variable in enumerate(variables)}
    held = problem.constraints
    items = [(item.name, item) for item in held()] if callable(held) else list(held.items())
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for row, (_, expression) in enumerate(items):
        for variable, value in expression.items():
            rows.append(row)
            columns.append(place[variable])
            values.append(value)
    matrix = sp.csc_array((np.asarray(values, dtype=float), (rows, columns)), shape=(len(items), len(variables)))
    lower = [-np.inf if v.lowBound is None else v.lowBound for v in variables]
    upper = [np.inf if v.upBound is None else v.upBound for v in variables]
    sides = np.array([[-expression.constant for _, expression in items]] * 2, dtype=float)
    named = NamedMatrix(
        canonical(matrix),
        row_names=lambda: [name for name, _ in items],
        column_names=lambda: [variable.name for variable in variables],
        integer_columns=sum(variable.cat == "Integer" for variable in variables),
        row_sides=sides,
        integral_bounds=_integral([*lower, *upper]),
    )
    return with_bounds(named, lower, upper) if bounds else named
