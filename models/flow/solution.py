"""Schedules: the machine of each running task, the reason of each waiting task, and the objective values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flowlex.formulations.plot_style import GREY, MOST_BARS, axes_for, colours, count_ticks, legend, name_places
from flowlex.models.model_base import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from flowlex.instances.flow import FlowJob
    from flowlex.models.flow.arc_costs import Rules

#: Number of jobs with their own colour in a drawing.
_COLOURED = 7


@dataclass(frozen=True, order=True)
class Score:
    """Objective values, minimised in strict order."""

    shortfall: int  # number of tasks that wait although their job is below its share
    # waiting tasks by class, the most important first (one class if priority is not strict)
    waiting: tuple[tuple[int, int], ...]
    # cost of each goal if the goals are in strict order; empty if their sum is minimised
    by_goal: tuple[tuple[str, int], ...]
    cost: int  # all other costs, in scaled integer units


def score_of(jobs: Iterable[FlowJob], rules: Rules, waiting: Iterable[float], values: Mapping[str, int]) -> Score:
    """The score of a schedule.

    ``waiting``: (J,) waiting tasks by job. ``values``: shortfall (0 when left out) and cost of every rank by name.
    """
    strict = rules.priority is not None and rules.priority.mode == "strict"
    classes: dict[int, float] = defaultdict(float)
    for job, count in zip(jobs, waiting, strict=True):
        classes[job.priority if strict else 0] += count
    names = rules.rank_names
    by_goal = () if rules.order is None else tuple((name, values[name]) for name in names)
    counts = tuple(sorted((priority, round(count)) for priority, count in classes.items()))
    return Score(values.get("shortfall", 0), counts, by_goal, sum(values[name] for name in names))


@dataclass(frozen=True, kw_only=True)
class FlowSolution(Solution):
    """A schedule.

    Attributes
    ----------
    machine_of
        Machine by running task.
    waiting
        Reason by waiting task.
    score
        Objective values.
    shares
        (least, most) running tasks by job, if a goal bounds shares.
    placed, moved, stopped
        Changes compared with the tasks that ran before.
    method
        ``weights`` or ``phases``, and why.
    scale
        Costs are in units of ``1/scale``.
    weights
        Weight of each stage in the objective; None if the objective is the value of the last stage.
    proof
        Multipliers that prove the schedule, see `flowlex.validation.proofs`.
    bounds
        With capacities: proven lower bound of each stage over all schedules with equal values of earlier stages.
    """

    decision: ClassVar[tuple[str, ...]] = ("x",)

    machine_of: Mapping[str, str] = field(default_factory=dict, repr=False)
    waiting: Mapping[str, str] = field(default_factory=dict, repr=False)
    score: Score | None = None
    shares: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    placed: tuple[str, ...] = field(default=(), repr=False)
    moved: tuple[str, ...] = field(default=(), repr=False)
    stopped: tuple[str, ...] = field(default=(), repr=False)
    slots: Mapping[str, int] = field(default_factory=dict, repr=False)
    job_of: Mapping[str, str] = field(default_factory=dict, repr=False)
    method: str = "weights"
    scale: int = 1
    weights: Mapping[str, int] | None = None
    proof: Mapping[str, Any] = field(default_factory=dict, repr=False)
    bounds: Mapping[str, int] = field(default_factory=dict, repr=False)

    def _columns(self) -> dict[str, Any]:
        """One row per task: its job, machine (missing if it waits), and why it waits."""
        return {
            "task": list(self.job_of),
            "job": list(self.job_of.values()),
            "machine": [self.machine_of.get(task) for task in self.job_of],
            "waits because": [self.waiting.get(task, "") for task in self.job_of],
        }

    def _metrics(self) -> dict[str, float | int | str]:
        """Running and waiting tasks, utilisation, changes, and objective values."""
        assert self.score is not None
        total = sum(self.slots.values())
        return {
            "running": len(self.machine_of),
            "waiting": len(self.waiting),
            "utilisation": len(self.machine_of) / total if total else 0.0,
            "placed": len(self.placed),
            "moved": len(self.moved),
            "stopped": len(self.stopped),
            "share_shortfall": self.score.shortfall,
            "waiting_by_class": "; ".join(f"{name}: {count}" for name, count in self.score.waiting),
            **{f"cost_of_{goal}": cost for goal, cost in self.score.by_goal},
            "cost": self.score.cost,
            **{f"{name}_at_least": bound for name, bound in self.bounds.items()},
        }

    def _answer(self) -> dict[str, Any]:
        """Machine by running task, reason by waiting task, shares, and the units of the objective."""
        return {
            "placements": dict(self.machine_of),
            "waiting": dict(self.waiting),
            "shares": {job: list(share) for job, share in self.shares.items()},
            "scale": self.scale,
            "weights": None if self.weights is None else dict(self.weights),
        }

    def _beside_values(self) -> dict[str, Any]:
        """Weights of the stages in the objective, and the shares of jobs that the rows hold."""
        shares = {job: list(share) for job, share in self.shares.items()}
        weights = {} if self.weights is None else {"weights": dict(self.weights)}
        return weights | ({"shares": shares} if shares else {})

    def _proof(self) -> dict[str, Any]:
        """Leaves of each stage."""
        return dict(self.proof)

    def _draw(self, ax: Axes | None) -> Axes:
        """Tasks per machine, coloured by the largest jobs, and the slots of the machines.

        With more than 120 machines, a bar shows the mean of consecutive machines (in the order of the instance).
        """
        width = np.array(list(self.slots.values()), float)
        bars = min(len(width), MOST_BARS)
        bar_of = np.arange(len(width)) * bars // max(len(width), 1)
        members = np.bincount(bar_of, minlength=bars)
        place = dict(zip(self.slots, bar_of.tolist(), strict=True))
        size = Counter(self.job_of[task] for task in self.machine_of)
        largest = [job for job, _ in size.most_common(_COLOURED if len(size) <= _COLOURED else _COLOURED - 1)]
        row, height = {job: k for k, job in enumerate(largest)}, np.zeros((len(largest) + 1, bars))
        for task, machine in self.machine_of.items():
            height[row.get(self.job_of[task], -1), place[machine]] += 1
        named = [*largest, f"{len(size) - len(largest)} other jobs"]
        axes, bottom = axes_for(ax, 9, 3.5), np.zeros(bars)
        for name, tasks, colour in zip(named, height / members, [*colours(len(largest)), GREY], strict=True):
            if tasks.any():
                axes.bar(np.arange(bars), tasks, 0.9, bottom=bottom, color=colour, label=name)
            bottom += tasks
        most = np.bincount(bar_of, weights=width, minlength=bars) / members
        axes.step(np.arange(bars), most, where="mid", color="black", lw=0.8, label="slots")
        if bars == len(width):
            count_ticks(axes.yaxis)
            name_places(axes.xaxis, list(self.slots))
        else:
            axes.set(xlabel=f"{len(width)} machines in {bars} rows of neighbours", xticks=[])
        title = f"{self.instance}: {len(self.machine_of)} running, {len(self.waiting)} waiting"
        axes.set(ylabel="tasks" if bars == len(width) else "tasks per machine", title=title)
        return legend(axes)
