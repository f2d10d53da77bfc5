"""A changed round as one plain program per stage, by scipy, from the instance and a document of changes.

Shares no code with models and certificates; fair shares come from the tests' own counting.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse

from flowlex.instances.gpu import GpuInstance
from tests.models.gpu.oracle import may_lose, may_start


class Program:
    """Columns as (variable, labels), rows as (name, label, terms, relation, side), stages in their order."""

    def __init__(self, instance: GpuInstance, policy: str, stop_price: Fraction = Fraction(0)) -> None:
        self.instance, self.policy = instance, policy
        self.columns: list[tuple[str, dict[str, Any]]] = []
        self.bounds: list[tuple[float, float]] = []
        self.integer: list[bool] = []
        self.rows: list[tuple[str, str, dict[int, float], str, float]] = []
        self.stages: list[tuple[str, dict[int, float], float]] = []
        self._pairs()
        self._once()
        self._running_tasks()
        if policy != "FSU":
            self._steps()
        every = [k for mine in self.of_task.values() for k in mine]
        self.stages.append(("running", dict.fromkeys(every, -1.0), 0.0))
        self._transfer(stop_price)
        if policy == "FSP" and self.running:
            stops = {k: -1.0 for task in self.running for k in self.of_task[task.name]}
            self.stages.append(("stops", stops, float(len(self.running))))

    def _column(self, variable: str, labels: dict[str, Any], low: float, high: float, integer: bool) -> int:
        self.columns.append((variable, labels))
        self.bounds.append((low, high))
        self.integer.append(integer)
        return len(self.columns) - 1

    def _pairs(self) -> None:
        instance, starts = self.instance, [True] * len(self.instance.jobs)
        if self.policy == "FSP":
            starts = may_start(instance)
        self.of_task: dict[str, list[int]] = {task.name: [] for task in instance.tasks}
        self.running = [task for task in instance.tasks if task.running is not None]
        for job, start in zip(instance.jobs, starts, strict=True):
            for task, node in itertools.product(job.tasks, instance.nodes):
                for gpu in node.gpus:
                    waits = task.running is None
                    if (start and task.memory_gb <= gpu.memory_gb) if waits else task.running.gpu == gpu.name:
                        label = {"task": task.name, "gpu": gpu.name, "job": job.name, "node": node.name}
                        self.of_task[task.name].append(self._column("x", label | {"rack": node.rack}, 0, 1, True))

    def _once(self) -> None:
        for name, mine in self.of_task.items():
            self.rows.append(("task", name, dict.fromkeys(mine, 1.0), "<=", 1))
        for gpu in self.instance.gpus:
            mine = [k for k, (_, label) in enumerate(self.columns) if label["gpu"] == gpu.name]
            self.rows.append(("gpu_out", gpu.name, dict.fromkeys(mine, 1.0), "<=", 1))

    def _running_tasks(self) -> None:
        own = {task.name: self.of_task[task.name][0] for task in self.running}
        if self.policy != "FSP":
            self.rows += [("stay", name, {k: 1.0}, "==", 1) for name, k in own.items()]
            return
        for job, lose in zip(self.instance.jobs, may_lose(self.instance), strict=True):
            mine = [task for task in job.tasks if task.running is not None]
            if mine:
                self.rows.append(("keep", job.name, {own[t.name]: 1.0 for t in mine}, ">=", len(mine) - lose))
            times = sorted({t.running.elapsed_s for t in mine})
            for long, short in itertools.product(mine, mine):  # between neighbouring times; the others follow
                a, b = times.index(long.running.elapsed_s), times.index(short.running.elapsed_s)
                if a == b + 1:
                    terms = {own[long.name]: 1.0, own[short.name]: -1.0}
                    self.rows.append(("order", f"{long.name},{short.name}", terms, ">=", 0))

    def _steps(self) -> None:
        gpus = len(list(self.instance.gpus))
        by_step: dict[int, list[int]] = {}
        for job in self.instance.jobs:
            terms = {k: 1.0 for task in job.tasks for k in self.of_task[task.name]}
            for step in range(1, min(len(job.tasks), gpus) + 1):
                k = self._column("share_step", {"job": job.name, "step": step}, 0, 1, True)
                by_step.setdefault(step, []).append(k)
                terms[k] = -1.0
            self.rows.append(("share", job.name, terms, "==", 0))
        self.stages += [(f"share_{s}", dict.fromkeys(mine, -1.0), 0.0) for s, mine in sorted(by_step.items())]

    def _transfer(self, stop_price: Fraction) -> None:
        rack = {node.name: node.rack for node in self.instance.nodes}
        speed = [Fraction(s) for s in (
            self.instance.disk_mb_per_s, self.instance.rack_mb_per_s, self.instance.between_racks_mb_per_s
        )]  # fmt: skip
        tasks = list(self.instance.tasks)
        most = max(sum(Fraction(shard.size_mb) for shard in task.shards) for task in tasks) / speed[2]
        alpha = Fraction(0) if self.policy == "FSU" else most
        cost, constant = {}, alpha * len(tasks)
        for task in tasks:
            lost = stop_price * Fraction(task.running.elapsed_s) if task.running is not None else Fraction(0)
            constant += lost
            for k in self.of_task[task.name]:
                node, read = self.columns[k][1]["node"], Fraction(0)
                for shard in task.shards:
                    near = rack[node] in {rack[name] for name in shard.replicas}
                    read += Fraction(shard.size_mb) / speed[0 if node in shard.replicas else 1 if near else 2]
                cost[k] = float((read if task.running is None else -lost) - alpha)
        self.stages.append(("transfer", cost, float(constant)))

    def change(self, document: dict[str, Any]) -> None:
        """Apply the changes of a document (plain data) in order."""
        for each in document["changes"]:
            getattr(self, "_" + each["change"])(each)

    def _chosen(self, term: dict[str, Any]) -> list[int]:
        def fits(label: Any, wanted: Any) -> bool:
            if isinstance(wanted, dict):
                return wanted.get("at_least", label) <= label <= wanted.get("at_most", label)
            return label in wanted if isinstance(wanted, (list, tuple)) else label == wanted

        where = term.get("where", {}).items()
        return [
            k
            for k, (variable, labels) in enumerate(self.columns)
            if variable == term["variable"] and all(fits(labels[level], wanted) for level, wanted in where)
        ]

    def _constraint(self, rule: dict[str, Any]) -> None:
        """Whether all terms have the same labels at the levels ``by``, or none has any."""
        rows: dict[str, dict[int, float]] = {} if any(t.get("by") for t in rule["terms"]) else {"": {}}
        for term in sorted(rule["terms"], key=lambda term: not term.get("by")):
            for k in self._chosen(term):
                by = term.get("by", ())
                hit = [",".join(str(self.columns[k][1][level]) for level in by)] if by else list(rows)
                for label in hit:
                    row = rows.setdefault(label, {})
                    row[k] = row.get(k, 0.0) + float(Fraction(term.get("coefficient", 1)))
        for label, terms in rows.items():
            side = rule["rhs"][label] if isinstance(rule["rhs"], dict) else rule["rhs"]
            self.rows.append((rule["name"], label, terms, rule["relation"], float(Fraction(side))))

    def _drop(self, drop: dict[str, Any]) -> None:
        which = drop.get("rows")
        self.rows = [row for row in self.rows if row[0] != drop["name"] or (which is not None and row[1] not in which)]

    def _fix(self, fix: dict[str, Any]) -> None:
        for k in self._chosen(fix["variables"]):
            self.bounds[k] = float(fix["value"]), float(fix["value"])

    def _bounds(self, change: dict[str, Any]) -> None:
        for k in self._chosen(change["variables"]):
            low, high = self.bounds[k]
            self.bounds[k] = float(Fraction(change.get("lower", low))), float(Fraction(change.get("upper", high)))

    def _cost(self, cost: dict[str, Any]) -> None:
        terms, sign = next((t, -1 if name not in ("transfer", "stops") else 1) for name, t, _ in self.stages
                           if name == cost["stage"])  # fmt: skip
        for term in cost["terms"]:
            for k in self._chosen(term):
                terms[k] = terms.get(k, 0.0) + sign * float(Fraction(term.get("coefficient", 1)))

    def _variable(self, new: dict[str, Any]) -> None:
        for labels in itertools.product(*new["levels"].values()):
            named = dict(zip(new["levels"], labels, strict=True))
            self._column(new["name"], named, float(new.get("lower", 0)), float(new["upper"]), new.get("integer", False))

    def _relaxed(self, change: dict[str, Any]) -> None:
        names = change.get("variables")
        for k, (variable, _) in enumerate(self.columns):
            self.integer[k] = self.integer[k] and names is not None and variable not in names

    def solve(self) -> dict[str, float] | None:
        """Return the value of every stage as in a solution; None if infeasible."""
        sides = {"<=": (0, 1), ">=": (1, 0), "==": (1, 1)}
        rows = [row[2] for row in self.rows]
        low = [side if sides[relation][0] else -np.inf for _, _, _, relation, side in self.rows]
        high = [side if sides[relation][1] else np.inf for _, _, _, relation, side in self.rows]
        found: dict[str, float] = {}
        for name, terms, constant in self.stages:
            cost = np.zeros(len(self.columns))
            for k, value in terms.items():
                cost[k] = value
            matrix = scipy.sparse.lil_array((len(rows), len(self.columns)))
            for i, row in enumerate(rows):
                for k, value in row.items():
                    matrix[i, k] = value
            answer = scipy.optimize.milp(
                cost,
                constraints=scipy.optimize.LinearConstraint(matrix.tocsr(), low, high),
                bounds=scipy.optimize.Bounds(*np.array(self.bounds).reshape(-1, 2).T),
                integrality=np.array(self.integer, int),
                options={"mip_rel_gap": 0},
            )
            if answer.status == 2:
                return None
            assert answer.status == 0, answer.message
            found[name] = (1 if name in ("transfer", "stops") else -1) * float(answer.fun) + constant
            rows, low, high = [*rows, terms], [*low, -np.inf], [*high, answer.fun + 1e-6]
        return found
