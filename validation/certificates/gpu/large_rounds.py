"""A changed GPU round of many pairs, for its certificate: groups of tasks and GPUs, and checks of an answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.gpu import GpuInstance
from flowlex.instances.model_changes import Changes
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.gpu.cluster_columns import Cluster, none
from flowlex.validation.certificates.gpu.user_written_rules import GpuRules
from flowlex.validation.restated.gpu import common_unit
from flowlex.validation.restated.gpu_program import GpuRound

Whole = NDArray[Any]
Values = Mapping[str, Mapping[str, Any]]


class Large:
    """A round and its changes, with the data that a bound needs."""

    def __init__(self, instance: GpuInstance, options: Mapping[str, Any], changes: Changes) -> None:
        restated = GpuRound.of(instance, options)
        self.policy, self.costs = restated.options.policy, restated.costs
        self.cluster = cluster = Cluster(instance, {})
        self.least, self.held, self.starts = restated.least.tolist(), restated.held, restated.starts
        self.rules = GpuRules(instance, cluster, self.starts, changes)
        self.most = [min(int(n), len(cluster.gpu)) for n in cluster.counts(cluster.own >= -1)]
        coefficients = [part.coefficient for part in self.rules.costs]
        self.unit = common_unit([self.costs.unit_s, *coefficients])
        self.waiting = self.costs.waiting_s if self.policy.fair else Fraction(0)
        self.constant = self.waiting * len(cluster.names) + sum(self.costs.stop_s)
        last = max(self.most) if self.policy.fair else 0
        self.names = [*(f"share_{k}" for k in range(1, last + 1)), "running", "transfer"]
        self.names += ["stops"] if self.policy.preemptive and self.held.any() else []
        self._group()

    def _group(self) -> None:
        """Group tasks and GPUs that all rules, own costs and bounds treat equally; set the bounds of their pairs."""
        parts = [part for row in self.rules.rows.values() for part in row.parts] + self.rules.costs
        parts += [part for part, _, _ in self.rules.limits]
        tasks, gpus = len(self.cluster.names), len(self.cluster.gpu)
        task = np.array([part.task for part in parts]).reshape(-1, tasks).T
        gpu = np.array([part.gpu for part in parts]).reshape(-1, gpus).T
        _, self.task_one, self.task_code = np.unique(task, axis=0, return_index=True, return_inverse=True)
        _, self.gpu_one, self.gpu_code = np.unique(gpu, axis=0, return_index=True, return_inverse=True)
        self.low = np.zeros((len(self.task_one), len(self.gpu_one)), np.int64)
        self.high = np.ones_like(self.low)
        for part, low, high in self.rules.limits:
            both = (part.task[self.task_one] >= 0)[:, None] & (part.gpu[self.gpu_one] >= 0)[None, :]
            self.low[both] = self.low[both] if low is None else low
            self.high[both] = self.high[both] if high is None else high

    def facts(self, values: Values) -> Iterator[Check]:
        """Check who runs where, every family of rows, and the steps of shares."""
        cluster = self.cluster
        at, wrong = np.full(len(cluster.names), -1), []
        for label, value in values.get("x", {}).items():
            t, g = self._pair(label)
            may = cluster.own[t] == g if self.held[t] else self.starts[t] and cluster.need[t] <= cluster.gpu_memory[g]
            if value != 1 or not may or at[t] >= 0:
                wrong.append(label)
            at[t] = g
        self.at = at
        runs = at >= 0
        yield none("bounds of x", wrong + [name for name in values if name not in ("x", "share_step")])
        task, gpu = np.flatnonzero(runs), at[runs]
        low, high = (each[self.task_code[task], self.gpu_code[gpu]] for each in (self.low, self.high))
        forced = sum(self._size(a, b) for a, b in np.argwhere(self.low > 0).tolist())
        yield Check("fixed choices and bounds", bool((high >= 1).all()) and int((low > 0).sum()) == forced)
        twice = np.bincount(gpu, minlength=len(cluster.gpu)) > 1
        yield none("rows gpu_out", [g for g, k in cluster.gpu.items() if twice[k]])
        kept = cluster.counts(self.held & runs).tolist()
        yield none("rows stops", [j for j, n, m in zip(cluster.job, kept, self.least, strict=True) if n < m])
        yield none("rows order", [cluster.names[t] for t in self._disordered(runs)])
        yield from self._steps(values.get("share_step", {}), cluster.counts(runs).tolist())
        for name, row in self.rules.rows.items():
            done: Whole = np.full(row.groups, Fraction(0), dtype=object)
            for part in row.parts:
                a, b = part.task[task], part.gpu[gpu]
                for pair in zip(a[(a >= 0) & (b >= 0)].tolist(), b[(a >= 0) & (b >= 0)].tolist(), strict=True):
                    done[pair] += part.coefficient
            yield none(f"rows {name}", [x for x, (a, b, side) in row.rhs.items() if not _holds(done[a, b], row, side)])

    def _pair(self, label: str) -> tuple[int, int]:
        cuts = [k for k, letter in enumerate(label) if letter == ","]
        found = [
            (self.cluster.task[label[:k]], self.cluster.gpu[label[k + 1 :]])
            for k in cuts
            if label[:k] in self.cluster.task and label[k + 1 :] in self.cluster.gpu
        ]
        if len(found) != 1:
            raise ValueError(f"a value of x[{label}], which does not exist")
        return found[0]

    def _size(self, a: int, b: int) -> int:
        """Number of admissible pairs of a task and a GPU with these codes."""
        cluster, mine = self.cluster, self.gpu_code == b
        need = cluster.need[self.starts & (self.task_code == a)]
        own = cluster.own[self.held & (self.task_code == a)]
        return int((need[:, None] <= cluster.gpu_memory[mine][None, :]).sum() + mine[own].sum())

    @property
    def contradictory(self) -> bool:
        """Whether bounds of pairs leave no answer: a task is fixed to two GPUs, or barred from the GPU it must keep."""
        own = np.flatnonzero(self.held)
        shut = self.high[self.task_code[own], self.gpu_code[self.cluster.own[own]]] < 1
        forced = np.flatnonzero(self.low.any(axis=1))
        tasks = np.flatnonzero(self.starts & np.isin(self.task_code, forced))
        twice = any(self._fixed_gpus(t, int(self.task_code[t])) > 1 for t in tasks.tolist())
        return twice or (not self.policy.preemptive and bool(shut.any()))

    def _fixed_gpus(self, task: int, code: int) -> int:
        """Number of GPUs to which a waiting task is fixed."""
        fits = self.cluster.need[task] <= self.cluster.gpu_memory
        return int((fits & (self.low[code, self.gpu_code] > 0)).sum())

    def _disordered(self, runs: NDArray[np.bool_]) -> list[int]:
        """Running tasks that continue although a longer-running task of their job stops."""
        cluster, found = self.cluster, []
        if self.policy.preemptive:
            for job in np.unique(cluster.job_of[self.held & ~runs]).tolist():
                mine = self.held & (cluster.job_of == job)
                longest = cluster.elapsed[mine & ~runs].max()
                found += np.flatnonzero(mine & runs & (cluster.elapsed < longest)).tolist()
        return found

    def _steps(self, steps: Mapping[str, Any], count: list[int]) -> Iterator[Check]:
        """Check that every job has as many steps as running tasks."""
        self.reached = [0] * (max(self.most) + 1)
        found, wrong = dict.fromkeys(self.cluster.job, 0), []
        for label, value in steps.items():
            job, _, step = label.rpartition(",")
            most = self.most[self.cluster.job[job]] if job in found and self.policy.fair else 0
            if value != 1 or not step.isdecimal() or str(int(step)) != step or not 1 <= int(step) <= most:
                wrong.append(label)
                continue
            found[job] += 1
            self.reached[int(step)] += 1
        if self.policy.fair:
            wrong += [job for (job, n), k in zip(found.items(), count, strict=True) if n != k]
        yield none("rows share", wrong)

    def constant_of(self, name: str) -> Fraction:
        return self.constant if name == "transfer" else Fraction(int(self.held.sum()))

    def value(self, name: str) -> Fraction:
        runs = self.at >= 0
        if name.startswith("share_"):
            return Fraction(self.reached[int(name[6:])])
        if name == "running":
            return Fraction(int(runs.sum()))
        if name == "stops":
            return Fraction(int((self.held & ~runs).sum()))
        started = runs & ~self.held
        total = self.costs.seconds(self.costs.levels(started, self.cluster.gpu_node[self.at]))
        total += self.waiting * int((~runs).sum())
        total += sum((self.costs.stop_s[t] for t in np.flatnonzero(self.held & ~runs).tolist()), Fraction(0))
        task, gpu = np.flatnonzero(runs), self.at[runs]
        for part in self.rules.costs:
            total += part.coefficient * int(((part.task[task] >= 0) & (part.gpu[gpu] >= 0)).sum())
        return total

    def step_of(self, stage: str) -> Fraction:
        """Values of a stage differ by integer multiples of this."""
        if stage != "transfer":
            return Fraction(1)
        waiting = int(self.waiting / self.unit)
        read = self.table(np.flatnonzero(self.starts), np.unique(self.cluster.gpu_node)) - waiting
        lost = [int(self.costs.stop_s[t] / self.unit) + waiting for t in np.flatnonzero(self.held).tolist()]
        own = [int(part.coefficient / self.unit) for part in self.rules.costs]
        return self.unit * max(math.gcd(int(np.gcd.reduce(read.ravel(), initial=0)), *lost, *own), 1)

    def size_of(self, stage: str) -> Fraction:
        """Value of one unit of a stage in seconds, or in tasks."""
        return self.unit if stage == "transfer" else Fraction(1)

    def table(self, task: Whole, node: Whole) -> Whole:
        """Cost of tasks on nodes in integer units."""
        found: Whole = self.costs.of_pairs(task[:, None], node[None, :])
        times = int(self.costs.unit_s / self.unit)
        wide = int(np.abs(found).max(initial=0)) * times >= 2**60
        return (found.astype(object) if wide else found) * times


def _holds(done: Fraction, row: Any, side: Fraction) -> bool:
    return (done <= side or row.relation == ">=") and (done >= side or row.relation == "<=")
