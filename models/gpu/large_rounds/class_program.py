"""Large changed rounds: two small programs with the optimum of the statement, and multipliers that prove it.

Tasks and GPUs that every rule treats equally are aggregated (`rules`). Fair shares and the number of running tasks do
not depend on data: a program over classes of tasks (job, memory, codes) and of GPUs (memory, codes) computes them,
stage by stage. Transfer uses the compact network: a task enters a node with its data, a rack with its data, or the
cluster. Cluster and rack vertices exist once per class of tasks, so that the arcs from there to GPUs of one code carry
the coefficients of rules. Multipliers of GPUs, shares and rules prove each stage for the statement: the Lagrangian
bound assigns each task to the GPU with the best reduced cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram, Relation
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.models.gpu.large_rounds.user_written_rules import Rules
from flowlex.models.gpu.round_eligibility import Round
from flowlex.models.gpu.statement import order_pairs
from flowlex.models.gpu.transfer_costs import TransferCosts


class Landing(NamedTuple):
    """Columns that assign tasks to GPUs, each with a representative task and GPU."""

    columns: Integers
    task: Integers
    gpu: Integers


class Program(LinearProgram):
    """Integer columns and rows over them by number."""

    def columns(self, upper: Any) -> Integers:
        """New columns from 0 to ``upper``."""
        return self.variables(str(len(self.variable_blocks)), len(upper), upper=upper, integer=True).column

    def require(self, name: str, count: int, relation: Relation, side: Any, *entries: tuple[Any, Any, Any]) -> None:
        """Add a block of rows; ``entries`` are row, column and value."""
        parts = zip(*(np.broadcast_arrays(*each) for each in entries), strict=True)
        row, column, value = (np.concatenate(each) for each in parts)
        self.constrain(name, Expression(row, column, value.astype(np.float64), np.zeros(count)), relation, side)


class Refined:
    """A round with rules as two programs (see the module)."""

    def __init__(self, plan: Round, costs: TransferCosts, rules: Rules) -> None:
        self.plan, self.costs, self.rules, self.view = plan, costs, rules, plan.view
        view, codes = plan.view, rules.codes
        self.start = np.flatnonzero(rules.may_start)
        self.held = np.flatnonzero(view.task_running_gpu >= 0)
        memory = np.unique(view.gpu_memory)
        self.need = np.searchsorted(memory, view.task_memory)
        self.gpu_kind = np.searchsorted(memory, view.gpu_memory) * len(codes.lower[0]) + codes.gpu
        self.task_kind = self.need * len(codes.lower) + codes.task
        self.order = np.array([*order_pairs(view)], np.int64).reshape(-1, 2).T
        names = view.task_names
        self.orders = [f"{names[a]},{names[b]}" for a, b in zip(*(each.tolist() for each in self.order), strict=True)]
        most = np.minimum(np.bincount(view.task_job, minlength=len(view.job_names)), len(view.gpu_names))
        self.step_job = np.repeat(np.arange(len(most)), most)
        self.step = np.arange(len(self.step_job)) - np.repeat(np.cumsum(most) - most, most) + 1

    def fits(self, task: Integers, gpu: Integers) -> Any:
        """Return which pairs may run: the memory suffices and no bound forbids it."""
        codes = self.rules.codes
        enough = self.view.task_memory[task] <= self.view.gpu_memory[gpu]
        return enough & (codes.upper[codes.task[task], codes.gpu[gpu]] > 0)

    def fair(self) -> tuple[Program, dict[str, Floats]]:
        """Classes of tasks and of GPUs, and the costs of the stages up to the number of running tasks, by name."""
        p, view = Program("classes"), self.view
        _, first, _, size = classes(view.task_job[self.start], self.task_kind[self.start])
        _, one, self.gpu_class, capacity = classes(self.gpu_kind)
        c, g = (each.ravel() for each in np.meshgrid(np.arange(len(first)), np.arange(len(one)), indexing="ij"))
        ok = self.fits(self.start[first][c], one[g])
        c, g = c[ok], g[ok]
        z = p.columns(size[c])
        p.require("task", len(size), "<=", size, (c, z, 1))
        landing = Landing(z, self.start[first][c], one[g])
        held, steps = self.common(p, [landing], landing, [landing], (self.gpu_class, capacity))
        last = int(self.step.max()) if len(steps) else 0
        stages = {f"share_{k}": cost_of(p, (steps[self.step == k], -1)) for k in range(1, last + 1)}
        return p, stages | {"running": cost_of(p, (z, -1), (held, -1))}

    def common(
        self,
        p: Program,
        ruled: Sequence[Landing],
        starts: Landing,
        into: Sequence[Landing],
        places: tuple[Integers, Integers],
    ) -> tuple[Integers, Integers]:
        """Add what both programs share: columns of running tasks and of share steps (returned), and their rows.

        ``ruled`` columns have coefficients in rules, ``starts`` in the rows of jobs, ``into`` in those of ``places``:
        the place of each GPU, and the capacity of each place.
        """
        view, plan, held, jobs = self.view, self.plan, self.held, len(self.view.job_names)
        own, (place, capacity) = view.task_running_gpu[held], places
        codes = self.rules.codes
        run = p.columns(codes.upper[codes.task[held], codes.gpu[own]])
        mine = Landing(run, held, own)
        used = ((place[each.gpu], each.columns, 1) for each in (*into, mine))
        p.require("gpu_out", len(capacity), "<=", capacity, *used)
        steps = p.columns(np.ones(len(self.step) if plan.policy.fair else 0))
        if len(steps):
            counted = ((view.task_job[each.task], each.columns, 1) for each in (starts, mine))
            p.require("share", jobs, "==", 0, *counted, (self.step_job, steps, -1))
        if not plan.policy.preemptive:
            p.require("stay", len(held), "==", 1, (np.arange(len(held)), run, 1))
        else:
            count = np.bincount(view.task_job[held], minlength=jobs)
            p.require("keep", jobs, ">=", count - plan.stoppable, (view.task_job[held], run, 1))
            longer, shorter = (np.searchsorted(held, each) for each in self.order)
            n = np.arange(len(longer))
            p.require("order", len(n), ">=", 0, (n, run[longer], 1), (n, run[shorter], -1))
        self._own_rows(p, [*ruled, mine])
        return run, steps

    def _own_rows(self, p: Program, landings: Sequence[Landing]) -> None:
        for rule in self.rules.rules:
            entries = []
            for (columns, task, gpu), term in ((each, term) for each in landings for term in rule.terms):
                a, b = term.task[task], term.gpu[gpu]
                some = (a >= 0) & (b >= 0)
                entries.append((rule.row[a[some], b[some]], columns[some], float(term.coefficient)))
            p.require(f"own {rule.name}", len(rule.rhs), rule.relation, rule.rhs, *entries)
        codes = self.rules.codes
        forced = np.argwhere(codes.lower > 0)
        for number, (one, other) in enumerate(forced.tolist()):
            mine = [(codes.task[t] == one) & (codes.gpu[g] == other) for _, t, g in landings]
            chosen = [each.columns[m] for m, each in zip(mine, landings, strict=True)]
            entries = [(np.zeros_like(columns), columns, 1) for columns in chosen]
            p.require(f"forced {number}", 1, ">=", self._pairs(one, other), *entries)

    def _pairs(self, a: int, b: int) -> int:
        """Count the variables with this task code and this GPU code."""
        codes, view = self.rules.codes, self.view
        task, gpu = self.start[codes.task[self.start] == a], np.flatnonzero(codes.gpu == b)
        waiting = np.searchsorted(np.sort(view.gpu_memory[gpu]), view.task_memory[task])
        mine = (codes.task[self.held] == a) & (codes.gpu[view.task_running_gpu[self.held]] == b)
        return int((len(gpu) - waiting).sum() + mine.sum())


def cost_of(p: Program, *parts: tuple[Integers, Any]) -> Floats:
    cost = np.zeros(p.column_count)
    for columns, value in parts:
        cost[columns] += value
    return cost


def classes(*keys: Integers) -> tuple[Integers, Integers, Integers, Integers]:
    """Classify by equal keys: code and first member of each class, class of each member, size of each class."""
    key = np.zeros(len(keys[0]), np.int64)
    for each in keys:
        _, key = np.unique(key * (int(each.max(initial=0)) + 1) + each, return_inverse=True)
    found, first, member, size = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    return found, first, member.astype(np.int64), size
