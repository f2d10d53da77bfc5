"""The time a check may take: read inside the compiled loops too, and not charged for compiling them.

A thread watches the clock and sets ``stop[0]``, which every long loop looks at; the loops release the interpreter
lock so that the thread can run beside them. Loading and compiling loops happens `Clock.outside` the limit, so
that a fresh machine gives the verdict of a warm one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType, TracebackType

import numpy as np

__all__ = ["Clock", "TimeIsUp"]

#: Runs longer than this tell what they are doing, once a second.
QUIET_S = 2.0

_ready: dict[str, ModuleType] = {}


class TimeIsUp(Exception):
    """The limit has passed."""


class Clock:
    """A limit in seconds, as a context; without one entered, nothing ever stops.

    Parameters
    ----------
    seconds
        The limit; infinite by default.
    report
        Called with one line about what is being tried, every second after the first `QUIET_S`.
    """

    def __init__(self, seconds: float = np.inf, report: Callable[[str], None] | None = None) -> None:
        self.stop = np.zeros(1, np.uint8)
        self.doing: str = "reading"
        self._report = report
        self._start = time.perf_counter()
        self._end = self._start + seconds
        self._paused: float | None = None
        self._over = threading.Event()

    def __enter__(self) -> Clock:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def left(self) -> float:
        """Seconds left."""
        return self._end - (time.perf_counter() if self._paused is None else self._paused)

    def check(self, doing: str = "") -> None:
        """Raise `TimeIsUp` when the limit has passed; remember what is being done."""
        if doing:
            self.doing = doing
        if self.stop[0] or self.left() <= 0:
            raise TimeIsUp

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Stop the clock for what happens inside."""
        self._paused = time.perf_counter()
        try:
            yield
        finally:
            self._end += time.perf_counter() - self._paused
            self._paused = None

    def loops(self, name: str) -> ModuleType:
        """Import a module of compiled loops and have it compiled, outside the limit."""
        if name not in _ready:
            with self.outside():
                module = import_module(f"flowlex.validation.unimodularity.{name}")
                module.warm()
                _ready[name] = module
        return _ready[name]

    def _watch(self) -> None:
        told = time.perf_counter() + QUIET_S
        while not self._over.wait(min(max(self.left(), 0.002), 0.25)):
            if self.left() <= 0:
                self.stop[0] = 1
            if self._report is not None and time.perf_counter() > told:
                told = time.perf_counter() + 1
                self._report(f"{told - 1 - self._start:.0f} s: {self.doing}")
