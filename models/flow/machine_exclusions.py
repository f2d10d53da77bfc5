"""Groups that leave machines or racks out: which blocks they enter, and who runs where inside (see `machine_tree`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from flowlex.models.flow.goals.goal_interface import Spot
from flowlex.models.flow.machine_tree import Path

__all__ = ["Block", "base_of", "hand_out"]


class Block(NamedTuple):
    """The machines of a spot inside a block."""

    base: Spot
    path: Path

    @property
    def once(self) -> str:
        """Blocks serve tasks that need not keep apart."""
        return ""

    def __str__(self) -> str:
        return f"{self.base}, block {'.'.join(map(str, self.path))}"


def base_of(spot: Spot) -> Spot | None:
    """The spot without the machines and racks that it leaves out; None when it leaves none out, or keeps apart."""
    kept = frozenset(tag for tag in spot.lacks if not tag.startswith(("machine:", "rack:")))
    return None if spot.once or kept == spot.lacks else Spot(spot.has, kept)


def hand_out(
    tasks: Iterable[str], free: dict[str, int], held: Mapping[str, Iterable[str]], fits: Callable[[str, str], bool]
) -> dict[str, str]:
    """Assign every task to a machine that fits it and has a free slot; augmenting paths move other tasks where needed.

    Parameters
    ----------
    free
        Units left by machine; used up.
    held
        Tasks that have a machine already.

    Returns
    -------
    dict
        The new machine of each of ``tasks``, and of those of ``held`` that made way.

    Raises
    ------
    RuntimeError
        A task cannot be served; the flow says that all can, so this is a defect.
    """
    found: dict[str, str] = {}
    for task in tasks:
        place = next((m for m, units in free.items() if units and fits(task, m)), None)
        way = [(task, place)] if place is not None else _exchange(task, free, _now(held, found), fits)
        found.update(way)
        free[way[0][1]] -= 1
    return found


def _now(held: Mapping[str, Iterable[str]], found: Mapping[str, str]) -> dict[str, list[str]]:
    """Tasks by machine, with what has been found since."""
    there = {machine: [task for task in those if task not in found] for machine, those in held.items()}
    for task, machine in found.items():
        there.setdefault(machine, []).append(task)
    return there


def _exchange(
    task: str, free: Mapping[str, int], there: Mapping[str, list[str]], fits: Callable[[str, str], bool]
) -> list[tuple[str, str]]:
    """Who moves where so that a task fits, the mover into a free place first."""
    came: dict[str, tuple[str, str] | None] = {task: None}  # task: who takes its place, and where that is
    queue, seen = deque([task]), set[str]()
    while queue:
        mover = queue.popleft()
        for machine, those in there.items():
            if machine in seen or not those or not fits(mover, machine):
                continue
            seen.add(machine)
            for other in those:
                came[other] = (mover, machine)
                place = next((m for m, units in free.items() if units and fits(other, m)), None)
                if place is not None:
                    way = [(other, place)]
                    while (step := came[way[-1][0]]) is not None:
                        way.append(step)
                    return way
                queue.append(other)
    raise RuntimeError(f"the flow has a place for task {task!r}, but none fits it")
