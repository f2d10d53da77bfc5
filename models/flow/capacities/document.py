"""What proves a schedule that fits, in the instance's own names; see `flowlex.validation.certificates.flow.stages`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.capacities.bound import Bound
from flowlex.models.flow.capacities.search import Fitted, Packing
from flowlex.models.flow.reasons import WORTH_MORE
from flowlex.models.flow.solution import Score

__all__ = ["NO_ROOM", "TOO_LARGE", "proof_of", "room_reasons", "score_of"]

TOO_LARGE = "no machine that it may use has as much of everything it asks for"
NO_ROOM = "no machine that it may use has as much left of everything it asks for"


def proof_of(packing: Packing, fitted: Fitted) -> dict[str, Any]:
    """Prices of every stage's bound by name; those of nothing are left out."""
    return {"stages": {name: _prices(packing, name, bound) for name, bound in fitted.bounds.items()}}


def _prices(packing: Packing, stage: str, bound: Bound) -> dict[str, Any]:
    instance, kinds, amounts = packing.instance, packing.kinds, packing.amounts
    machines: dict[int, list[str]] = defaultdict(list)
    for machine, kind in zip(instance.machines, kinds.places.kind.tolist(), strict=True):
        machines[kind].append(machine.name)
    weights = {name: weight for name, weight in bound.weights.items() if weight} | {stage: bound.unit}
    level = {int(j): int(n) for j, n in zip(packing.classes.job, packing.classes.level, strict=True)}
    job = [price + weights.get(f"waiting_{level[j]}", 0) for j, price in enumerate(bound.job)]
    sizes = [
        {
            "resource": amounts.names[size.resource],
            "size": str(size.size * amounts.units[size.resource]),
            "price": price,
            "machines": machines[size.place],
        }
        for size, price in bound.size.items()
    ]
    apart: dict[str, dict[str, int]] = defaultdict(dict)
    for (rule, kind), price in bound.apart.items():
        apart[rule] |= dict.fromkeys(machines[kind], price)
    return {
        "at_least": bound.value,
        "weights": weights,
        "machine_price": {m: price for k, price in enumerate(bound.machine) if price for m in machines[k]},
        "job_price": {j.name: price for j, price in zip(instance.jobs, job, strict=True) if price},
        "apart_price": dict(apart),
        "size_price": sizes,
    }


def room_reasons(packing: Packing, fitted: Fitted, reasons: dict[str, str]) -> dict[str, str]:
    """Reasons of waiting, where a lack of resources is one."""
    amounts, classes, at = packing.amounts, packing.classes, fitted.machine
    free = amounts.capacity.copy()
    runs = at >= 0
    np.subtract.at(free, at[runs], amounts.demand[runs])
    found = {}
    for t, task in enumerate(packing.instance.tasks):
        why = reasons.get(task.name)
        if why == WORTH_MORE:
            may = classes.may[classes.of[t]]
            if not may.any():
                why = TOO_LARGE
            elif not (may & (free >= amounts.demand[t]).all(axis=1)).any():
                why = NO_ROOM
        if why is not None:
            found[task.name] = why
    return found


def score_of(packing: Packing, fitted: Fitted, rules: Rules) -> Score:
    """What was minimised, as the network's answers state it."""
    strict, waiting = rules.priority is not None and rules.priority.mode == "strict", defaultdict[int, int](int)
    tasks = [job.priority if strict else 0 for job in packing.instance.jobs for _ in job.tasks]
    for priority, machine in zip(tasks, fitted.machine.tolist(), strict=True):
        waiting[priority] += machine < 0
    ranks = {name: fitted.values.get(name, 0) for name in packing.program.ranks}
    by_goal = () if rules.order is None else tuple(ranks.items())
    shortfall = fitted.values.get("shortfall", 0)
    return Score(shortfall, tuple(sorted(waiting.items())), by_goal, sum(ranks.values()))
