"""The certificate of a round: fair shares and dual values of GPUs and jobs, for every leaf of the search tree.
`flowlex.validation.certificates.gpu` documents the format and recomputes all values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowlex.models.gpu.preemption_search import GpuRun, Leaf, Node
from flowlex.models.gpu.round_eligibility import Round
from flowlex.models.gpu.tie_break_weights import Ties
from flowlex.models.gpu.transfer_costs import TransferCosts


def proof_of(run: GpuRun, costs: TransferCosts, ties: Ties) -> dict[str, Any]:
    """Return the certificate of a run, keyed by names of the instance; empty if a network has no dual values."""
    if run.root is None or run.leaf is None:
        return {}
    plan = run.leaf.plan
    names = plan.view.task_names
    parts = _tree(run.root, names)
    if parts is None:
        return {}
    return {
        "unit_s": str(costs.unit_s),
        "factor": ties.factor,
        "base": ties.base,
        "keep": {names[t]: int(ties.keep[t]) for t in np.flatnonzero(ties.keep).tolist()},
        "shares": _levels(plan) if plan.priced else {},
        "search": parts,
    }


def _tree(node: Node, names: tuple[str, ...]) -> dict[str, Any] | None:
    if node.task is not None:
        kept, stopped = (_tree(part, names) for part in node.parts)
        return None if kept is None or stopped is None else {"task": names[node.task], "kept": kept, "stopped": stopped}
    if node.leaf is None:
        return {"shares": {}, "gpu_price": {}, "job_price": {}}
    prices = _prices(node.leaf)
    return None if prices is None else {"shares": {} if node.leaf.plan.priced else _levels(node.leaf.plan), **prices}


def _levels(plan: Round) -> dict[str, str]:
    """Return the fair share of each job in a round as a fraction; empty without fairness."""
    levels = () if plan.shares is None else plan.shares.level
    return {name: str(level) for name, level in zip(plan.view.job_names, levels, strict=bool(levels))}


def _prices(leaf: Leaf) -> dict[str, Any] | None:
    """Compute dual values of GPUs (at least 0) and of jobs from the node potentials; None without potentials."""
    plan, network, potential = leaf.plan, leaf.built.shape, leaf.outcome.duals
    if potential is None or potential.dtype.kind not in "iO":
        return None
    view, nodes = plan.view, network.split_nodes(potential)
    sink = int(nodes["E"][0])
    if "gpu" in nodes:
        price = nodes["gpu"] - sink
    else:
        own = np.full(len(view.gpu_node), -1)
        own[view.task_running_gpu[plan.optional]] = np.arange(len(plan.optional))
        memory = np.unique(view.gpu_memory[plan.free_gpu])
        key = view.gpu_node[plan.free_gpu] * len(memory) + np.searchsorted(memory, view.gpu_memory[plan.free_gpu])
        vertex = np.searchsorted(np.unique(key), key)
        price = nodes["node"][vertex] - sink
        mine = own[plan.free_gpu] >= 0
        price[mine] = nodes["own_gpu"][own[plan.free_gpu][mine]] - sink
    worth = nodes["job"] - sink if plan.shares is not None else np.full(len(view.job_names), nodes["S"][0] - sink)
    used = np.isin(plan.free_gpu, leaf.gpu)
    if used.all() and len(used) and not plan.priced:  # all GPUs are used: a constant may be added to the duals
        lift = max(0, -int(price.min()))
        price, worth = price + lift, worth + lift
    price = np.maximum(price, 0)
    return {
        "gpu_price": {view.gpu_names[g]: p for g, p in zip(plan.free_gpu.tolist(), price.tolist(), strict=True) if p},
        "job_price": {view.job_names[j]: p for j, p in enumerate(worth.tolist()) if p},
    }
