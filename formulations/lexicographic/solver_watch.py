"""Follow a solve: its best answers, its bound, and Ctrl-C, which ends it with the best answer so far."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.program_arrays import Floats

if TYPE_CHECKING:
    import highspy

#: Seconds between two reports of a bound.
_EVERY_S = 0.25
#: Linear programs from this many columns on are stopped by Ctrl-C within a run; smaller ones end soon.
_LONG = 10_000


@dataclass(eq=False)
class Watch:
    """What is told while stages are solved, all of it as minimisations.

    Attributes
    ----------
    tell
        Called with the number of the stage, the value of its best answer and its bound (each None if unknown).
    found
        Called with each better answer.
    interrupted
        Whether the solve shall end now.
    """

    tell: Callable[[int, float | None, float | None], None] | None = None
    found: Callable[[Floats], None] | None = None
    interrupted: bool = False
    stage: int = 0
    #: In which units the stages are solved, and what gives values of the columns as they were given; see `Scaling`.
    units: Floats = field(default_factory=lambda: np.ones(0))
    scaled: Callable[[Floats], Floats] | None = None
    _told: float = 0.0

    def answer(self, values: Floats) -> None:
        """Hand on an answer."""
        if self.found is not None:
            self.found(values if self.scaled is None else self.scaled(values))

    def follow(self, solver: highspy.Highs, *, integer: bool, columns: int, reporting: bool = False) -> None:
        """Follow a run of HiGHS; ``reporting``: tell of its answers and bounds, not only end it on Ctrl-C."""
        if integer:
            solver.cbMipInterrupt += self._on_integer if reporting else self._on_linear
            if reporting and self.found is not None:
                solver.cbMipImprovingSolution += self._on_answer
        elif columns >= _LONG:
            solver.cbSimplexInterrupt += self._on_linear
            solver.cbIpmInterrupt += self._on_linear

    def _on_linear(self, event: Any) -> None:
        if self.interrupted:
            event.interrupt()

    def _on_integer(self, event: Any) -> None:
        if self.interrupted:
            event.interrupt()
        found = event.data_out
        self.progress(float(found.mip_primal_bound), float(found.mip_dual_bound))

    def progress(self, value: float, bound: float) -> None:
        """Tell where the stage is, at most four times a second; infinite: not known."""
        now = time.perf_counter()
        if self.tell is not None and now >= self._told + _EVERY_S:
            self._told = now
            unit = float(self.units[self.stage]) if self.stage < len(self.units) else 1.0
            self.tell(self.stage, *(v / unit if abs(v) < 1e100 else None for v in (value, bound)))

    def _on_answer(self, event: Any) -> None:
        if not self.interrupted:
            self.answer(np.array(event.data_out.mip_solution))


@contextlib.contextmanager
def interruptible(watch: Watch | None) -> Iterator[None]:
    """Let the first Ctrl-C set ``watch.interrupted``, and the next raise `KeyboardInterrupt` as usual."""
    plain = signal.default_int_handler
    if watch is None or threading.current_thread() is not threading.main_thread() or signal.getsignal(2) is not plain:
        yield
        return

    def stop(number: int, frame: Any) -> None:
        watch.interrupted = True
        signal.signal(signal.SIGINT, plain)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, plain)
