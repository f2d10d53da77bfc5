"""Groups of identical tasks and machines stated by a file, and the check that they are identical."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowlex.validation.restated.flow.goal_costs import Problem


@dataclass(frozen=True)
class Groups:
    """Positions of all members of each class of tasks and kind of machines, keyed by the first member."""

    tasks: Mapping[int, list[int]]
    machines: Mapping[int, list[int]]

    @classmethod
    def of(cls, problem: Problem, classes: Mapping[str, list[str]], kinds: Mapping[str, list[str]]) -> Groups:
        """Read groups by name; machines are compared once their costs are known.

        Raises `ValueError`: a name does not exist or stands twice, or two tasks of a class differ.
        """
        task = {name: t for t, name in enumerate(problem.names)}
        found = cls(_groups(classes, task), _groups(kinds, problem.machine))
        rules = problem.ties.of_task()
        for first, members in found.tasks.items():
            mine = _facts(problem, first, rules) if len(members) > 1 else ()
            for t in members[1:]:
                if _facts(problem, t, rules) != mine:
                    names = (problem.names[each] for each in (first, t))
                    raise ValueError(f"tasks {' and '.join(map(repr, names))} are not identical")
        return found


def _groups(stated: Mapping[str, list[str]], number: Mapping[str, int]) -> dict[int, list[int]]:
    names = [name for first, others in stated.items() for name in (first, *others)]
    if strange := [name for name in names if name not in number]:
        raise ValueError(f"{strange[0]!r} does not exist")
    if len(set(names)) < len(names):
        raise ValueError("a name stands in two groups")
    found = {number[first]: [number[name] for name in (first, *others)] for first, others in stated.items()}
    inside = {k for members in found.values() for k in members}
    return found | {k: [k] for k in number.values() if k not in inside}


def _facts(problem: Problem, t: int, rules: Mapping[int, Sequence[str]]) -> tuple[Any, ...]:
    """Everything about a task on which its costs and rows depend."""
    task = problem.tasks[t]
    waiting = tuple(int(cost[t]) for cost in problem.waiting.values())
    asked = {name: amount for name, amount in task.demands.items() if amount}
    each = (problem.job, problem.own, problem.kind, problem.apart, problem.keep, problem.held, problem.credit)
    return (*(int(values[t]) for values in each), problem.explicit.get(t), waiting, asked, task.data, rules.get(t))
