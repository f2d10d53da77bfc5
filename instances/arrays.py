"""Types of arrays in views of instances."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Booleans", "Floats", "Integers", "numbered"]

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]


def numbered(keys: Iterable[Hashable]) -> Integers:
    """The number of each key, in order of first appearance."""
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
