"""GPU assignment stated from the instance, for answers of changed models: the plain program, pair by pair."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Any

import numpy as np

from flowlex.instances.gpu import GpuInstance
from flowlex.validation.certificates.gpu.cluster_columns import Cluster
from flowlex.validation.certificates.gpu.round_options import RoundOptions
from flowlex.validation.certificates.gpu.transfer_costs import Costs
from flowlex.validation.certificates.statement.rational_linear_program import ExactStatement
from flowlex.validation.restated.gpu import PolicyRules


def state_gpu(instance: GpuInstance, options: Mapping[str, Any]) -> ExactStatement:
    """Variables ``x`` by task and GPU, ``share_step`` by job and step; see the model's docstring for the rows."""
    policy, weights, priced, stop_price = RoundOptions.read(options)
    if priced:
        raise ValueError("waiting at a price takes no changes")
    cluster = Cluster(instance, {})
    costs = Costs.read(instance, cluster.view, weights, stop_price)
    own, (above, least) = cluster.own.tolist(), stops_of(cluster, policy)
    statement = ExactStatement("transfer", needed=frozenset({"task", "gpu_out", "running"}))
    columns = _variables(statement, instance, cluster, above)
    _rows(statement, cluster, columns)
    running = [t for t, g in enumerate(own) if g >= 0]
    if policy.preemptive:
        _preemption(statement, cluster, columns, running, least)
    else:
        for t in running:
            statement.row("running", cluster.names[t], dict.fromkeys(columns[t].values(), 1), "==", 1)
    if policy.fair:
        _shares(statement, cluster, columns)
    every = [column for mine in columns for column in mine.values()]
    statement.stage("running", dict.fromkeys(every, 1), maximize=True)
    _costs(statement, cluster, costs, columns, policy)
    if policy.preemptive and running:
        stops = {column: -1 for t in running for column in columns[t].values()}
        statement.stage("stops", stops, len(running))
    return statement


def stops_of(cluster: Cluster, policy: PolicyRules) -> tuple[list[bool], list[int]]:
    """For each job: whether it is above its share (and starts nothing), and how many running tasks it must keep."""
    count = cluster.counts(cluster.own >= 0).tolist()
    if not policy.preemptive:
        return [False] * len(count), count
    level = fair_levels(cluster)
    above = [n > floor(x) for n, x in zip(count, level, strict=True)]
    return above, [min(n, max(floor(x), int(x > 0))) for n, x in zip(count, level, strict=True)]


def _variables(
    statement: ExactStatement, instance: GpuInstance, cluster: Cluster, above: list[bool]
) -> list[dict[int, int]]:
    """Column of each task on each GPU where it may run."""
    gpus, nodes = list(cluster.gpu), list(instance.nodes)
    columns: list[dict[int, int]] = []
    labels: list[dict[str, str]] = []
    for t, name in enumerate(cluster.names):
        job, own, mine = int(cluster.job_of[t]), int(cluster.own[t]), {}
        for g, gpu in enumerate(gpus):
            waits = own < 0 and not above[job] and cluster.need[t] <= cluster.gpu_memory[g]
            if waits or own == g:
                mine[g] = len(labels)
                node = nodes[int(cluster.gpu_node[g])]
                job_name = cluster.names_of_jobs[job]
                labels.append({"task": name, "gpu": gpu, "job": job_name, "node": node.name, "rack": node.rack})
        columns.append(mine)
    statement.variables("x", labels, keys=("task", "gpu"))
    return columns


def _rows(statement: ExactStatement, cluster: Cluster, columns: list[dict[int, int]]) -> None:
    on_gpu: list[dict[int, int]] = [{} for _ in cluster.gpu]
    for name, mine in zip(cluster.names, columns, strict=True):
        if mine:
            statement.row("task", name, dict.fromkeys(mine.values(), 1), "<=", 1)
        for g, column in mine.items():
            on_gpu[g][column] = 1
    for name, terms in zip(cluster.gpu, on_gpu, strict=True):
        statement.row("gpu_out", name, terms, "<=", 1)


