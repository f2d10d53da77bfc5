"""Report incumbents: a model with stages or a search offers answers as it finds them, so a killed run leaves one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flowlex.formulations.solver_outcome import SolveOptions

#: Seconds between two answers of one loop, and share of all time that making and checking answers may take.
_PAUSE_S, _SHARE = 1.0, 0.1


@dataclass(eq=False)
class Offers:
    """Makes answers and reports them.

    ``hand_on``: makes a solution of a run, and tells who wants to know.
    """

    hand_on: Callable[[Any], None]
    _free_at: float = field(default=0.0, init=False)

    def __call__(self, make: Callable[[], Any], *, often: bool) -> None:
        """Report an answer, unless it is offered ``often`` and comes too soon."""
        began = time.perf_counter()
        if often and began < self._free_at:
            return
        found = make()
        if found is not None:
            self.hand_on(found)
        now = time.perf_counter()
        self._free_at = now + max(_PAUSE_S, (now - began) / _SHARE)


def offer(options: SolveOptions, make: Callable[[], Any], *, often: bool = False) -> None:
    """Offer the answer that ``make`` returns (a `Run` of status feasible, or None), if reports were requested.

    In a loop pass ``often``: then an answer is made at most about once a second.
    """
    if isinstance(options.offer, Offers):
        options.offer(make, often=often)
