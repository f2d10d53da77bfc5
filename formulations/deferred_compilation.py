"""Loops that run as plain Python on small input and compiled on large input.

`njit` marks a function for numba, and `loop` does so with our usual options. Calls run compiled; only within
`small_work` do functions that no cache holds run as plain Python. `run` decides by the estimated steps of a call, so
that nobody waits half a minute for the compiler to check a matrix of three rows. Numba is imported when needed.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])

#: Limits for plain Python: steps of one call (about a microsecond each), and seconds for all calls of a process.
PLAIN_STEPS, PLAIN_SECONDS = 1_000_000, 1.5
#: The same limits for a function that no cache holds; compiling it takes up to 20 seconds.
FIRST_STEPS, FIRST_SECONDS = 8_000_000, 6.0

#: Seconds that plain loops on small input may take before numba is imported to look for compiled ones.
TINY_SECONDS = 0.1
#: Inputs of at most this many cells are small; seconds that their plain loops may take before compiling pays.
SMALL_CELLS, SMALL_SECONDS = 2_000, 15.0

#: Compiled functions by loop; the globals that compiled and plain functions see instead of their module's.
_twins: dict[Loop, Any] = {}
_seen: dict[tuple[int, bool], dict[str, Any]] = {}
#: Loops that `run` has compiled or loaded in this process.
_ready: set[Loop] = set()


class _Spent:
    """Processor seconds spent in plain calls of `run`."""

    seconds = 0.0


def njit(**options: Any) -> Callable[[Callable[..., Any]], Loop]:
    """Mark a function of numbers and arrays that `numba.njit` can compile, with its options."""
    return lambda function: Loop(function, options)


def loop(function: Callable[..., Any]) -> Loop:
    """Mark a function that is compiled once for all processes and releases the interpreter lock."""
    return Loop(function, {"cache": True, "nogil": True})


class Loop:
    """A function that runs as plain Python or compiled; the answer is the same.

    ``py_func``: the function as it is written.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self._options = function, options
        self._ready: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._ready is None:
            if _work.small and _work.in_time() and (_work.tiny or self in _work.uncached or _work.uses_plain(self)):
                return self.py_func(*arguments)
            self._ready = self.twin()
        return self._ready(*arguments)

    def twin(self) -> Any:
        """The compiled function; the loops that it calls are compiled too."""
        if self not in _twins:
            from flowlex.formulations.numba_cache import dispatcher

            _twins[self] = dispatcher(self._calling(compiled=True), self._options)
        return _twins[self]

    @functools.cached_property
    def plain(self) -> FunctionType:
        """The Python function; loops that it calls run as plain Python too."""
        return self._calling(compiled=False)

    def _calling(self, *, compiled: bool) -> FunctionType:
        function = self.py_func
        assert isinstance(function, FunctionType)
        names = _names(function.__globals__, compiled)
        return FunctionType(function.__code__, names, function.__name__, function.__defaults__)

    @property
    def cached(self) -> bool:
        """Whether a cache folder holds the compiled function."""
        folder = getattr(getattr(self.twin(), "stats", None), "cache_path", None)
        return folder is not None and any(Path(folder).glob(f"*.{self.py_func.__name__}-*.nbi"))


def _names(names: dict[str, Any], compiled: bool) -> dict[str, Any]:
    """The globals of a module, with compiled or plain functions in place of the loops."""
    key = id(names), compiled
    if key not in _seen:
        _seen[key] = seen = dict(names)
        for name, value in names.items():
            if isinstance(value, Loop):
                seen[name] = value.twin() if compiled else value.plain
    return _seen[key]


def run(
    function: Loop,
    *arguments: Any,
    steps: float,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Any:
    """Call a loop, compiled if that pays.

    ``function``, ``arguments``: what is called.
    ``steps``: about how many steps it takes.
    ``compiling``: entered while the function is compiled or loaded, such as a clock that stands still.
    """
    if function not in _ready and _plain_pays(function, steps):
        start = time.thread_time()
        try:
            with np.errstate(over="ignore"):  # hashes wrap around
                return function.plain(*arguments)
        finally:
            _Spent.seconds += time.thread_time() - start
    with compiling():
        import numba

        twin = function.twin()
        if hasattr(twin, "compile"):  # not where NUMBA_DISABLE_JIT is set
            twin.compile(tuple(numba.typeof(argument) for argument in arguments))
        _ready.add(function)
    return twin(*arguments)


def _plain_pays(function: Loop, steps: float) -> bool:
    if steps <= PLAIN_STEPS and _Spent.seconds < PLAIN_SECONDS:
        return True
    return steps <= FIRST_STEPS and _Spent.seconds < FIRST_SECONDS and not function.cached


class _Work:
    """Whether the current input is small, and the time that plain loops have taken so far."""

    def __init__(self) -> None:
        self.small, self.began, self.spent = False, 0.0, 0.0
        self.calls, self.late = 0, False
        #: Whether the loops took so little that importing numba, which takes 0.3 s, would not pay.
        self.tiny = True
        #: Loops that no cache holds.
        self.uncached: set[Loop] = set()

    def uses_plain(self, loop: Loop) -> bool:
        """Whether a loop that this process has not compiled is also in no cache."""
        if not loop.cached:
            self.uncached.add(loop)
        return loop in self.uncached

    def in_time(self) -> bool:
        """Whether plain loops may go on; only every 64th call reads the clock, which takes a microsecond."""
        self.calls += 1
        if self.calls % 64 == 1:
            spent = self.spent + time.thread_time() - self.began
            self.tiny = self.tiny and spent < TINY_SECONDS and "numba" not in sys.modules
            self.late = spent > SMALL_SECONDS
        return not self.late


_work = _Work()


@contextmanager
def small_work(cells: int) -> Iterator[None]:
    """Let loops inside run as plain Python, if the input is small and no cache holds them.

    ``cells``: about how large the input is: nodes times pods, or machines times tasks.
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


@contextmanager
def always_compiled() -> Iterator[None]:
    """Compile every loop that is called inside, however small its input."""
    global PLAIN_STEPS, FIRST_STEPS, SMALL_CELLS
    limits = PLAIN_STEPS, FIRST_STEPS, SMALL_CELLS
    PLAIN_STEPS, FIRST_STEPS, SMALL_CELLS = 0, 0, -1
    try:
        yield
    finally:
        PLAIN_STEPS, FIRST_STEPS, SMALL_CELLS = limits


def with_small_work(function: Function) -> Function:
    """Decorate a function to run within `small_work`; its first argument is an instance with ``cells``."""

    @functools.wraps(function)
    def sized(instance: Any, *arguments: Any, **keywords: Any) -> Any:
        with small_work(instance.cells):
            return function(instance, *arguments, **keywords)

    return cast(Function, sized)
