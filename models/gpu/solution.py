"""The decisions of a round of GPU assignment, with reasons and dual values."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flowlex.formulations.program_arrays import Integers, locked
from flowlex.instances.model_changes import Constraint, Term
from flowlex.models.gpu.placement_metrics import Placement
from flowlex.models.gpu.round_eligibility import Round
from flowlex.models.model_base import Solution

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from flowlex.models.gpu.methods.round_proof import Prover


@dataclass(frozen=True, kw_only=True)
class GpuSolution(Solution):
    """Placements of one round.

    Attributes
    ----------
    placement
        Assignment of tasks to GPUs, with metrics.
    round
        The data of the round: kept tasks, shares.
    prover
        Makes the proof when it is asked for; simulations solve thousands of rounds and ask for none.
    """

    row_name: ClassVar[str] = "task"
    decision: ClassVar[tuple[str, ...]] = ("x",)

    placement: Placement = field(repr=False)
    round: Round = field(repr=False)
    prover: Prover | None = field(default=None, repr=False)

    @property
    def gpu(self) -> Integers:
        """(T,) GPU of each task, -1 if it does not run."""
        return locked(self.placement.gpu)

    @property
    def preempted(self) -> tuple[str, ...]:
        """Names of the running tasks that stop."""
        return self._names(self.placement.preempted)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Names of the tasks that still wait."""
        return self._names(self.placement.waiting)

    def _columns(self) -> dict[str, Any]:
        """One row per task: job, state, GPU, node, rack, transfer seconds, MB by level, reason."""
        return {**self.placement.task_columns(), "reason": self.reasons()}

    def job_frame(self) -> pd.DataFrame:
        """One row per job: fair share (fractional), tasks by state, transfer seconds."""
        import pandas as pd

        self.require_answer()
        frame = pd.DataFrame(self.placement.by_job(), index=pd.Index(self.placement.view.job_names, name="job"))
        frame.insert(1, "fair_share", np.array(self._fair_shares(), dtype=np.float64))
        return frame

    def _fair_shares(self) -> list[float | None]:
        shares = self.round.fair_share
        return [None] * len(self.placement.view.job_names) if shares is None else [float(x) for x in shares.level]

    def reasons(self) -> list[str]:
        """Return the reason why each task does not run; empty for running tasks."""
        view, shares, running = self.placement.view, self.round.fair_share, self.placement.running_by_job.tolist()
        fed = [shares is not None and n >= shares.level[j] for j, n in enumerate(running)]
        job_of, needs, names = view.task_job.tolist(), view.task_memory.tolist(), view.job_names
        idle = np.setdiff1d(self.round.free_gpu, self.gpu[self.gpu >= 0])
        largest_idle = float(view.gpu_memory[idle].max()) if len(idle) else 0.0
        reasons, above, tight = [""] * len(self.gpu), set(self.round.idle.tolist()), self._tight_rules()
        for task in self.placement.preempted.tolist():
            reasons[task] = self._stop_reason(task)
        published, changed = self.options.get("network") == "published", bool(self.changes)
        for task in self.placement.waiting.tolist():
            job, need = job_of[task], needs[task]
            if changed and task not in above:
                reasons[task] = f"no better schedule runs it under the changes of the model{tight.get(task, '')}"
            elif task in above:
                reasons[task] = f"job {names[job]} ran more than its fair share, so it starts nothing"
            elif fed[job] and not published:
                reasons[task] = f"job {names[job]} runs {running[job]}, its fair share"
            elif not len(idle):
                reasons[task] = "all GPUs are taken"
            elif self.round.priced and need <= largest_idle:
                price = float(self.placement.costs.waiting_s) * (2 if published else 1)
                reasons[task] = f"to wait costs {price:.6g} s, less than to run it"
            else:
                reasons[task] = f"needs {need:g} GB; the largest idle GPU has {largest_idle:g} GB"
        return reasons

    def _tight_rules(self) -> dict[int, str]:
        """Return, by waiting task, a text that names the tight user-written rules over this task."""
        slack = {} if self.stated is None else self.stated.slack
        rules = [each for each in self.changes if isinstance(each, Constraint) and each.name in slack]
        view, found = self.placement.view, dict[int, list[str]]()
        labels = {"task": view.task_names, "job": view.job_names}
        for rule in rules:
            tight = [x for x, gap in zip(slack[rule.name].labels, slack[rule.name], strict=True) if abs(gap) < 1e-6]
            for task in self.placement.waiting.tolist() if tight else ():
                mine = {"task": labels["task"][task], "job": labels["job"][view.task_job[task]]}
                if any(_counts(term, mine, tight) for term in rule.terms):
                    found.setdefault(task, []).append(rule.name)
        return {task: f"; at its limit: {', '.join(names)}" for task, names in found.items()}

    def _stop_reason(self, task: int) -> str:
        """Explain a preemption: the exceeded share, the choice of the task, and the cost of lost work."""
        view, shares = self.placement.view, self.round.fair_share
        assert shares is not None, "only fair policies stop tasks"
        job = int(view.task_job[task])
        ran = int(np.count_nonzero((view.task_running_gpu >= 0) & (view.task_job == job)))
        keeps, price = int(self.placement.running_by_job[job]), float(self.placement.costs.stop_s[task])
        share = float(shares.level[job])
        return (
            f"job {view.job_names[job]} ran {ran}, above its fair share of {share:g}, and keeps {keeps}; "
            f"this task ran shortest: {view.task_elapsed[task]:g} s of work lost, weighed as {price:g} s of transfer"
        )

    def _metrics(self) -> dict[str, float | int | str]:
        return dict(self.placement.metrics())

    def _answer(self) -> dict[str, Any]:
        """Placements, preempted and waiting tasks with reasons, jobs."""
        view, reasons = self.placement.view, self.reasons()
        placed = zip(view.task_names, self.gpu.tolist(), strict=True)
        answer: dict[str, Any] = {"placements": {task: view.gpu_names[gpu] for task, gpu in placed if gpu >= 0}}
        for state in ("preempted", "waiting"):
            answer[state] = {view.task_names[t]: reasons[t] for t in getattr(self.placement, state).tolist()}
        columns = {name: values.tolist() for name, values in self.placement.by_job().items()}
        columns = {"job": list(view.job_names), "tasks": columns["tasks"], "fair_share": self._fair_shares(), **columns}
        answer["jobs"] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        answer["cost_unit_s"] = str(self.placement.costs.unit_s)
        return answer

    def _proof(self) -> dict[str, Any]:
        """Return the multipliers of all objectives; see `flowlex.models.gpu.methods.round_proof`."""
        return {} if self.prover is None else self.prover.proof

    def _draw(self, ax: Axes | None) -> Axes:
        """Plot the placements: one cell per GPU, coloured by the farthest level its task reads from."""
        from flowlex.models.gpu.plots import plot_placements

        return plot_placements(self.placement, self.instance, ax)

    def _names(self, tasks: Integers) -> tuple[str, ...]:
        return tuple(self.placement.view.task_names[task] for task in tasks.tolist())


def _counts(term: Term, task: dict[str, str], tight: list[str]) -> bool:
    """Return whether a term includes a task with these labels in one of the rows."""
    if term.variable != "x":
        return False
    for level, label in task.items():
        wanted = term.where.get(level, label)
        if label not in (wanted if isinstance(wanted, tuple) else (wanted,)):
            return False
    named = [label for level, label in task.items() if level in term.by]
    return not named or any(all(label in parts for label in named) for parts in csv.reader(tight))
