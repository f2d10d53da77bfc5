"""Blocks of nodes and arcs of a flow network, and their numbers: 64-bit integers, one label a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowlex.formulations.block_labels import Labels, block_labels, check_labels
from flowlex.formulations.program_arrays import Integers

#: Upper bound of an arc without capacity.
UNBOUNDED = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Block:
    """Consecutive nodes or arcs declared under one name."""

    name: str
    start: int
    count: int
    labels: Labels = None

    @property
    def slice(self) -> slice:
        """Where the block lies."""
        return slice(self.start, self.start + self.count)

    def names(self) -> list[str]:
        """One name per member, ``name[label]``."""
        return [f"{self.name}[{label}]" for label in block_labels(self.count, self.labels)]


def node_block(name: str, start: int, count: int, labels: Labels) -> Block:
    """A block of nodes with distinct labels."""
    labels = check_labels(name, count, labels)
    rising = isinstance(labels, np.ndarray) and labels.dtype.kind in "iu" and bool((labels[1:] > labels[:-1]).all())
    if labels is not None and not rising and len(set(block_labels(count, labels))) < count:
        raise ValueError(f"two nodes named {name!r} have one label; a node's name says which it is")
    return Block(name, start, count, labels)


def arc_columns(
    name: str, tail: ArrayLike, head: ArrayLike, lower: ArrayLike, upper: ArrayLike, cost: ArrayLike
) -> tuple[Integers, Integers, Integers, Integers, Integers]:
    """Tails, heads, bounds and costs of the arcs of a block, all of one length; tails and heads broadcast."""
    tails, heads = (
        np.atleast_1d(integers(v, None, f"{what} of {name}")) for v, what in ((tail, "tail"), (head, "head"))
    )
    if len(tails) != len(heads) and 1 not in (len(tails), len(heads)):
        raise ValueError(f"{name}: {len(tails)} tails and {len(heads)} heads; give as many, or one of either")
    if len(tails) != len(heads):
        tails, heads = np.broadcast_arrays(tails, heads)
    numbers = ((lower, "lower"), (upper, "upper"), (cost, "cost"))
    low, high, each = (integers(v, len(tails), f"{what} of {name}") for v, what in numbers)
    return tails, heads, low, high, each


def integers(value: ArrayLike, count: int | None, what: str) -> Integers:
    """Integers as int64, (count,) of them where that is known; `ValueError` names what is not an integer."""
    if type(value) is int and count is not None and -UNBOUNDED <= value <= UNBOUNDED:
        return np.full(count, value, np.int64)
    array = np.asarray(value)
    _check_integral(array, what)
    integers = array.astype(np.int64)
    if integers.ndim > 1 or (count is not None and integers.ndim and len(integers) != count):
        wanted = "one number or a vector" if count is None else f"one number or {count}"
        raise ValueError(f"{what}: expected {wanted}, got shape {integers.shape}")
    return integers if count is None or integers.ndim else np.broadcast_to(integers, (count,))


def _check_integral(array: NDArray[Any], what: str) -> None:
    kind = array.dtype.kind
    if not array.size or kind in "ib":
        return
    if kind == "f":
        if not (np.rint(array) == array).all():  # NaN too
            raise ValueError(f"{what}: networks are exact, every number must be an integer; scale the data first")
        if float(np.abs(array).max()) > 2.0**53:
            raise ValueError(f"{what}: floating-point numbers beyond 2**53 are not exact; pass integers")
        return
    numbers = array.ravel().tolist()
    if not all(isinstance(number, int | np.integer) for number in numbers):
        raise ValueError(f"{what}: networks are exact, every number must be an integer, not {array.dtype}")
    largest = max(numbers, key=abs)
    if abs(largest) > UNBOUNDED:
        raise ValueError(f"{what}: {largest} does not fit 64 bits; use a coarser unit")
