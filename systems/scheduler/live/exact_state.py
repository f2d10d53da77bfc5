"""The whole live state as bytes: with its solved network, whose order of slots and potentials decide ties.

A scheduler that is read from these bytes decides exactly as the one that wrote them. They fit only the code that wrote
them (`fingerprint`); `FrozenState` is the part of a state file that any version reads. Reading makes objects of the
classes of a scheduler's state and of no others, so that bytes cannot call what they like.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np

import flowlex
from flowlex.models.flow.goals import Goal
from flowlex.systems.scheduler.live.cluster_state import LiveState

#: Modules whose classes a state holds, and what it holds of others.
_OURS = (
    *("flowlex.systems.scheduler.warm_network.", "flowlex.formulations.solver_outcome", "flowlex.instances."),
    *("flowlex.models.flow.", "flowlex.systems.scheduler.live.", "flowlex.validation.certificates."),
)
_OTHERS = {
    *(("array", "array"), ("array", "_array_reconstructor"), ("collections", "Counter"), ("collections", "deque")),
    *(("collections", "OrderedDict"), ("fractions", "Fraction"), ("numpy", "dtype"), ("numpy", "ndarray")),
    *(("numpy._core.multiarray", "_reconstruct"), ("numpy._core.numeric", "_frombuffer")),
    *(("numpy.core.multiarray", "_reconstruct"), ("numpy.core.numeric", "_frombuffer")),
}
_METHODS = ("_units", "_fits")


def write(state: LiveState) -> bytes:
    """Return the state as bytes, without its goals; empty if goals of other packages left in it what has no bytes."""
    stream = io.BytesIO()
    try:
        _Writer(stream, state.goals).dump(state)
    except (pickle.PickleError, AttributeError, TypeError):
        return b""
    return stream.getvalue()


def read(data: bytes, goals: tuple[Goal, ...]) -> LiveState:
    """Return the state that was written with these goals; raise `pickle.UnpicklingError` if it holds other things."""
    found = _Reader(io.BytesIO(data), goals).load()
    assert isinstance(found, LiveState)
    return found


def fingerprint(goals: Iterable[Goal]) -> str:
    """Name the code of a state, its goals included."""
    found = _own_code().copy()
    for module in dict.fromkeys(type(goal).__module__ for goal in goals):
        if not module.startswith("flowlex.") and (file := getattr(sys.modules[module], "__file__", None)):
            found.update(Path(file).read_bytes())
    return str(found.hexdigest())


@cache
def _own_code() -> Any:
    root = Path(flowlex.__file__).parent
    found = hashlib.sha256(f"{version('flowlex')} {sys.version} {np.__version__}".encode())
    for module in _OURS:
        place = root.joinpath(*module.strip(".").split(".")[1:])
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]:
            found.update(file.read_bytes())
    return found


class _Writer(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, goals: tuple[Goal, ...]) -> None:
        super().__init__(stream, protocol=5)
        self._goals = {id(goal): k for k, goal in enumerate(goals)}

    def persistent_id(self, found: Any) -> int | None:
        return self._goals.get(id(found)) if isinstance(found, Goal) else None

    def reducer_override(self, found: Any) -> Any:
        if isinstance(found, MethodType):
            return _method, (found.__self__, found.__name__)
        return NotImplemented


class _Reader(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, goals: tuple[Goal, ...]) -> None:
        super().__init__(stream)
        self._goals = goals

    def persistent_load(self, number: int) -> Goal:
        return self._goals[number]

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.startswith(_OURS) or (module, name) in _OTHERS else None
        if found is _method or isinstance(found, type) or (found and (module, name) in _OTHERS):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a scheduler's state")


def _method(owner: Any, name: str) -> Any:
    """Return a method that a state refers to: of a goal, or of a group of machines."""
    if name not in _METHODS and not isinstance(owner, Goal):
        raise pickle.UnpicklingError(f"method {name!r} is no part of a scheduler's state")
    return getattr(owner, name)
