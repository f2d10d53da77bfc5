"""Evaluations of node capacity, integer targets, and the least makespan; all exact."""

from __future__ import annotations

import heapq
import math
import numbers
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.exact_rationals import rational, rationals
from flowlex.instances.load import LoadNode
from flowlex.models.model_base import ModelError


def _history(node: LoadNode) -> Fraction:
    """Items per second over all past runs."""
    items, seconds = (rationals(figures) for figures in zip(*((r.items, r.seconds) for r in node.history), strict=True))
    return sum(items, Fraction(0)) / sum(seconds, Fraction(0))


#: By name of an evaluation: the field that it reads, its words, and what it makes of a node. `cpu_load` is our
#: reconstruction of the paper's formula, ``min(1, CpuFree / CpuReq)``; `performance` is what the node information
#: service reports, from any evaluation.
EVALUATIONS: dict[str, tuple[str, str, Callable[[LoadNode], Fraction]]] = {
    "configuration": ("configuration", "configuration", lambda node: rational(node.configuration or 0)),
    "cpu_load": (
        "cpu_free",
        "cpu_free",
        lambda node: min(Fraction(1), rational(node.cpu_free or 0) / rational(node.cpu_required)),
    ),
    "history": ("history", "run history", _history),
    "performance": ("performance", "performance", lambda node: rational(node.performance or 0)),
}


def capacities(
    nodes: Sequence[LoadNode], evaluation: str | Callable[[LoadNode], float | Fraction]
) -> tuple[Fraction, ...]:
    """Return the exact capacities of N nodes: the rational numbers of the decimal texts.

    Raises `ModelError` for an unknown evaluation, missing data, a negative or infinite capacity, or only zeros.
    """
    if isinstance(evaluation, str):
        if evaluation not in EVALUATIONS:
            raise ModelError(f"unknown capacity {evaluation!r}; one of: {', '.join(EVALUATIONS)}, or a function")
        figure, words, read = EVALUATIONS[evaluation]
        others = ", ".join(name for name in EVALUATIONS if name != evaluation)
        for node in nodes:
            if getattr(node, figure) in (None, ()):
                raise ModelError(f"node {node.name!r} has no {words}; give it, or evaluate by one of {others}")
        evaluation = read
    values = [evaluation(node) for node in nodes]
    for node, value in zip(nodes, values, strict=True):
        if not isinstance(value, numbers.Real) or not math.isfinite(value) or value < 0:
            raise ModelError(f"the capacity of node {node.name!r} is {value!r}; it must be a number of at least 0")
    if not any(values):
        raise ModelError("all capacities are zero: no node can process anything; correct the evaluation's figures")
    return tuple(rationals(values))


def largest_remainder(capacity: Sequence[float | Fraction] | Floats, total: int) -> Integers:
    """Return integer targets, (N,), with sum ``total``: quotas rounded by the largest remainder method."""
    exact = rationals(capacity)
    whole = sum(exact)
    quotas = [c * total / whole for c in exact]
    floors = [q.numerator // q.denominator for q in quotas]
    order = sorted(range(len(exact)), key=lambda i: (floors[i] - quotas[i], i))
    for i in order[: total - sum(floors)]:
        floors[i] += 1
    return np.array(floors, np.int64)


def least_makespan_loads(capacity: Sequence[float | Fraction] | Floats, total: int) -> tuple[Fraction, Integers]:
    """Return the least makespan T, and the number of items that each node can finish by T, (N,).

    In every partition some node gets at least its quota, so quotas rounded down finish by T. Each of the few remaining
    items goes to the node that finishes it first.
    """
    exact = rationals(capacity)
    whole = sum(exact)
    loads = [(c * total / whole).numerator // (c * total / whole).denominator for c in exact]
    queue = [((loads[i] + 1) / c, i) for i, c in enumerate(exact) if c]
    heapq.heapify(queue)
    for _ in range(total - sum(loads)):
        _, i = heapq.heappop(queue)
        loads[i] += 1
        heapq.heappush(queue, ((loads[i] + 1) / exact[i], i))
    finish = max((loads[i] / c for i, c in enumerate(exact) if c), default=Fraction(0))
    most = [(c * finish).numerator // (c * finish).denominator for c in exact]
    return finish, np.array(most, np.int64)
