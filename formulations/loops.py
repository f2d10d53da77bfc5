"""Loops that run as plain Python on small input and compiled on large input.

`loop` marks a function that numba can compile. `run` calls it: as it stands while little is to be done, so that nobody
waits half a minute for the compiler to check a matrix of three rows; compiled once that pays. Numba is imported only
then.

`njit` marks a function that chooses by itself when it is called: plain within `small_work` where no cache holds it,
else compiled.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

__all__ = ["Loop", "loop", "njit", "run", "small_work"]

#: Steps that one call may take as plain Python (a step is about a microsecond), and seconds for all calls of a process.
PLAIN_STEPS, PLAIN_SECONDS = 1_000_000, 1.5
#: The same where no cache holds the function, so that it would have to be compiled, which takes up to 20 seconds.
FIRST_STEPS, FIRST_SECONDS = 8_000_000, 6.0

#: Inputs of at most so many cells are small; seconds that their plain loops may take before compiling pays.
SMALL_CELLS, SMALL_SECONDS = 2_000, 15.0

Function = TypeVar("Function", bound=Callable[..., Any])

#: Compiled functions by the function marked, and the namespaces that they see instead of their modules.
_compiled: dict[FunctionType, Any] = {}
_ready: set[FunctionType] = set()
_namespaces: dict[int, dict[str, Any]] = {}


class _Spent:
    """Processor seconds spent in plain loops."""

    seconds = 0.0


def loop(function: Function) -> Function:
    """Mark a function whose body, and the marked functions it calls, numba can compile."""
    function.__dict__["loop"] = True
    return function


def run(
    function: Callable[..., Any],
    *arguments: Any,
    steps: float,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Any:
    """Call a marked function, compiled if that pays.

    Parameters
    ----------
    function, arguments
        What is called.
    steps
        About how many steps it takes.
    compiling
        Entered while the function is compiled or loaded, such as a clock that stands still.
    """
    assert isinstance(function, FunctionType)
    if function not in _ready and _plain_pays(function, steps):
        start = time.thread_time()
        try:
            with np.errstate(over="ignore"):  # hashes wrap around
                return function(*arguments)
        finally:
            _Spent.seconds += time.thread_time() - start
    with compiling():
        ready = _compiled_twin(function)
        import numba

        ready.compile(tuple(numba.typeof(argument) for argument in arguments))
        _ready.add(function)
    return ready(*arguments)


def _plain_pays(function: FunctionType, steps: float) -> bool:
    if steps <= PLAIN_STEPS and _Spent.seconds < PLAIN_SECONDS:
        return True
    if steps > FIRST_STEPS or _Spent.seconds >= FIRST_SECONDS:
        return False
    twin = _compiled_twin(function)
    return not any(Path(twin.stats.cache_path).glob(f"*.{function.__name__}-*.nbi"))


def _compiled_twin(function: FunctionType) -> Any:
    if function not in _compiled:
        from flowlex.formulations.compiled import dispatcher

        twin = FunctionType(function.__code__, _namespace(function), function.__name__, function.__defaults__)
        _compiled[function] = dispatcher(twin, {"cache": True, "nogil": True})
    return _compiled[function]


def _namespace(function: FunctionType) -> dict[str, Any]:
    """The names of the function's module, with compiled twins in place of the marked functions."""
    names = function.__globals__
    if id(names) not in _namespaces:
        _namespaces[id(names)] = twins = dict(names)
        for name, value in names.items():
            if isinstance(value, FunctionType) and value.__dict__.get("loop"):
                twins[name] = _compiled_twin(value)
    return _namespaces[id(names)]


def njit(**options: Any) -> Callable[[Callable[..., Any]], Loop]:
    """Mark a function of numbers and arrays that `numba.njit` can compile, with its options."""
    return lambda function: Loop(function, options)


class Loop:
    """A function that runs as plain Python or compiled; the answer is the same.

    Attributes
    ----------
    py_func
        The function as it is written.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self._options = function, options
        self._ready: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._ready is None:
            if _work.plain(self):
                return self.py_func(*arguments)
            self._ready = self.twin()
        return self._ready(*arguments)

    def twin(self) -> Any:
        """The compiled function; the loops that it calls are compiled, too."""
        if self not in _twins:
            from flowlex.formulations.compiled import dispatcher

            function = self.py_func
            assert isinstance(function, FunctionType)
            names = _names_of_twins(function.__globals__)
            plain = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
            _twins[self] = dispatcher(plain, self._options)
        return _twins[self]


#: Compiled functions by loop, and the names that they see instead of their modules'.
_twins: dict[Loop, Any] = {}
_seen: dict[int, dict[str, Any]] = {}


def _names_of_twins(names: dict[str, Any]) -> dict[str, Any]:
    """The names of a module, with compiled functions in place of the loops."""
    if id(names) not in _seen:
        _seen[id(names)] = twins = dict(names)
        for name, value in names.items():
            if isinstance(value, Loop):
                twins[name] = value.twin()
    return _seen[id(names)]


class _Work:
    """Whether little is to be done, and what plain loops have taken so far."""

    def __init__(self) -> None:
        self.small, self.began, self.spent = False, 0.0, 0.0
        self._cached: dict[Loop, bool] = {}

    def plain(self, loop: Loop) -> bool:
        """Whether a loop that is not compiled in this process should run as it is."""
        if not self.small or self.spent + time.thread_time() - self.began > SMALL_SECONDS:
            return False
        if loop not in self._cached:
            folder = getattr(getattr(loop.twin(), "stats", None), "cache_path", None)
            self._cached[loop] = folder is not None and any(Path(folder).glob(f"*.{loop.py_func.__name__}-*.nbi"))
        return not self._cached[loop]


_work = _Work()


@contextmanager
def small_work(cells: int) -> Iterator[None]:
    """Let loops inside run as plain Python, if the input is small and no cache holds them.

    Parameters
    ----------
    cells
        About how large the input is: nodes times pods, or machines times tasks.
    """
    if _work.small or cells > SMALL_CELLS:
        yield
        return
    _work.small, _work.began = True, time.thread_time()
    try:
        yield
    finally:
        _work.spent += time.thread_time() - _work.began
        _work.small = False
