"""A just-in-time schedule: rates, loads, what is left of the ports, and pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Integers
from flowlex.formulations.outcome import Status
from flowlex.models.base import Dual, Solution
from flowlex.models.jit.baselines import fill, greedy_schedule
from flowlex.models.jit.grid import Grid, Load, Runs
from flowlex.models.jit.levels import Plan

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["JitSolution", "sorted_loads"]


@dataclass(frozen=True, kw_only=True)
class JitSolution(Solution):
    """Rates of all planned transfers.

    Attributes
    ----------
    grid
        The planned transfers, in slots and units.
    runs, rate
        One row of slots per transfer, and the units sent in each of them.
    load
        What is counted: ``pair`` or ``port``.
    route
        How the answer was come by: ``structure`` (no solver), ``lp in bands``, ``staged lp``, ``staged mip``, ...
    largest_bound
        Lower bound on the largest load from the windows alone.
    """

    grid: Grid = field(repr=False)
    runs: Runs = field(repr=False)
    rate: NDArray[Any] = field(repr=False)
    load: Load
    program: str
    route: tuple[str, ...] = ()
    largest_bound: int = 0
    lp_solves: int = 0
    mip_solves: int = 0

    @classmethod
    def of(cls, facts: dict[str, Any], grid: Grid, plan: Plan, load: Load, program: str) -> JitSolution:
        """Build the solution from the facts that every solution tells, and a plan."""
        loads = sorted_loads(grid, plan.runs, plan.rate, load)
        largest = _number(loads[0]) if len(loads) else 0
        answer = plan.status.has_answer
        proven = bool(plan.parts) and plan.status is Status.OPTIMAL
        objective: float | int = largest
        bound: float | int | None = largest if proven else (plan.largest_bound if answer else None)
        if plan.weighted is not None:
            objective, bound = plan.weighted
        return cls(
            **facts
            | {
                "objective": objective if answer else None,
                "bound": bound,
                "gap": None if bound is None else abs(objective - bound) / max(1.0, abs(objective)),
            },
            duals=_port_duals(grid, plan) if proven else {},
            grid=grid,
            runs=plan.runs,
            rate=plan.rate,
            load=load,
            program=program,
            route=plan.route,
            largest_bound=plan.largest_bound,
            lp_solves=plan.lp_solves,
            mip_solves=plan.mip_solves,
        )

    @cached_property
    def sorted_loads(self) -> NDArray[Any]:
        """Loads above zero, in descending order: the vector that is lexicographically least."""
        return sorted_loads(self.grid, self.runs, self.rate, self.load)

    @cached_property
    def levels(self) -> dict[int, int]:
        """Level s to the number of loads of at least s (whole rates)."""
        loads = self.sorted_loads
        top = int(np.ceil(loads[0] - 1e-6)) if len(loads) else 0
        return {s: int((loads >= s - 1e-6).sum()) for s in range(top, 0, -1)}

    @cached_property
    def port_load(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Units per slot out of and into every machine, (M, horizon) each."""
        grid, runs = self.grid, self.runs
        shape = (len(grid.out_units), int(runs.last.max(initial=0)))
        out, into = np.zeros(shape, self.rate.dtype), np.zeros(shape, self.rate.dtype)
        np.add.at(out, (grid.sender[runs.row], runs.slot), self.rate)
        np.add.at(into, (grid.receiver[runs.row], runs.slot), self.rate)
        return out, into

    @property
    def remaining(self) -> NDArray[np.float64]:
        """(M, 2) unused share of every machine's egress and ingress, over all slots."""
        out, into = self.port_load
        slots = max(out.shape[1], 1)
        grid = self.grid
        return np.stack(
            [1 - out.sum(axis=1) / (grid.out_units * slots), 1 - into.sum(axis=1) / (grid.in_units * slots)], axis=1
        )

    @cached_property
    def finish(self) -> Integers:
        """(F,) slot after the last one in which a transfer sends."""
        end = np.where(self.rate > 0, self.runs.slot + 1, 0)
        if not self.grid.count:
            return np.zeros(0, np.int64)
        return np.maximum.reduceat(end, self.runs.offset[:-1])

    @property
    def lateness(self) -> float:
        """Units sent after their windows, times the slots they are late."""
        late = np.maximum(self.runs.slot + 1 - self.grid.stop[self.runs.row], 0)
        return float((late * self.rate).sum())

    def late_frame(self) -> pd.DataFrame:
        """Transfers that arrive after their latest arrival time, on the grid or because of others."""
        import pandas as pd

        grid, slot = self.grid, self.grid.instance.slot_s
        latest = grid.latest.latest_s[grid.transfer]
        late = np.flatnonzero(self.finish * slot > latest * (1 + 1e-9) + 1e-9)
        reason = np.where(self.finish[late] <= grid.stop[late], "grid", "ports")
        return pd.DataFrame(
            {
                "transfer": [grid.name(k) for k in late.tolist()],
                "latest_s": latest[late],
                "arrival_s": self.finish[late] * slot,
                "late_s": self.finish[late] * slot - latest[late],
                "because_of": reason,
            }
        )

    def _frame(self) -> pd.DataFrame:
        """One row per transfer and slot with a rate: units and Mbit/s."""
        import pandas as pd

        grid, instance = self.grid, self.grid.instance
        used = np.flatnonzero(self.rate)
        names = np.array([grid.name(k) for k in range(grid.count)], dtype=object)
        machines = np.array([m.name for m in instance.machines], dtype=object)
        row = self.runs.row[used]
        return pd.DataFrame(
            {
                "transfer": names[row],
                "sender": machines[grid.sender[row]],
                "receiver": machines[grid.receiver[row]],
                "slot": self.runs.slot[used],
                "start_s": self.runs.slot[used] * instance.slot_s,
                "units": self.rate[used],
                "mbps": self.rate[used] * instance.unit_mb * 8 / instance.slot_s,
            }
        )

    def background_frame(self) -> pd.DataFrame:
        """Copies and unplanned transfers, first come first served on the bandwidth that is left."""
        import pandas as pd

        self.require_answer()
        grid, instance = self.grid, self.grid.instance
        arrays, copies = instance.arrays, instance.copies
        place = {m.name: k for k, m in enumerate(instance.machines)}
        out, into = self.port_load
        size = np.concatenate([[c.size_mb for c in copies], arrays.size_mb[grid.rest]])
        start = np.concatenate([[c.arrival_s for c in copies], arrays.start_s[grid.rest]])
        sender = np.concatenate([[place[c.sender] for c in copies], arrays.sender[grid.rest]]).astype(np.int64)
        receiver = np.concatenate([[place[c.receiver] for c in copies], arrays.receiver[grid.rest]]).astype(np.int64)
        units = np.ceil(size / instance.unit_mb - 1e-9).astype(np.int64)
        begin = np.ceil(start / instance.slot_s - 1e-9).astype(np.int64)
        room = [
            np.floor(limit[:, None] - load + 1e-6) for limit, load in ((grid.out_units, out), (grid.in_units, into))
        ]
        end = fill(
            room[0].astype(np.int64),
            room[1].astype(np.int64),
            grid.out_units,
            grid.in_units,
            sender,
            receiver,
            units,
            begin,
        )
        alone = np.ceil(units / np.minimum(grid.out_units[sender], grid.in_units[receiver]))
        names = [c.name for c in copies] + [instance.transfer_names[int(k)] for k in grid.rest]
        finish = end * instance.slot_s
        return pd.DataFrame(
            {
                "name": names,
                "copy": [k < len(copies) for k in range(len(names))],
                "size_mb": size,
                "start_s": start,
                "finish_s": finish,
                "slowdown": (end - begin) / np.maximum(alone, 1),
            }
        )

    def greedy_loads(self) -> NDArray[np.int64]:
        """Sorted loads of the schedule that sends as early and as fast as possible, for comparison."""
        return sorted_loads(self.grid, self.grid.columns, greedy_schedule(self.grid)[0], self.load)

    def _metrics(self) -> dict[str, float | int | str]:
        """Levels, lateness, remaining bandwidth, and how the answer was come by."""
        left = self.remaining
        cost = self.grid.cost()
        levels = ", ".join(f"{count} at {s}" for s, count in list(self.levels.items())[:4])
        return {
            "largest_load": _number(self.sorted_loads[0]) if len(self.sorted_loads) else 0,
            "loads_by_level": levels or "none",
            "route": ", ".join(self.route),
            "linear_programs": self.lp_solves,
            "integer_programs": self.mip_solves,
            "planned_transfers": self.grid.count,
            "background_transfers": len(self.grid.rest),
            "lateness_unit_slots": self.lateness,
            "windows_widened_by_grid": cost.widened,
            "least_remaining_egress": float(left[:, 0].min()),
            "median_remaining_egress": float(np.median(left[:, 0])),
        }

    def _answer(self) -> dict[str, Any]:
        """``schedule`` holds slots and units per transfer that sends anything."""
        schedule = {}
        for k in range(self.grid.count):
            run = slice(int(self.runs.offset[k]), int(self.runs.offset[k + 1]))
            used = np.flatnonzero(self.rate[run])
            schedule[self.grid.name(k)] = {
                "slots": (self.runs.slot[run][used]).tolist(),
                "units": self.rate[run][used].tolist(),
            }
        return {
            "slot_s": self.grid.instance.slot_s,
            "unit_mb": self.grid.instance.unit_mb,
            "schedule": schedule,
        }

    def _draw(self, ax: Axes | None) -> Axes:
        """Gantt chart of the transfers with their latest arrival times."""
        from flowlex.models.jit.plots import plot_gantt

        return plot_gantt(self, ax)

    def plot_ports(self, ax: Axes | None = None) -> Axes:
        """Load of the ports over time."""
        from flowlex.models.jit.plots import plot_ports

        self.require_answer()
        return plot_ports(self, ax)

    def plot_remaining(self, ax: Axes | None = None) -> Axes:
        """Distribution of the machines' remaining egress."""
        from flowlex.models.jit.plots import plot_remaining

        self.require_answer()
        return plot_remaining(self, ax)

    def plot_loads(self, ax: Axes | None = None) -> Axes:
        """Sorted loads against those of the greedy schedule."""
        from flowlex.models.jit.plots import plot_loads

        self.require_answer()
        return plot_loads(self, ax)


