"""Loops that run as plain Python on small input, and otherwise compiled by numba with its cache.

`njit` marks a function for numba, and `loop` does so with our usual options. Within `small_work` a loop that no cache
holds runs as plain Python, with the loops that it calls, so that nobody waits half a minute for the compiler to check
a matrix of three rows. Numba is imported when needed.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])

#: Inputs of at most this many cells are small; so are calls of `run` of this many steps (about a microsecond each).
SMALL_CELLS, SMALL_STEPS = 2_000, 8_000_000
#: Seconds that plain loops of a process may take before numba is imported to look for compiled ones (which takes
#: 0.3 s), and before compiling pays.
IMPORT_AFTER_S, COMPILE_AFTER_S = 0.1, 15.0


class _Work:
    """The processor seconds that plain loops have taken so far, in all threads."""

    seconds = 0.0


class _Here(threading.local):
    """Whether the current input of a thread is small."""

    small = False


_here = _Here()


#: The globals that compiled and plain functions see instead of their module's.
_seen: dict[tuple[int, bool], dict[str, Any]] = {}


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
            if _here.small and self.plain_pays():
                return self.run_plain(*arguments)
            self._ready = self.twin
        return self._ready(*arguments)

    def plain_pays(self) -> bool:
        """Whether a small call should neither compile the loop nor wait for numba."""
        if self._ready is not None or _Work.seconds > COMPILE_AFTER_S:
            return False
        return (_Work.seconds < IMPORT_AFTER_S and "numba" not in sys.modules) or not self.cached

    def run_plain(self, *arguments: Any) -> Any:
        """Call the Python function; loops that it calls run as plain Python too."""
        start = time.thread_time()
        try:
            with np.errstate(over="ignore"):  # hashes wrap around
                return self._plain(*arguments)
        finally:
            _Work.seconds += time.thread_time() - start

    @functools.cached_property
    def twin(self) -> Any:
        """The compiled function; the loops that it calls are compiled too."""
        from flowlex.formulations.numba_cache import dispatcher

        function = self._calling(compiled=True)
        return self.__dict__.get("twin") or dispatcher(function, self._options)

    @functools.cached_property
    def _plain(self) -> FunctionType:
        return self._calling(compiled=False)

    @functools.cached_property
    def cached(self) -> bool:
        """Whether a cache folder held the compiled function when it was first asked for."""
        folder = getattr(getattr(self.twin, "stats", None), "cache_path", None)
        return folder is not None and any(Path(folder).glob(f"*.{self.py_func.__name__}-*.nbi"))

    def _calling(self, *, compiled: bool) -> FunctionType:
        """The function with the globals of its module, but with compiled or plain functions in place of loops."""
        function = self.py_func
        assert isinstance(function, FunctionType)
        key = id(function.__globals__), compiled
        if key not in _seen:
            _seen[key] = seen = dict(function.__globals__)
            for name, value in function.__globals__.items():
                if isinstance(value, Loop):
                    seen[name] = value.twin if compiled else value._plain
        return FunctionType(function.__code__, _seen[key], function.__name__, function.__defaults__)


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
    if steps <= SMALL_STEPS and function.plain_pays():
        return function.run_plain(*arguments)
    with compiling():
        import numba

        function._ready = function.twin
        if hasattr(function.twin, "compile"):  # not where NUMBA_DISABLE_JIT is set
            function.twin.compile(tuple(numba.typeof(argument) for argument in arguments))
    return function.twin(*arguments)


@contextmanager
def small_work(cells: int) -> Iterator[None]:
    """Let loops inside run as plain Python, if the input is small and no cache holds them.

    ``cells``: about how large the input is: nodes times pods, or machines times tasks.
    """
    if _here.small or cells > SMALL_CELLS:
        yield
        return
    _here.small = True
    try:
        yield
    finally:
        _here.small = False


@contextmanager
def always_compiled() -> Iterator[None]:
    """Compile every loop that is called inside, however small its input."""
    global SMALL_CELLS, SMALL_STEPS
    limits = SMALL_CELLS, SMALL_STEPS
    SMALL_CELLS, SMALL_STEPS = -1, -1
    try:
        yield
    finally:
        SMALL_CELLS, SMALL_STEPS = limits


def with_small_work(function: Function) -> Function:
    """Decorate a function to run within `small_work`; its first argument is an instance with ``cells``."""

    @functools.wraps(function)
    def sized(instance: Any, *arguments: Any, **keywords: Any) -> Any:
        with small_work(instance.cells):
            return function(instance, *arguments, **keywords)

    return cast(Function, sized)
