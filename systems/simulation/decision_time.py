"""Decision time of policies: a scheduler that takes a second to decide starts its tasks a second later."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

from pydantic import Field

from flowlex.systems.simulation.event_queue import SimulationError
from flowlex.systems.simulation.scenario import Decision

Action = TypeVar("Action")
#: Certify every n-th time; 0: never.
Each = Annotated[int, Field(ge=0)]


class EveryNth:
    """True the first time and every n-th time after, False in between; always False for 0.

    >>> turn = EveryNth(3)
    >>> [next(turn) for _ in range(4)]
    [True, False, False, True]
    """

    def __init__(self, each: int) -> None:
        self.each: int = int(each)
        self._count = 0

    def __next__(self) -> bool:
        self._count += 1
        return bool(self.each) and (self._count - 1) % self.each == 0


def ask(
    decision: Decision,
    decide: Callable[[], Iterable[Action]],
    work: Callable[[], float | None],
    *,
    most: int | None = None,
) -> tuple[list[Action], float]:
    """Let a policy decide; return its actions and the simulated seconds that this took.

    ``decision``: how decision time is counted. ``decide``: returns the actions. ``work``: units of work of this
    decision, as counted by the policy; None if it counts none. ``most``: limit of the number of actions, so that a
    generator that never ends is detected. Raises `SimulationError` if time is to be counted and the policy counts no
    work, or if the answer is not a list of at most ``most`` actions.
    """
    started = time.perf_counter()
    answer = decide()
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise SimulationError(f"it answers {answer!r:.80}; yield actions, or return a list of them (empty for none)")
    actions = list(answer if most is None else itertools.islice(answer, most + 1))
    if most is not None and len(actions) > most:
        raise SimulationError(f"it answers more than {most} actions, and may never end; start and stop a task once")
    if decision.mode == "measured":
        return actions, time.perf_counter() - started
    if decision.mode == "counted":
        units = work()
        if units is None:
            raise SimulationError("decision time is to be counted, but this policy counts no work; use mode 'fixed'")
        return actions, decision.seconds + decision.seconds_per_unit * units
    return actions, decision.seconds if decision.mode == "fixed" else 0.0