def sorted_loads(grid: Grid, runs: Runs, rate: NDArray[Any], load: Load) -> NDArray[Any]:
    """Loads above zero in descending order."""
    used = np.flatnonzero(rate)
    width = int(runs.last.max(initial=1))
    keys = [group[runs.row[used]] * width + runs.slot[used] for group in grid.groups(load)]
    _, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    loads = np.bincount(inverse, weights=np.tile(rate[used], len(keys)))
    found = np.rint(loads).astype(np.int64) if np.issubdtype(rate.dtype, np.integer) else loads
    return np.asarray(np.sort(found)[::-1])


def _port_duals(grid: Grid, plan: Plan) -> dict[str, Dual]:
    """By side and ``machine,slot``, where not zero: what one more unit of capacity changes at its highest level."""
    machines = len(grid.out_units)
    price = np.zeros((2 * machines, int(plan.runs.last.max(initial=0))))
    for part in plan.parts:
        for proof in sorted(part.proofs, key=lambda p: p.level):
            price[proof.port, proof.port_slot] = -proof.pi
    names = [machine.name for machine in grid.instance.machines]
    duals = {}
    for side, prices in (("egress", price[:machines]), ("ingress", price[machines:])):
        where = np.nonzero(prices)
        labels = [f"{names[m]},{t}" for m, t in zip(*(index.tolist() for index in where), strict=True)]
        duals[side] = Dual(prices[where], labels)
    return duals


def _number(value: Any) -> int | float:
    return int(value) if float(value).is_integer() else float(value)
