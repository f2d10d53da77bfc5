"""The processor time a check may take: read inside the loops too, and not charged for compiling them.

The limit counts processor seconds of the thread that checks, so a busy machine gives the verdict of a quiet one. A
second thread watches them and sets ``stop[0]``, which every long loop reads; the loops release the interpreter lock
so that it can run beside them. Loading and compiling loops happens `Clock.outside` the limit, so that a fresh machine
gives the verdict of a warm one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from flowlex.formulations.deferred_compilation import Loop, run

#: Loops and types of arguments that this process has compiled or loaded; reading the clock costs more than small calls.
_LOADED: set[tuple[Any, ...]] = set()
#: Runs longer than this report their current step once a second.
QUIET_S = 2.0


class TimeIsUp(Exception):
    """The limit has passed."""


class Clock:
    """A limit in processor seconds of the thread that makes it, as a context; without one entered, nothing ever stops.

    ``seconds``: the limit; infinite by default.
    ``report``: called with one line about what is being tried, every second of waiting after the first `QUIET_S`.
    """

    def __init__(self, seconds: float = np.inf, report: Callable[[str], None] | None = None) -> None:
        self.stop = np.zeros(1, np.uint8)
        self.doing: str = "reading"
        self._report = report
        self._seconds = _processor_clock()
        self._start = time.perf_counter()
        self._end = self._seconds() + seconds
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
        """Processor seconds left."""
        return self._end - (self._seconds() if self._paused is None else self._paused)

    def check(self, doing: str = "") -> None:
        """Raise `TimeIsUp` when the limit has passed; remember what is being done."""
        if doing:
            self.doing = doing
        if self.stop[0] or self.left() <= 0:
            raise TimeIsUp

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Stop the clock for what happens inside."""
        self._paused = self._seconds()
        try:
            yield
        finally:
            self._end += self._seconds() - self._paused
            self._paused = None

    def run(self, function: Loop, *arguments: Any, steps: float) -> Any:
        """Call a loop (see `deferred_compilation.run`); compiling it is not counted."""
        kinds = [getattr(argument, "dtype", type(argument)) for argument in arguments]
        layouts = [argument.flags.num for argument in arguments if isinstance(argument, np.ndarray)]
        call = (function, *kinds, *layouts)

        @contextmanager
        def loading() -> Iterator[None]:
            if call in _LOADED:
                yield
                return
            with self.outside():
                yield
            _LOADED.add(call)

        return run(function, *arguments, steps=steps, compiling=loading)

    def _watch(self) -> None:
        reported = time.perf_counter() + QUIET_S
        while not self._over.wait(min(max(self.left(), 0.002), 0.25)):
            if self.left() <= 0:
                self.stop[0] = 1
            if self._report is not None and time.perf_counter() > reported:
                reported = time.perf_counter() + 1
                self._report(f"{reported - 1 - self._start:.0f} s: {self.doing}")


def _processor_clock() -> Callable[[], float]:
    """Processor seconds of the calling thread, readable from any thread; else of the whole process."""
    try:
        clock = time.pthread_getcpuclockid(threading.get_ident())
    except (AttributeError, OSError):
        return time.process_time
    return lambda: time.clock_gettime(clock)
