"""Types of arrays in views of instances."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]


def integers(values: Iterable[int]) -> Integers:
    """Values as an array."""
    return np.fromiter(values, np.int64)


def floats(values: Iterable[float | None]) -> Floats:
    """Values as an array, NaN for None."""
    return np.fromiter((np.nan if value is None else value for value in values), np.float64)


def numbered(keys: Iterable[Hashable]) -> Integers:
    """Number the keys in order of first appearance; return the number of each."""
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
