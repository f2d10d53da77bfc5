"""A just-in-time schedule: rates, loads, remaining bandwidth, and plots."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers, locked
from flowlex.formulations.solver_outcome import Status
from flowlex.models.jit.baselines import fill, greedy_schedule
from flowlex.models.jit.interval_schedules import Blocks, load_counts, port_pieces
from flowlex.models.jit.methods.plan_search import Plan
from flowlex.models.jit.methods.presolve import Overload
from flowlex.models.jit.multipliers import PartDocument, SchedulePart, duals_of
from flowlex.models.jit.statement import window_ends
from flowlex.models.jit.transfer_slot_grid import Grid, Load
from flowlex.models.model_base import Solution

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class JitSolution(Solution):
    """Rates of all planned transfers.

    Attributes
    ----------
    grid
        The planned transfers, in slots and units.
    blocks
        The schedule: `flowlex.models.jit.interval_schedules`.
    load
        The model's option ``load``.
    route
        Solution methods used: ``structure`` (no solver), ``staged lp``, ``staged mip``, ...
    largest_bound
        Lower bound on the largest load from the windows alone.
    lowest
        The lowest level that is proven; 1 if all are.
    least
        Proof of the bound on the largest load if the levels are not proven.
    overload
        Of strict windows: transfers that a port cannot send in theirs.
    """

    grid: Grid = field(repr=False)
    blocks: Blocks = field(repr=False)
    load: Load
    program: str
    route: tuple[str, ...] = ()
    largest_bound: int = 0
    lp_solves: int = 0
    mip_solves: int = 0
    plan_parts: tuple[SchedulePart, ...] = field(default=(), repr=False)
    lowest: int = 1
    least: SchedulePart | None = field(default=None, repr=False)
    overload: Overload | None = field(default=None, repr=False)

    @classmethod
    def of(cls, facts: dict[str, Any], grid: Grid, plan: Plan, load: Load, program: str) -> JitSolution:
        """Make the solution of a plan, with the common facts of solutions."""
        largest = _number(max(load_counts(grid, plan.blocks, load)[0], default=0))
        answer = plan.status.has_answer
        proven = bool(plan.parts) and plan.status is Status.OPTIMAL
        reached = proven or (bool(plan.parts) and 1 < plan.lowest <= largest)
        shown = 0 if plan.least is None else plan.largest_bound
        unproven = max(shown, int(plan.blocks.whole and largest > 0)) if answer else None
        bound: float | int | None = largest if reached else unproven
        return cls(
            **facts
            | {
                "objective": largest if answer else None,
                "bound": bound,
                "gap": None if bound is None else abs(largest - bound) / max(1.0, abs(largest)),
            },
            duals=duals_of(grid, plan.parts) if proven else {},
            grid=grid,
            blocks=plan.blocks,
            load=load,
            program=program,
            route=plan.route,
            largest_bound=plan.largest_bound,
            lp_solves=plan.lp_solves,
            mip_solves=plan.mip_solves,
            plan_parts=plan.parts,
            lowest=plan.lowest,
            least=plan.least,
            overload=plan.overload,
            stages=stages_of(grid, plan, load) if answer else {},
        )

    @cached_property
    def load_counts(self) -> tuple[NDArray[Any], Integers]:
        """Positive loads in descending order, and the number of loads and slots with each."""
        return load_counts(self.grid, self.blocks, self.load)

    @property
    def sorted_loads(self) -> NDArray[Any]:
        """The sorted vector of positive loads, which is lexicographically least."""
        return np.repeat(*self.load_counts)

    @property
    def largest(self) -> int | float:
        """The largest load, units in a slot."""
        return _number(max(self.load_counts[0], default=0))

    @cached_property
    def levels(self) -> dict[int, int]:
        """Number of loads of at least s, by level s (integer rates)."""
        value, width = self.load_counts
        top = int(np.ceil(self.largest - 1e-6))
        return {s: int(width[value >= s - 1e-6].sum()) for s in range(top, 0, -1)}

    @cached_property
    def segments(self) -> Blocks:
        """The schedule by slot as runs of constant rate: transfer (of the plan), first slot, end, units per slot."""
        return self.blocks.cut(self.grid)

    @property
    def _until(self) -> int:
        """End of the last window or block."""
        return max(self.grid.horizon, int(self.blocks.end.max(initial=0)))

    @property
    def remaining(self) -> NDArray[np.float64]:
        """(M, 2) the paper's H for egress, and the same for ingress: unused share of a machine's ports over all slots.

        Counted until the last transfer of a job, planned or background, has arrived; file copies do not count.
        """
        grid, arrays, rest = self.grid, self.grid.instance.arrays, self._background[1]
        until = max(self._until, int(rest.end.max(initial=0)), 1)
        items = np.concatenate([grid.transfer[self.blocks.item], rest.item])
        amount = np.concatenate([self.blocks.amount, rest.amount])
        sides = ((arrays.sender, grid.out_units), (arrays.receiver, grid.in_units))
        sent = [np.bincount(port[items], amount, len(most)) / (most * until) for port, most in sides]
        return np.asarray(1 - np.stack(sent, axis=1))

    @cached_property
    def finish(self) -> Integers:
        """(F,) slot after the last one in which a transfer is sent."""
        end = np.zeros(self.grid.count, np.int64)
        np.maximum.at(end, self.segments.item, self.segments.end)
        return locked(end)

    @cached_property
    def lateness(self) -> float | int:
        """Sum over late units of the slots by which they are late."""
        return _number(self.blocks.lateness(self.grid.due))

    def late_frame(self) -> pd.DataFrame:
        """Return the transfers that arrive after their latest arrival time, with amount and reason.

        ``because_of``: ``its own rate`` (the window is too short even at full rate), ``grid`` (rounding to slots and
        units leaves too few slots), or ``ports`` (other transfers use them).
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

    def _columns(self) -> dict[str, Any]:
        """One row per transfer and slot with a rate: units and Mbit/s."""
        grid, instance = self.grid, self.grid.instance
        runs = self.segments
        length = runs.end - runs.begin
        row = np.repeat(runs.item, length)
        slot = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length - runs.begin, length)
        units = np.repeat(runs.rate, length)
        names = np.array([grid.name(k) for k in range(grid.count)], dtype=object)
        machines = np.array([m.name for m in instance.machines], dtype=object)
        return {
            "transfer": names[row],
            "sender": machines[grid.sender[row]],
            "receiver": machines[grid.receiver[row]],
            "slot": slot,
            "start_s": grid.seconds(slot),
            "units": units,
            "mbps": units * instance.unit_mb * 8 / instance.slot_s,
        }

    @cached_property
    def _background(self) -> tuple[dict[str, Any], Blocks]:
        """Table of copies and unplanned transfers, first come first served, and the blocks of the latter."""
        grid, instance = self.grid, self.grid.instance
        arrays, copies = instance.arrays, instance.copies
        place = {m.name: k for k, m in enumerate(instance.machines)}
        size = np.concatenate([[c.size_mb for c in copies], arrays.size_mb[grid.rest]])
        start = np.concatenate([[c.arrival_s for c in copies], grid.latest.start_s[grid.rest]])
        sender = np.concatenate([[place[c.sender] for c in copies], arrays.sender[grid.rest]]).astype(np.int64)
        receiver = np.concatenate([[place[c.receiver] for c in copies], arrays.receiver[grid.rest]]).astype(np.int64)
        units = np.ceil(size / instance.unit_mb - 1e-9).astype(np.int64)
        begin = np.maximum(np.ceil(start / instance.slot_s - 1e-9).astype(np.int64) - grid.origin, 0)
        port, first, last, load = port_pieces(grid, self.segments) if len(units) else (units,) * 4
        taken = (port, first, last, np.ceil(load - 1e-6).astype(np.int64))
        end, sent = fill(grid.out_units, grid.in_units, sender, receiver, units, begin, taken)
        alone = np.ceil(units / np.minimum(grid.out_units[sender], grid.in_units[receiver]))
        table = {
            "name": [c.name for c in copies] + [instance.transfer_names[int(k)] for k in grid.rest],
            "copy": [k < len(copies) for k in range(len(units))],
            "size_mb": size,
            "start_s": start,
            "finish_s": grid.seconds(end),
            "slowdown": (end - begin) / np.maximum(alone, 1),
        }
        jobs = sent.item >= len(copies)
        rest = Blocks(grid.rest[sent.item[jobs] - len(copies)], sent.begin[jobs], sent.end[jobs], sent.amount[jobs])
        return table, rest

    def background_frame(self) -> pd.DataFrame:
        """Return copies and unplanned transfers, first come first served on the remaining bandwidth."""
        import pandas as pd

        self.require_answer()
        return pd.DataFrame(self._background[0])

    def greedy_loads(self) -> NDArray[np.int64]:
        """Sorted loads of the schedule that sends as early and as fast as possible, for comparison."""
        return np.repeat(*load_counts(self.grid, greedy_schedule(self.grid)[0], self.load))

    def _metrics(self) -> dict[str, float | int | str]:
        """Levels, lateness, remaining bandwidth, and solution methods."""
        left = self.remaining
        levels = ", ".join(f"{count} at {s}" for s, count in list(self.levels.items())[:4])
        return {
            "largest_load": self.largest,
            "loads_by_level": levels or "none",
            "route": ", ".join(self.route),
            "linear_programs": self.lp_solves,
            "integer_programs": self.mip_solves,
            "planned_transfers": self.grid.count,
            "background_transfers": len(self.grid.rest),
            "lateness_unit_slots": self.lateness,
            "windows_widened_by_grid": self.grid.widened,
            "planned_over_real_bytes": self.grid.inflation,
            "least_remaining_egress": float(left[:, 0].min()),
            "median_remaining_egress": float(np.median(left[:, 0])),
        }

    def _answer(self) -> dict[str, Any]:
        """``schedule``: runs (first slot, end, units in each slot) of every planned transfer."""
        runs = self.segments
        schedule: dict[str, list[list[int | float]]] = {self.grid.name(k): [] for k in range(self.grid.count)}
        names = list(schedule)
        rows = (runs.item.tolist(), runs.begin.tolist(), runs.end.tolist(), runs.rate.tolist())
        for k, begin, end, rate in zip(*rows, strict=True):
            schedule[names[k]].append([begin, end, rate])
        return {
            "slot_s": self.grid.instance.slot_s,
            "unit_mb": self.grid.instance.unit_mb,
            "origin_slot": self.grid.origin,
            "lateness_unit_slots": self.lateness,
            "schedule": schedule,
        }

    def _proof(self) -> dict[str, Any]:
        """Multipliers of rows for every part, by names of machines and transfers."""
        if self.overload is not None:
            return {"parts": [self.overload.document(self.grid)]}
        proven = self.status is Status.OPTIMAL or 1 < self.lowest <= self.largest
        parts = self.plan_parts if proven else () if self.least is None else (self.least,)
        if not parts or not self.status.has_answer:
            return {}  # of fractional rates, the optimum is the solver's claim
        elastic = (self.options["windows"] or ("elastic" if self.program == "P2" else "strict")) == "elastic"
        ends, found = window_ends(self.grid, elastic=elastic), []
        for part in parts:
            own = self.blocks.only(np.searchsorted(self.grid.transfer, part.transfers))
            loads = np.unique(np.ceil(load_counts(self.grid, own, self.load)[0] - 1e-6)).astype(np.int64)
            found.append(PartDocument(part, self.grid, self.load, ends, loads.tolist()).made())
        return {"parts": found}

    def _draw(self, ax: Axes | None) -> Axes:
        """Gantt chart of the transfers with their latest arrival times."""
        from flowlex.models.jit.plots import plot_gantt

        return plot_gantt(self, ax)


def stages_of(grid: Grid, plan: Plan, load: Load) -> dict[str, float | int]:
    """Values of the stages: total lateness, and the number of loads of at least s, from the highest level down."""
    value, width = load_counts(grid, plan.blocks, load)
    stages = {"lateness": _number(plan.blocks.lateness(grid.due))}
    top = int(np.ceil(value.max(initial=0) - 1e-6))
    if plan.blocks.whole:
        met = np.zeros(top + 1, np.int64)
        np.add.at(met, value, width)
        counts = np.cumsum(met[::-1])[:-1].tolist()
        return stages | {f"level_{top - k}": count for k, count in enumerate(counts)}
    for s in range(top, 0, -1):
        stages[f"level_{s}"] = _number((np.clip(value - (s - 1), 0, 1) * width).sum())
    return stages


def _number(value: Any) -> int | float:
    return int(value) if float(value).is_integer() else float(value)
