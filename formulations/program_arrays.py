"""Types of arrays, and the solver's view of a program: plain arrays without names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import scipy

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]
ArrayT = TypeVar("ArrayT", bound=NDArray[Any])
ValueT = TypeVar("ValueT")


def frozen(array: ArrayT) -> ArrayT:
    """The same numbers, read-only; copied if another array could still write to them."""
    base = array if array.base is None else array.base
    if not (isinstance(base, np.ndarray) and not base.flags.writeable and not array.flags.writeable):
        array = array.copy()
        array.flags.writeable = False
    return array


def locked(value: ValueT) -> ValueT:
    """An array as a view that cannot be written to; anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    view: Any = value.view()
    view.flags.writeable = False
    return cast(ValueT, view)


def exact_dot(a: Integers, b: Integers) -> int:
    """Return ``sum(a * b)`` exactly, in 64 bits where that is safe and in Python integers where it is not."""
    if not len(a):
        return 0
    largest = max(abs(int(a.max())), abs(int(a.min()))) * max(abs(int(b.max())), abs(int(b.min())))
    if largest * len(a) < 2**63:
        return int((a * b).sum())
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


@dataclass(frozen=True)
class LinearProgramArrays:
    """A program ready for a solver: optimise ``cost @ x + offset``, ``row_lower <= A x <= row_upper``."""

    matrix: scipy.sparse.csc_array  # (m, n) CSC, duplicates summed, no stored zeros
    #: (m,), infinite where a row has no such side.
    row_lower: Floats
    row_upper: Floats
    #: (n,).
    column_lower: Floats
    column_upper: Floats
    cost: Floats
    offset: float
    integrality: Booleans  # (n,) bool
    maximize: bool

    @property
    def is_mip(self) -> bool:
        """Whether any column must be integer."""
        return bool(self.integrality.any())