def _preemption(
    statement: ExactStatement, cluster: Cluster, columns: list[dict[int, int]], running: list[int], least: list[int]
) -> None:
    for j, job in enumerate(cluster.names_of_jobs):
        mine = [t for t in running if cluster.job_of[t] == j]
        if not mine:
            continue
        statement.row("stops", job, {c: 1 for t in mine for c in columns[t].values()}, ">=", least[j])
        for low, high in pairwise(sorted({float(cluster.elapsed[t]) for t in mine})):
            for a in (t for t in mine if cluster.elapsed[t] == high):
                for b in (t for t in mine if cluster.elapsed[t] == low):
                    terms = {**dict.fromkeys(columns[a].values(), 1), **dict.fromkeys(columns[b].values(), -1)}
                    statement.row("order", f"{cluster.names[a]},{cluster.names[b]}", terms, ">=", 0)


def _shares(statement: ExactStatement, cluster: Cluster, columns: list[dict[int, int]]) -> None:
    most = [min(int(n), len(cluster.gpu)) for n in cluster.counts(cluster.own >= -1)]
    labels: list[dict[str, Any]] = [
        {"job": job, "step": k + 1} for job, n in zip(cluster.names_of_jobs, most, strict=True) for k in range(n)
    ]
    block = statement.variables("share_step", labels, keys=("job", "step"))
    steps: dict[str, dict[int, int]] = {job: {} for job in cluster.names_of_jobs}
    by_step: dict[int, dict[int, int]] = {}
    for k, label in enumerate(labels):
        steps[label["job"]][block.start + k] = -1
        by_step.setdefault(label["step"], {})[block.start + k] = 1
    for j, job in enumerate(cluster.names_of_jobs):
        tasks = [t for t in range(len(columns)) if cluster.job_of[t] == j]
        statement.row("share", job, {c: 1 for t in tasks for c in columns[t].values()} | steps[job], "==", 0)
    for step, terms in sorted(by_step.items()):
        statement.stage(f"share_{step}", terms, maximize=True)


def _costs(
    statement: ExactStatement, cluster: Cluster, costs: Costs, columns: list[dict[int, int]], policy: PolicyRules
) -> None:
    waiting = costs.waiting_s if policy.fair else Fraction(0)
    reads = costs.ways(costs.unit_s, 1).table(np.arange(len(cluster.names)))
    terms: dict[int, Fraction] = {}
    constant = waiting * len(cluster.names)
    for t, mine in enumerate(columns):
        running = cluster.own[t] >= 0
        constant += costs.stop_s[t] if running else 0
        for g, column in mine.items():
            price = -costs.stop_s[t] if running else int(reads[t, cluster.gpu_node[g]]) * costs.unit_s
            terms[column] = price - waiting
    statement.stage("transfer", terms, constant)


def fair_levels(cluster: Cluster) -> list[Fraction]:
    """Max-min fair shares of all jobs if GPUs could be split; a running task asks for a GPU like its own.

    All levels rise together. A job stops when it has all it asks for, or when all GPUs from some memory up, which its
    next task (least demanding first) needs, are used.
    """
    memory, supply = np.unique(cluster.gpu_memory, return_counts=True)
    need = np.where(cluster.own >= 0, cluster.gpu_memory[cluster.own], cluster.need)
    wanted = np.searchsorted(memory, need).tolist()
    asks = [
        sorted(c for c, job in zip(wanted, cluster.job_of.tolist(), strict=True) if job == j and c < len(memory))
        for j in range(len(cluster.names_of_jobs))
    ]
    spare = [Fraction(int(supply[c:].sum())) for c in range(len(memory))]
    level, rising = [Fraction(0)] * len(asks), {j for j, mine in enumerate(asks) if mine}
    while rising:
        at = {j: asks[j][floor(level[j])] for j in rising}
        rate = [sum(c <= mine for mine in at.values()) for c in range(len(memory))]
        room = [left / n for left, n in zip(spare, rate, strict=True) if n]
        rise = min([*room, *(floor(level[j]) + 1 - level[j] for j in rising)])
        for c, n in enumerate(rate):
            spare[c] -= rise * n
        for j in rising:
            level[j] += rise
        rising = {
            j
            for j in rising
            if level[j] < len(asks[j]) and all(spare[c] > 0 for c in range(asks[j][floor(level[j])] + 1))
        }
    return level
