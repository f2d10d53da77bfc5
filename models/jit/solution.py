"""A just-in-time schedule: rates, loads, what is left of the ports, and pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers
from flowlex.formulations.outcome import Status
from flowlex.models.base import Dual, Solution
from flowlex.models.jit.baselines import fill, greedy_schedule
from flowlex.models.jit.grid import Grid, Load, Runs, Segments
from flowlex.models.jit.proofs import part_document
from flowlex.models.jit.search import Plan
from flowlex.validation.certificates.jit import LATENESS, SchedulePart

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["JitSolution", "sorted_loads", "stages_of"]


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
    lowest
        The lowest level that is proven; 1 when all are.
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
    plan_parts: tuple[SchedulePart, ...] = field(default=(), repr=False)
    lowest: int = 1

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
            duals=_duals(grid, plan) if proven else {},
            grid=grid,
            runs=plan.runs,
            rate=plan.rate,
            load=load,
            program=program,
            route=plan.route,
            largest_bound=plan.largest_bound,
            lp_solves=plan.lp_solves,
            mip_solves=plan.mip_solves,
            plan_parts=plan.parts,
            lowest=plan.lowest,
            stages=stages_of(grid, plan, load) if answer else {},
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

    @cached_property
    def job_load(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """As `port_load`, with the transfers that jobs leave to the background, until the last has arrived."""
        planned, (_, sent) = self.port_load, self._background
        copies = len(self.grid.instance.copies)
        sent = sent[sent[:, 0] >= copies]
        rest = self.grid.rest[sent[:, 0] - copies]
        arrays, answer = self.grid.instance.arrays, []
        slots = max(planned[0].shape[1], int(sent[:, 1].max(initial=-1)) + 1)
        for load, port in zip(planned, (arrays.sender, arrays.receiver), strict=True):
            both = np.zeros((len(load), slots), load.dtype)
            both[:, : load.shape[1]] = load
            np.add.at(both, (port[rest], sent[:, 1]), sent[:, 2].astype(load.dtype))
            answer.append(both)
        return answer[0], answer[1]

    @property
    def remaining_by_slot(self) -> NDArray[np.float64]:
        """(M, slots) share of every machine's egress that jobs leave in a slot, file copies not counted."""
        return np.asarray(1 - self.job_load[0] / self.grid.out_units[:, None])

    @property
    def remaining(self) -> NDArray[np.float64]:
        """(M, 2) the paper's H, and the same inwards: share of a machine's ports that jobs leave, over all slots.

        Counted until the last transfer of a job has arrived, planned or in the background; file copies are not.
        """
        limits = (self.grid.out_units, self.grid.in_units)
        used = [
            load.sum(axis=1) / (most * max(load.shape[1], 1)) for load, most in zip(self.job_load, limits, strict=True)
        ]
        return np.asarray(1 - np.stack(used, axis=1))

    @cached_property
    def finish(self) -> Integers:
        """(F,) slot after the last one in which a transfer sends."""
        end = np.where(self.rate > 0, self.runs.slot + 1, 0)
        if not self.grid.count:
            return np.zeros(0, np.int64)
        return np.maximum.reduceat(end, self.runs.offset[:-1])

    @cached_property
    def lateness(self) -> float | int:
        """Units sent after their due slots, times the slots they are late."""
        late = np.maximum(self.runs.slot + 1 - self.grid.due[self.runs.row], 0)
        return _number((late * self.rate).sum())

    @cached_property
    def segments(self) -> Segments:
        """The schedule as runs of one rate: transfer (of the plan), first slot, end, units a slot."""
        return Segments.of(self.runs, self.rate)

    def late_frame(self) -> pd.DataFrame:
        """Transfers that arrive after their latest arrival time, by how much, and why.

        ``because_of``: ``its own rate`` (the window is too short even at full rate), ``grid`` (rounding to slots and
        units leaves too few slots), or ``ports`` (others need them).
        """
        import pandas as pd

        grid = self.grid
        latest, arrival = grid.latest.latest_s[grid.transfer], grid.seconds(self.finish)
        late = np.flatnonzero(self.finish > grid.due)
        own = np.where(grid.too_short[late], "its own rate", "grid")
        return pd.DataFrame(
            {
                "transfer": [grid.name(k) for k in late.tolist()],
                "latest_s": latest[late],
                "arrival_s": arrival[late],
                "late_s": np.maximum(arrival[late] - latest[late], 0.0),
                "late_slots": self.finish[late] - grid.due[late],
                "because_of": np.where(self.finish[late] <= grid.stop[late], own, "ports"),
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
                "start_s": grid.seconds(self.runs.slot[used]),
                "units": self.rate[used],
                "mbps": self.rate[used] * instance.unit_mb * 8 / instance.slot_s,
            }
        )

    @cached_property
    def _background(self) -> tuple[dict[str, Any], NDArray[np.int64]]:
        """Copies, then unplanned transfers, first come first served; what each sends in which slot."""
        grid, instance = self.grid, self.grid.instance
        arrays, copies = instance.arrays, instance.copies
        place = {m.name: k for k, m in enumerate(instance.machines)}
        size = np.concatenate([[c.size_mb for c in copies], arrays.size_mb[grid.rest]])
        start = np.concatenate([[c.arrival_s for c in copies], arrays.start_s[grid.rest]])
        sender = np.concatenate([[place[c.sender] for c in copies], arrays.sender[grid.rest]]).astype(np.int64)
        receiver = np.concatenate([[place[c.receiver] for c in copies], arrays.receiver[grid.rest]]).astype(np.int64)
        units = np.ceil(size / instance.unit_mb - 1e-9).astype(np.int64)
        begin = np.maximum(np.ceil(start / instance.slot_s - 1e-9).astype(np.int64) - grid.origin, 0)
        limits = (grid.out_units, grid.in_units)
        room = [
            np.floor(most[:, None] - load + 1e-6).astype(np.int64)
            for most, load in zip(limits, self.port_load, strict=True)
        ]
        end, sent = fill(room[0], room[1], *limits, sender, receiver, units, begin)
        alone = np.ceil(units / np.minimum(grid.out_units[sender], grid.in_units[receiver]))
        table = {
            "name": [c.name for c in copies] + [instance.transfer_names[int(k)] for k in grid.rest],
            "copy": [k < len(copies) for k in range(len(units))],
            "size_mb": size,
            "start_s": start,
            "finish_s": grid.seconds(end),
            "slowdown": (end - begin) / np.maximum(alone, 1),
        }
        return table, sent

    def background_frame(self) -> pd.DataFrame:
        """Copies and unplanned transfers, first come first served on the bandwidth that is left."""
        import pandas as pd

        self.require_answer()
        return pd.DataFrame(self._background[0])

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
        """``schedule``: runs (first slot, end, units in each slot) of every planned transfer."""
        runs = self.segments
        schedule: dict[str, list[list[int | float]]] = {self.grid.name(k): [] for k in range(self.grid.count)}
        names = list(schedule)
        rows = (runs.item.tolist(), runs.begin.tolist(), runs.end.tolist(), runs.rate.tolist())
        for k, begin, end, units in zip(*rows, strict=True):
            schedule[names[k]].append([begin, end, units])
        return {
            "slot_s": self.grid.instance.slot_s,
            "unit_mb": self.grid.instance.unit_mb,
            "origin_slot": self.grid.origin,
            "lateness_unit_slots": self.lateness,
            "schedule": schedule,
        }

    def _proof(self) -> dict[str, Any]:
        """Prices of every stage, by the names of machines and transfers."""
        proven = self.status is Status.OPTIMAL or 1 < self.lowest <= max(self.sorted_loads, default=0)
        instance = self.grid.instance
        machines = [machine.name for machine in instance.machines]
        parts = [part_document(part, instance.transfer_names, machines, self.load) for part in self.plan_parts]
        return {
            "lowest": self.lowest,
            "largest_only": self.route[:1] == ("printed",),
            "parts": parts if proven and self.status.has_answer else [],
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


def stages_of(grid: Grid, plan: Plan, load: Load) -> dict[str, float | int]:
    """Total lateness, and the number of loads of at least s, from the highest level down."""
    loads = sorted_loads(grid, plan.runs, plan.rate, load)
    late = np.maximum(plan.runs.slot + 1 - grid.due[plan.runs.row], 0)
    stages = {"lateness": _number((late * plan.rate).sum())}
    for s in range(int(np.ceil(loads.max(initial=0) - 1e-6)), 0, -1):
        stages[f"level_{s}"] = _number(np.clip(loads - (s - 1), 0, 1).sum())
    return stages


def _duals(grid: Grid, plan: Plan) -> dict[str, Dual]:
    """Ports by ``machine,slot`` and sizes by transfer, where not zero: the price in the first goal that it matters for.

    Goals in order: lateness, then levels from the highest down; level 1 has no price, the sum of all loads settles it.
    """
    names = [machine.name for machine in grid.instance.machines]
    found: dict[tuple[int, int], float] = {}
    size: dict[int, float] = {}
    for part in plan.parts:
        for proof in sorted(part.proofs, key=lambda p: (p.level == LATENESS, p.level)):
            p = proof.port
            for port, begin, end, price in zip(
                p.unit.tolist(), p.begin.tolist(), p.end.tolist(), p.price.tolist(), strict=True
            ):
                found |= dict.fromkeys(((port, slot) for slot in range(begin, end)), -price / proof.scale)
            priced = np.flatnonzero(proof.lam)
            size |= dict(zip(part.transfers[priced].tolist(), (proof.lam[priced] / proof.scale).tolist(), strict=True))
    duals = {}
    for side, name in enumerate(("egress", "ingress")):
        mine = sorted(key for key in found if key[0] // len(names) == side)
        labels = [f"{names[port % len(names)]},{slot}" for port, slot in mine]
        duals[name] = Dual(np.array([found[key] for key in mine]), labels)
    chosen = sorted(size)
    duals["size"] = Dual(np.array([size[k] for k in chosen]), [grid.instance.transfer_names[k] for k in chosen])
    return duals


def _number(value: Any) -> int | float:
    return int(value) if float(value).is_integer() else float(value)
