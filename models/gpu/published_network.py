r"""The flow network of GPU assignment as printed: a price on waiting, and no lower bounds.

Vertices S, E; j and u_j for each job; one for each task and each free GPU. Arcs (capacity, cost)::

    S -> j    (N_j, 0)              j -> t    (1, 0)
    t -> g    (1, c_tg) if t fits   g -> E    (1, 0)
    j -> u_j  (N_j - A*_j, alpha)   u_j -> E  (N_j - A*_j, alpha)       A*_j = min(floor(Q / K), N_j)

with Q GPUs, K jobs, N_j tasks of job j. The answer is a minimum-cost *maximum* flow. So every job runs at least A*_j
tasks if they fit, and a further GPU is used only where its transfer costs at most 2 alpha: this is how the paper delays
tasks. `flowlex.models.gpu.model` states another problem over the same vertices: it runs as many tasks as possible, in
max-min fair shares.

Running tasks, of which the paper prints no arcs (reconstructed): without preemption they stay, and both N_j - A*_j and
the GPUs are what is left. With preemption (FSP) the A*_j longest-running tasks of a job stay; each further one has an
arc of cost 0 to its own GPU, and stops if it waits. Without fairness (FSU) no job has a vertex u_j.

Source: Tang, Zhu, Mao, Fu, Li, Journal of Software 33(12), 2022; what is printed and what is not stands in
docs/papers/gpu-assignment.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.engines import solve
from flowlex.formulations.engines.beyond_64_bits import solve_wide
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.lexicographic.lexicographic_network import optimal_face
from flowlex.formulations.solver_outcome import EngineError, Outcome
from flowlex.instances.gpu import GpuArrays, GpuInstance
from flowlex.models.gpu.assignment_network import RoundBuilder
from flowlex.models.gpu.baselines import base_shares
from flowlex.models.gpu.placement_metrics import Placement
from flowlex.models.gpu.round_eligibility import Policy
from flowlex.models.gpu.transfer_costs import Penalties, TransferCosts


@dataclass(frozen=True, eq=False)
class PublishedRound:
    """The optimum of one round by the published network.

    Attributes
    ----------
    network
        The network, with one more arc S -> E for what cannot be sent; its flow is least, then the costs.
    placement
        Assignment of tasks to GPUs, with metrics.
    objective_s
        Transfer and price of waiting, in seconds.
    """

    network: FlowNetwork
    placement: Placement
    objective_s: Fraction


def published_round(
    instance: GpuInstance, policy: Policy = Policy.FSP, penalties: Penalties | None = None
) -> PublishedRound:
    """Solve a round by the published network, in exact integers; the optimum is proven by its potentials.

    Parameters
    ----------
    instance
        Cluster and jobs.
    policy
        FSP, FS or FSU.
    penalties
        Weights a1, a2, a3; alpha is a3 times the most expensive transfer of any task.

    Examples
    --------
    >>> from flowlex import generate
    >>> published_round(generate("gpu-figure1")).placement.running_by_job.tolist()
    [1, 1]
    """
    view, costs = instance.arrays, TransferCosts.of(instance, penalties or Penalties())
    kept = _kept(view, policy)
    tasks = np.flatnonzero(~kept)
    held = view.task_running_gpu[tasks]
    gpus = np.setdiff1d(np.arange(len(view.gpu_node)), view.task_running_gpu[kept])
    net = RoundBuilder("published-gpu-assignment")
    source, sink = net.nodes("S", 1, supply=len(tasks)), net.nodes("E", 1, supply=-len(tasks))
    job = net.nodes("job", len(view.job_names), labels=view.job_names)
    task = net.nodes("task", len(tasks), labels=np.array(view.task_names, dtype=object)[tasks])
    gpu = net.nodes("gpu", len(gpus), labels=np.array(view.gpu_names, dtype=object)[gpus])
    there = np.bincount(view.task_job[tasks], minlength=len(view.job_names))
    net.arcs("enter", source, job, upper=there)
    net.arcs("offer", job[view.task_job[tasks]], task, upper=1)
    goes = np.where(held[:, None] < 0, view.task_memory[tasks][:, None] <= view.gpu_memory[gpus], held[:, None] == gpus)
    row, column = np.nonzero(goes)
    price = np.where(held[row] < 0, costs.dense()[tasks[row], view.gpu_node[gpus[column]]], 0)
    place = net.arcs("place", task[row], gpu[column], upper=1, cost=price)
    net.arcs("gpu_out", gpu, sink, upper=1)
    if policy.fair:
        must = np.maximum(base_shares(view) - np.bincount(view.task_job[kept], minlength=len(there)), 0)
        unscheduled = net.nodes("unscheduled", len(job), labels=view.job_names)
        for name, tail, head in (("wait", job, unscheduled), ("leave", unscheduled, sink)):
            net.arcs(name, tail, head, upper=there - must, cost=costs.waiting, labels=view.job_names)
    unsent = net.arcs("unsent", source, sink, upper=len(tasks))
    shape, cost = net.build(), net.costs()
    first = np.zeros(shape.arc_count, np.int64)
    first[unsent] = 1
    sent = replace(shape, cost=first)
    most = optimal_face(sent, _proven(sent, solve(sent, "network")))
    flow = _proven(most, solve_wide(most, cost, "network")).values
    assert flow is not None
    placed = np.where(kept, view.task_running_gpu, -1)
    used = flow[place] > 0
    placed[tasks[row[used]]] = gpus[column[used]]
    total = sum(int(c) * int(f) for c, f in zip(cost.tolist(), flow.tolist(), strict=True) if f)
    return PublishedRound(shape, Placement(view, costs, placed), total * costs.unit_s)


def _proven(network: FlowNetwork, outcome: Outcome) -> Outcome:
    """Return the outcome, if its flow keeps every arc of non-zero reduced cost at its bound."""
    flow, reduced = outcome.values, outcome.reduced_costs
    assert flow is not None and reduced is not None, "there is a flow of any amount over the arc S -> E"
    slack = ((reduced > 0) & (flow > network.lower)) | ((reduced < 0) & (flow < network.upper))
    if slack.any() or not network.is_flow(flow.astype(np.int64)):
        raise EngineError("the published network was not solved to its optimum; please report this with the instance")
    return replace(outcome, values=flow.astype(np.int64))


def _kept(view: GpuArrays, policy: Policy) -> NDArray[np.bool_]:
    """(T,) running tasks that stay: all, or with preemption the A*_j longest-running ones of each job."""
    running = np.flatnonzero(view.task_running_gpu >= 0)
    kept = np.zeros(len(view.task_job), bool)
    kept[running] = True
    if policy.preemptive:
        left = base_shares(view).tolist()
        for task in sorted(running.tolist(), key=lambda t: -float(view.task_elapsed[t])):
            kept[task] = left[view.task_job[task]] > 0
            left[view.task_job[task]] -= 1
    return kept
