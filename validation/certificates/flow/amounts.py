"""What tasks ask for of what machines have, counted again, and slots of sizes that prices may be put on.

Of a capacity C, tasks that ask for q take ``floor(q / d)`` of ``floor(C / d)`` slots of size d: the sum of rounded
parts is at most the rounded sum. So a price on such slots is a price on something that every schedule keeps within.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.instances.exact import rational
from flowlex.validation.certificates.contract import Numeric, Strict
from flowlex.validation.certificates.flow.goals import Problem
from flowlex.validation.certificates.flow.prices import Load

__all__ = ["SizePrice", "loads", "overfull"]


class SizePrice(Strict):
    """Price of a slot of a size of a resource, on some machines."""

    resource: str
    size: Numeric
    price: int = Field(ge=0)
    machines: list[str]


def overfull(problem: Problem, at: Iterable[int]) -> Iterator[str]:
    """Machines whose tasks, on the machines ``at`` (-1 for none), ask for more than there is."""
    used: dict[tuple[int, str], Fraction] = {}
    names = problem.instance.resources
    for task, m in zip(problem.tasks, at, strict=True):
        for name in names if m >= 0 else ():
            amount = rational(task.task.demands.get(name, 0))
            if amount:
                used[m, name] = used.get((m, name), Fraction(0)) + amount
    for (m, name), amount in used.items():
        machine = problem.instance.machines[m]
        if amount > rational(machine.capacity.get(name, 0)):
            yield f"{name} of {machine.name}"


def loads(problem: Problem, prices: Iterable[SizePrice]) -> Load:
    """What the slots that a task takes cost it on each machine, and what all slots are worth."""
    names, number = problem.instance.resources, dict[tuple[Fraction, ...], int]()
    asked = (tuple(rational(t.task.demands.get(name, 0)) for name in names) for t in problem.tasks)
    of = np.array([number.setdefault(each, len(number)) for each in asked], dtype=np.int64)
    there = [[rational(m.capacity.get(name, 0)) for name in names] for m in problem.instance.machines]
    cost: NDArray[Any] = np.zeros((len(number), len(there)), dtype=object)
    worth = 0
    for each in prices:
        r, size = names.index(each.resource), rational(each.size)
        if size <= 0:
            raise ValueError(f"a slot of size {each.size} of {each.resource}")
        taken = np.array([each.price * (demand[r] // size) for demand in number], dtype=object)
        for name in each.machines:
            cost[:, problem.machine[name]] += taken
            worth += each.price * (there[problem.machine[name]][r] // size)
    too_much = [[any(q > c for q, c in zip(demand, room, strict=True)) for room in there] for demand in number]
    return Load(of, cost, np.array(too_much, dtype=bool).reshape(cost.shape), worth)
