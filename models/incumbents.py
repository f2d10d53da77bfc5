"""Answers on the way: a model with stages or a search offers what it has, so that a killed run leaves its best one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flowlex.formulations.solver_outcome import SolveOptions

#: Seconds between two answers of one loop, and of all time the part that may go into making and checking them.
_PAUSE_S, _SHARE = 1.0, 0.1


@dataclass(eq=False)
class Offers:
    """Makes answers and hands them on.

    ``hand_on``: makes a solution of a run, and tells who wants to know.
    """

    hand_on: Callable[[Any], None]
    _free_at: float = field(default=0.0, init=False)

    def __call__(self, make: Callable[[], Any], *, often: bool) -> None:
        """Hand on an answer, unless it comes too soon for one that comes ``often``."""
        began = time.perf_counter()
        if often and began < self._free_at:
            return
        found = make()
        if found is not None:
            self.hand_on(found)
        now = time.perf_counter()
        self._free_at = now + max(_PAUSE_S, (now - began) / _SHARE)


def offer(options: SolveOptions, make: Callable[[], Any], *, often: bool = False) -> None:
    """Offer the answer that ``make`` makes (a `Run` of status feasible, or None) to whoever asked for it.

    In a loop, say ``often``: then it is made about once a second at most.
    """
    if isinstance(options.offer, Offers):
        options.offer(make, often=often)
