"""The compact network of a changed round, and the conversion of its flow to placements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import lcm

import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.models.gpu.large_rounds.class_program import Landing, Program, Refined, classes, cost_of


class Network:
    """Nodes: tasks, cluster and racks by task class, GPU groups (rack, memory, code), places (node, memory, code)."""

    def __init__(self, model: Refined) -> None:
        view = model.view
        self.model, self.view, self.costs = model, view, model.costs
        _, place_gpu, self.place, self.capacity = classes(view.gpu_node, model.gpu_kind)
        rack = view.node_rack[view.gpu_node]
        _, group_gpu, self.group, group_size = classes(rack, model.gpu_kind)
        self.place_gpu, self.group_gpu, self.group_size = place_gpu, group_gpu, group_size
        self.rack_of_group = rack[group_gpu]
        self.start = model.start
        _, first, self.kind, self.kind_size = classes(model.task_kind[self.start])
        self.kind_task = self.start[first]
        self.row = np.full(len(view.task_job), -1)
        self.row[self.start] = np.arange(len(self.start))

    def build(self, kept: Mapping[str, float]) -> tuple[Program, Floats, Floats, Fraction]:
        """Build the program; ``kept`` are the minimised values of earlier stages (fair shares, running tasks).

        Returns the program, its costs of transfer and of stops, and the seconds of a unit of transfer cost.
        """
        p, view, costs, model = Program("network"), self.view, self.costs, self.model
        racks, kinds = len(view.rack_names), len(self.kind_size)
        task, node, near = costs.on_node
        ok = self.row[task] >= 0
        pairs = list(self._pairs(task[ok], node[ok], near[ok]))
        task, gpu, near = (np.concatenate(each) for each in zip(*pairs, strict=True))
        self.on_node = Landing(p.columns(np.ones(len(task))), task, gpu)
        rack_task, rack, in_rack = costs.in_rack
        ok = self.row[rack_task] >= 0
        rack_task, rack, in_rack = rack_task[ok], rack[ok], in_rack[ok]
        self.in_rack, self.in_rack_task, self.in_rack_at = p.columns(np.ones(len(rack_task))), rack_task, rack
        self.remote = p.columns(np.ones(len(self.start)))
        k, r = (each.ravel() for each in np.indices((kinds, racks)))
        self.to_rack = p.columns(self.kind_size[k])
        k2, g2 = (each.ravel() for each in np.indices((kinds, len(self.group_size))))
        ok = model.fits(self.kind_task[k2], self.group_gpu[g2])
        self.k2, self.g2 = k2, g2 = k2[ok], g2[ok]
        self.to_group = Landing(p.columns(self.kind_size[k2]), self.kind_task[k2], self.group_gpu[g2])
        # A loose upper bound: a tight bound would take part of the duals of the GPU rows.
        self.to_place = p.columns(np.full(len(self.capacity), len(self.start)))
        row = self.row
        p.require("task", len(self.start), "<=", 1, (row[self.on_node.task], self.on_node.columns, 1),
               (row[rack_task], self.in_rack, 1), (np.arange(len(self.start)), self.remote, 1))  # fmt: skip
        p.require("cluster", kinds, "==", 0, (self.kind, self.remote, 1), (k, self.to_rack, -1))
        p.require("rack", kinds * racks, "==", 0, (k * racks + r, self.to_rack, 1),
               (self.kind[row[rack_task]] * racks + rack, self.in_rack, 1),
               (k2 * racks + self.rack_of_group[g2], self.to_group.columns, -1))  # fmt: skip
        p.require("group", len(self.group_size), "==", 0, (g2, self.to_group.columns, 1),
               (self.group[self.place_gpu], self.to_place, -1))  # fmt: skip
        starts = (
            np.concatenate([self.on_node.columns, self.in_rack, self.remote]),
            np.concatenate([task, rack_task, self.start]),
        )
        entering = Landing(self.to_place, np.zeros(0, np.int64), self.place_gpu)
        ruled, into = [self.on_node, self.to_group], [self.on_node, entering]
        self.held, steps = model.common(p, ruled, Landing(*starts, starts[1]), into, (self.place, self.capacity))
        every = np.concatenate([starts[0], self.held])
        for step, (name, value) in enumerate(kept.items(), 1):
            columns = every if name == "running" else steps[model.step == step]
            p.require(f"stage {name}", 1, "<=", value, (np.zeros_like(columns), columns, -1))
        unit, transfer = self._transfer(p, [(self.on_node.columns, near), (self.in_rack, in_rack),
                                            (self.remote, costs.remote[self.start])])  # fmt: skip
        return p, transfer, cost_of(p, (self.held, -1)), unit

    def _pairs(self, task: Integers, node: Integers, cost: Floats) -> Iterator[tuple[Integers, Integers, Floats]]:
        """Yield tasks with the GPU and cost of the k-th place of their node, for k = 0, 1, ..."""
        order = np.argsort(self.view.gpu_node[self.place_gpu], kind="stable")
        nodes = self.view.gpu_node[self.place_gpu][order]
        first, last = np.searchsorted(nodes, node), np.searchsorted(nodes, node, side="right")
        for k in range(int((last - first).max(initial=0)) or 1):
            there = np.flatnonzero(first + k < last)
            gpu = self.place_gpu[order[first[there] + k]]
            ok = self.model.fits(task[there], gpu)
            yield task[there][ok], gpu[ok], cost[there][ok]

    def _transfer(self, p: Program, parts: Sequence[tuple[Integers, Floats]]) -> tuple[Fraction, Floats]:
        """Return the seconds per cost unit and the integer cost of each column: data, waiting, lost work, own costs."""
        model, costs = self.model, self.costs
        waiting = costs.waiting if model.plan.policy.fair else 0
        added = [term.coefficient / costs.unit_s for term in model.rules.costs]
        factor = lcm(1, *(each.denominator for each in added))
        cost = cost_of(p, *((columns, (value - waiting) * factor) for columns, value in parts))
        cost[self.held] = (-costs.stop[model.held] - waiting) * factor
        own = Landing(self.held, model.held, self.view.task_running_gpu[model.held])
        for columns, task, gpu in (self.on_node, self.to_group, own):
            for term, value in zip(model.rules.costs, added, strict=True):
                some = (term.task[task] >= 0) & (term.gpu[gpu] >= 0)
                cost[columns[some]] += float(value * factor)
        return costs.unit_s / factor, cost

    def placements(self, values: Floats) -> Integers:
        """Return the GPU of each task, (T,), -1 if it does not run."""
        x, view = np.rint(values).astype(np.int64), self.view
        gpu = np.full(len(view.task_job), -1)
        stays = self.model.held[x[self.held] > 0]
        gpu[stays] = view.task_running_gpu[stays]
        free: list[list[int]] = [[] for _ in self.capacity]
        for g in np.setdiff1d(np.arange(len(view.gpu_names)), gpu[stays]).tolist():
            free[self.place[g]].append(g)
        racks = len(view.rack_names)
        at_rack: list[list[int]] = [[] for _ in range(racks * len(self.kind_size))]
        at_kind: list[list[int]] = [[] for _ in self.kind_size]
        at_group: list[list[int]] = [[] for _ in self.group_size]
        for t, g in zip(*(each[x[self.on_node.columns] > 0].tolist() for each in self.on_node[1:]), strict=True):
            gpu[t] = free[self.place[g]].pop()
        some = x[self.in_rack] > 0
        for t, r in zip(self.in_rack_task[some].tolist(), self.in_rack_at[some].tolist(), strict=True):
            at_rack[self.kind[self.row[t]] * racks + r].append(t)
        for t in self.start[x[self.remote] > 0].tolist():
            at_kind[self.kind[self.row[t]]].append(t)
        _move(at_kind, at_rack, x[self.to_rack], np.repeat(np.arange(len(at_kind)), racks), np.arange(len(at_rack)))
        _move(at_rack, at_group, x[self.to_group.columns], self.k2 * racks + self.rack_of_group[self.g2], self.g2)
        for place, n in enumerate(x[self.to_place].tolist()):
            for _ in range(n):
                gpu[at_group[self.group[self.place_gpu[place]]].pop()] = free[place].pop()
        return gpu


def _move(source: list[list[int]], target: list[list[int]], flow: Integers, tail: Integers, head: Integers) -> None:
    for arc in np.flatnonzero(flow).tolist():
        for _ in range(int(flow[arc])):
            target[head[arc]].append(source[tail[arc]].pop())
