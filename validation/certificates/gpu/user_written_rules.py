"""Changes of a large GPU round, read for its certificate: which tasks and which GPUs each term counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.instances.gpu import GpuInstance
from flowlex.instances.model_changes import Bounds, Changes, Constraint, Cost, Drop, Fix, Relaxed, Term, Variable
from flowlex.validation.certificates.gpu.cluster_columns import Cluster

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """A term: groups of tasks and of GPUs by position, -1 for those that it leaves out."""

    coefficient: Fraction
    task: Whole
    gpu: Whole


@dataclass(frozen=True)
class OwnRow:
    """Rows of one name: relation, terms, and right-hand side by label, each with its group of tasks and of GPUs."""

    relation: str
    parts: list[Part]
    rhs: dict[str, tuple[int, int, Fraction]]
    groups: tuple[int, int]


class GpuRules:
    """Own rows, own costs of transfer, and bounds of pairs, in the order of the document."""

    def __init__(self, instance: GpuInstance, cluster: Cluster, starts: NDArray[np.bool_], changes: Changes) -> None:
        self.cluster, self.starts = cluster, starts
        nodes = list(instance.nodes)
        where = [nodes[n] for n in cluster.gpu_node.tolist()]
        jobs = [cluster.names_of_jobs[j] for j in cluster.job_of.tolist()]
        self.labels = {"task": cluster.names, "job": jobs}
        self.of_gpu = {"gpu": list(cluster.gpu), "node": [n.name for n in where], "rack": [n.rack for n in where]}
        self.rows: dict[str, OwnRow] = {}
        self.costs: list[Part] = []
        self.limits: list[tuple[Part, int | None, int | None]] = []
        for change in changes:
            if isinstance(change, Constraint):
                if change.name in self.rows or change.name in ("task", "gpu_out", "share", "stay", "keep", "order"):
                    raise ValueError(f"rows named {change.name!r} exist already")
                self.rows[change.name] = self._row(change)
            elif isinstance(change, Cost):
                self.costs += [self._part(term, {}, {}, ()) for term in change.terms]
            elif isinstance(change, (Fix, Bounds)):
                low, high = (change.value,) * 2 if isinstance(change, Fix) else (change.lower, change.upper)
                part = self._part(change.variables, {}, {}, ())
                self.limits.append((part, None if low is None else ceil(low), None if high is None else floor(high)))

    @staticmethod
    def takes(changes: Changes) -> bool:
        """Whether all changes are of a kind that can be judged by groups."""
        for change in changes:
            if isinstance(change, (Drop, Variable, Relaxed)):
                return False
            terms = change.terms if isinstance(change, (Constraint, Cost)) else (change.variables,)
            mixed = isinstance(change, Constraint) and len({term.by for term in terms}) > 1
            if mixed or any(term.variable != "x" for term in terms):
                return False
            if isinstance(change, Cost) and change.stage != "transfer":
                return False
            if isinstance(change, (Fix, Bounds)):
                both = (change.value,) if isinstance(change, Fix) else (change.lower, change.upper)
                if any(value is not None and not 0 <= value <= 1 for value in both):
                    return False
        return True

    def _part(self, term: Term, tasks: dict[Any, int], gpus: dict[Any, int], by: tuple[str, ...]) -> Part:
        if odd := [level for level in (*term.where, *by) if level not in self.labels | self.of_gpu]:
            raise ValueError(f"there is no level {odd[0]!r}")
        return Part(
            term.coefficient, _groups(self.labels, term.where, by, tasks), _groups(self.of_gpu, term.where, by, gpus)
        )

    def _row(self, rule: Constraint) -> OwnRow:
        by = rule.terms[0].by
        tasks: dict[Any, int] = {}
        gpus: dict[Any, int] = {}
        parts = [self._part(term, tasks, gpus, by) for term in rule.terms]
        there = self._there(parts, len(tasks), len(gpus))
        if not by:
            tasks, gpus, there = {(): 0}, {(): 0}, np.ones((1, 1), bool)
        sides: dict[str, tuple[int, int, Fraction]] = {}
        for a, of_task in enumerate(tasks):
            for b, of_gpu in enumerate(gpus):
                if there[a, b]:
                    mine = dict(zip([level for level in by if level in self.labels], of_task, strict=True))
                    mine |= dict(zip([level for level in by if level in self.of_gpu], of_gpu, strict=True))
                    text = label_text(mine[level] for level in by)
                    sides[text] = a, b, rule.rhs[text] if isinstance(rule.rhs, dict) else rule.rhs
        return OwnRow(rule.relation, parts, sides, (len(tasks), len(gpus)))

    def _there(self, parts: list[Part], tasks: int, gpus: int) -> NDArray[np.bool_]:
        """Which pairs of groups have a task and a GPU that may run together."""
        cluster, found = self.cluster, np.zeros((tasks, gpus), bool)
        for part in parts:
            for b in range(gpus):
                largest = cluster.gpu_memory[part.gpu == b].max(initial=-1.0)
                found[part.task[self.starts & (cluster.need <= largest) & (part.task >= 0)], b] = True
            for t in np.flatnonzero((cluster.own >= 0) & (part.task >= 0)).tolist():
                if part.gpu[cluster.own[t]] >= 0:
                    found[part.task[t], part.gpu[cluster.own[t]]] = True
        return found


def _groups(
    labels: Mapping[str, list[str]], where: Mapping[str, Any], by: tuple[str, ...], known: dict[Any, int]
) -> Whole:
    """Group of each member by its labels of the levels in ``by``; -1 where ``where`` leaves it out."""
    levels = [level for level in by if level in labels]
    wanted = {level: each for level, each in where.items() if level in labels}
    found = np.full(len(next(iter(labels.values()))), -1)
    for k in range(len(found)):
        chosen = (
            labels[level][k] in each if isinstance(each, tuple) else labels[level][k] == each
            for level, each in wanted.items()
        )  # fmt: skip
        if all(chosen):
            found[k] = known.setdefault(tuple(labels[level][k] for level in levels), len(known))
    return found
