"""Run independent pieces of a solve one after the other or in parallel, as the caller of a model decides.

A model asks `side_by_side` for the results of its pieces. Within ``with pieces_by(mapper)`` they come from the mapper:
any function like `map`, of a pool of processes, or of a Dask client's executor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

PieceT = TypeVar("PieceT")
ResultT = TypeVar("ResultT")
Mapper = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]

_mapper: ContextVar[Mapper] = ContextVar("mapper", default=map)


@contextlib.contextmanager
def pieces_by(mapper: Mapper) -> Iterator[None]:
    """Run the pieces of models that are solved inside by a function like `map`.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from flowlex import generate, solve
    >>> instance = generate("gavel-like", jobs=8)
    >>> with ThreadPoolExecutor(2) as pool, pieces_by(pool.map):
    ...     solution = solve(instance, parts=2)
    >>> solution.status
    <Status.FEASIBLE: 'feasible'>
    """
    token = _mapper.set(mapper)
    try:
        yield
    finally:
        _mapper.reset(token)


def side_by_side(function: Callable[[PieceT], ResultT], pieces: Sequence[PieceT]) -> Iterator[ResultT]:
    """Results of a function of each piece, in order; functions and pieces can be pickled."""
    yield from _mapper.get()(function, pieces)
