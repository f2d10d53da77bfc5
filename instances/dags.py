"""Order in a directed acyclic graph, and the cycle by name when it is not acyclic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["topological_order"]


def topological_order(after: Mapping[str, Sequence[str]], where: str) -> list[str]:
    """Names in an order that respects ``after``; the first listed goes first among equals.

    Raises
    ------
    ValueError
        If there is a cycle; the message names it.
    """
    waiting = {name: len(before) for name, before in after.items()}
    followers: dict[str, list[str]] = {name: [] for name in after}
    for name, before in after.items():
        for other in before:
            followers[other].append(name)
    order = [name for name, count in waiting.items() if count == 0]
    for name in order:
        for follower in followers[name]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                order.append(follower)
    if len(order) < len(after):
        raise ValueError(f"{where} has a cycle: {' -> '.join(_cycle(after, waiting))}; remove one of these edges")
    return order


def _cycle(after: Mapping[str, Sequence[str]], waiting: Mapping[str, int]) -> list[str]:
    """Walk back along unfinished predecessors until a name repeats."""
    name = next(name for name, count in waiting.items() if count > 0)
    path: list[str] = []
    while name not in path:
        path.append(name)
        name = next(before for before in after[name] if waiting[before] > 0)
    return [name, *reversed(path[path.index(name) :])]
