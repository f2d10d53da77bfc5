"""Just-in-time bandwidth as a plain program over HiGHS, changed by hand: the oracle of `test_changes`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import LinearConstraint, milp

from flowlex.instances.jit import JitInstance


@dataclass
class Plain:
    """Columns as (name, labels, lower, upper, integer); rows as (name, label, terms, lower, upper); stages."""

    columns: list[list[Any]] = field(default_factory=list)
    rows: list[tuple[str, str, dict[int, float], float, float]] = field(default_factory=list)
    stages: dict[str, dict[int, float]] = field(default_factory=dict)

    def column(self, name: str, labels: dict[str, Any], upper: float) -> int:
        self.columns.append([name, labels, 0.0, upper, True])
        return len(self.columns) - 1

    def chosen(self, name: str, test: Callable[[dict[str, Any]], bool]) -> list[int]:
        return [k for k, (n, labels, *_) in enumerate(self.columns) if n == name and test(labels)]

    def solve(self) -> dict[str, float] | None:
        """Return the value of every stage; None if infeasible."""
        count = len(self.columns)
        rows = [*self.rows]
        values: dict[str, float] = {}
        for name, terms in self.stages.items():
            cost = np.zeros(count)
            for k, value in terms.items():
                cost[k] = value
            matrix = np.zeros((len(rows), count))
            for r, (_, _, each, _, _) in enumerate(rows):
                for k, value in each.items():
                    matrix[r, k] = value
            low, high = [row[3] for row in rows], [row[4] for row in rows]
            bounds = ([c[2] for c in self.columns], [c[3] for c in self.columns])
            found = milp(
                cost,
                constraints=LinearConstraint(matrix, low, high),
                integrality=[int(c[4]) for c in self.columns],
                bounds=bounds,
                options={"mip_rel_gap": 0},
            )
            if found.status == 2:
                return None
            assert found.status == 0, found.message
            values[name] = float(found.fun)
            rows.append(("stage", name, terms, -math.inf, values[name] + 1e-6))
        return values


def plain_program(instance: JitInstance, load: str, windows: str) -> Plain:
    """All transfers of an instance with slots of 1 s, units of 1 MB and integer deadlines in seconds."""
    p, capacity = Plain(), {m.name: (round(m.out_mbps / 8), round(m.in_mbps / 8)) for m in instance.machines}
    transfers = []
    for job in instance.jobs:
        for f in job.transfers:
            start, due = round(job.arrival_s + f.ready_s), round(job.arrival_s + f.deadline_s)
            most = min(capacity[f.sender][0], capacity[f.receiver][1])
            units = round(f.size_mb)
            transfers.append((job.name, f, start, due, max(due, start + -(-units // most)), units, most))
    first = min((round(job.arrival_s) for job in instance.jobs), default=0)
    busy = 0
    for side in (0, 1):
        sums: dict[str, int] = {}
        for _, f, *_, units, _ in transfers:
            machine = (f.sender, f.receiver)[side]
            sums[machine] = sums.get(machine, 0) + units
        busy += max(-(-total // capacity[machine][side]) for machine, total in sums.items())
    last = max(max(start, stop) for *_, start, _, stop, _, _ in transfers) + busy
    loads: dict[tuple[Any, ...], list[int]] = {}
    most_of: dict[tuple[Any, ...], int] = {}
    all_units: dict[tuple[Any, ...], int] = {}
    ports: dict[tuple[int, str, int], list[int]] = {}
    late = {}
    for job_name, f, start, due, stop, units, most in transfers:
        keys: list[tuple[Any, ...]] = [("link", f.sender, f.receiver)]
        if load != "pair":
            both = [("out", f.sender, 0), ("in", f.receiver, 1)]
            keys = {"port": both, "sender": both[:1], "receiver": both[1:]}[load]
        for key in keys:
            most_of[key] = most if load == "pair" else capacity[key[1]][key[2]]
            all_units[key] = all_units.get(key, 0) + units
        sent = []
        for t in range(start, last if windows == "elastic" else stop):
            labels = {"transfer": f"{job_name}/{f.name}", "job": job_name, "sender": f.sender, "receiver": f.receiver}
            labels |= {"link": f"{f.sender}>{f.receiver}", "slot": t - first, "time": float(t)}
            k = p.column("rate", labels, min(most, units))
            sent.append(k)
            late[k] = float(max(t + 1 - due, 0))
            for key in keys:
                loads.setdefault((*key, t), []).append(k)
            for side, machine in enumerate((f.sender, f.receiver)):
                ports.setdefault((side, machine, t), []).append(k)
        p.rows.append(("size", f"{job_name}/{f.name}", dict.fromkeys(sent, 1.0), units, units))
    for (side, machine, t), ks in ports.items():
        name = ("egress", "ingress")[side]
        p.rows.append((name, f"{machine},{t - first}", dict.fromkeys(ks, 1.0), -math.inf, capacity[machine][side]))
    if windows == "elastic":
        p.stages["lateness"] = late
    top = max(min(most_of[key], all_units[key]) for key in most_of)
    largest = p.column("largest", {}, top)
    p.stages["largest"] = {largest: 1.0}
    for k in range(top, 0, -1):
        p.stages[f"level_{k}"] = {}
    for (*key, t), ks in loads.items():
        name = f"{key[1]}>{key[2]}" if load == "pair" else f"{key[1]} {key[0]}"
        labels = {"link" if load == "pair" else "port": name, "slot": t - first, "time": float(t)}
        if load == "pair":
            labels |= {"sender": key[1], "receiver": key[2]}
        else:
            labels |= {"machine": key[1], "side": key[0]}
        p.rows.append(("largest_link", "", {**dict.fromkeys(ks, 1.0), largest: -1.0}, -math.inf, 0))
        reach = min(most_of[tuple(key)], int(sum(p.columns[k][3] for k in ks)))
        steps = [p.column("level", {**labels, "step": step}, 1) for step in range(1, reach + 1)]
        p.rows.append(("level_link", "", {**dict.fromkeys(ks, 1.0), **dict.fromkeys(steps, -1.0)}, 0, 0))
        for below, above in pairwise(steps):
            p.rows.append(("level_order", "", {above: 1.0, below: -1.0}, -math.inf, 0))
        for step, k in enumerate(steps, 1):
            p.stages[f"level_{step}"][k] = 1.0
    return p
