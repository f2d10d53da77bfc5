"""What one more GPU, a larger share, or a task is worth: the changed round is solved, from the last optimum if it can.

Duals speak of the round at a fixed total: they are no answer to *what would one more GPU save*, because then one more
task runs. Here the round is changed and solved again, so the figures are exact. Where the changed network has the arcs
of the one solved (a GPU of a memory that its node has already, a share, a waiting task) it starts from that optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from typing import Literal

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.outcome import Outcome, Status
from flowlex.formulations.sessions.repair import repair
from flowlex.formulations.shares import Shares
from flowlex.instances.gpu import Gpu, GpuInstance
from flowlex.models.base import ModelError
from flowlex.models.gpu.network import AssignmentNetwork
from flowlex.models.gpu.round import Policy, Round, plan_round
from flowlex.models.gpu.rounds import Rounds
from flowlex.models.gpu.search import Leaf

__all__ = ["Value", "value_of"]


@dataclass(frozen=True)
class Value:
    """What changes: the best round afterwards less the best round as it is.

    Attributes
    ----------
    objective_s
        Seconds of transfer and waiting; negative where the change saves.
    transfer_s
        Seconds of transfer.
    running
        Tasks that run.
    """

    objective_s: Fraction
    transfer_s: Fraction
    running: int

    def __str__(self) -> str:
        parts = (f"objective {float(self.objective_s):+g} s", f"transfer {float(self.transfer_s):+g} s")
        return f"{', '.join(parts)}, running {self.running:+d}"


def value_of(rounds: Rounds, what: Literal["gpu", "share", "task"], name: str, memory_gb: float | None) -> Value:
    """See `GpuAssignment.value_of`."""
    if memory_gb is not None and what != "gpu":
        raise ModelError(f"memory_gb is of a GPU; a {what} takes none")
    if what == "gpu":
        after = _with_gpu(rounds, name, memory_gb)
    elif what == "share":
        after = _with_share(rounds, name)
    elif what == "task":
        after = _without_task(rounds, name)
    else:
        raise ModelError(f"there is no value of {what!r}; one of gpu, share, task")
    before = _figures(rounds, rounds.best)
    return Value(after[0] - before[0], after[1] - before[1], after[2] - before[2])


def _figures(rounds: Rounds, leaf: Leaf, gone: int = 0) -> tuple[Fraction, Fraction, int]:
    """Objective, transfer and running tasks of a round of this model; ``gone`` tasks are not there any more."""
    view = leaf.plan.view
    started = (leaf.gpu >= 0) & (view.task_running_gpu < 0)
    transfer = rounds.costs.seconds(np.where(started, view.gpu_node[leaf.gpu], -1))
    running = int(np.count_nonzero(leaf.gpu >= 0))
    waiting = 0 if rounds.policy is Policy.FSU else len(leaf.gpu) - running - gone
    stopped = np.flatnonzero((leaf.gpu < 0) & (view.task_running_gpu >= 0)).tolist()
    lost = sum((rounds.costs.stop_s[task] for task in stopped), Fraction())
    return transfer + waiting * rounds.costs.waiting_s + lost, transfer, running


def _anew(rounds: Rounds, instance: GpuInstance) -> tuple[Fraction, Fraction, int]:
    other = replace(rounds, instance=instance)
    return _figures(other, other.best)


def _with_gpu(rounds: Rounds, name: str, memory_gb: float | None) -> tuple[Fraction, Fraction, int]:
    instance, view = rounds.instance, rounds.instance.arrays
    node = _number(view.node_names, name, "node")
    here = view.gpu_memory[view.gpu_node == node]
    memory = float((here if len(here) else view.gpu_memory).max()) if memory_gb is None else float(memory_gb)
    if not memory > 0 or memory == np.inf:
        raise ModelError(f"memory_gb must be a positive number, got {memory_gb}")
    grown = replace(
        view,
        gpu_node=np.append(view.gpu_node, node),
        gpu_memory=np.append(view.gpu_memory, memory),
        gpu_names=(*view.gpu_names, "another GPU"),
    )
    leaf = _warm(rounds, plan_round(grown, rounds.policy, priced=rounds.round.priced))
    if leaf is not None:
        return _figures(rounds, leaf)
    names = set(view.gpu_names)
    new = next(label for k in range(len(names) + 1) if (label := f"another GPU {k}") not in names)
    nodes = [
        n.model_copy(update={"gpus": (*n.gpus, Gpu(name=new, memory_gb=memory))}) if n.name == name else n
        for n in instance.nodes
    ]
    return _anew(rounds, instance.model_copy(update={"nodes": tuple(nodes)}))


def _without_task(rounds: Rounds, name: str) -> tuple[Fraction, Fraction, int]:
    instance, view = rounds.instance, rounds.instance.arrays
    task = _number(view.task_names, name, "task")
    jobs = [j.model_copy(update={"tasks": tuple(t for t in j.tasks if t.name != name)}) for j in instance.jobs]
    jobs = [job for job in jobs if job.tasks]
    if not jobs:
        return Fraction(0), Fraction(0), 0
    other = replace(rounds, instance=instance.model_copy(update={"jobs": tuple(jobs)}))
    same_price = other.costs.waiting_s == rounds.costs.waiting_s
    if task in rounds.round.startable and len(jobs) == len(instance.jobs) and same_price:
        plan = plan_round(view, rounds.policy, without=task, priced=rounds.round.priced)
        leaf = _warm(rounds, plan, dropped=task)
        if leaf is not None:
            return _figures(rounds, leaf, 1)
    return _figures(other, other.best)


def _with_share(rounds: Rounds, name: str) -> tuple[Fraction, Fraction, int]:
    view, plan, leaf = rounds.instance.arrays, rounds.round, rounds.best
    job = _number(view.job_names, name, "job")
    if plan.shares is None:
        raise ModelError("policy FSU knows no shares; ask for the value of a GPU or a task")
    count = np.bincount(view.task_job[leaf.gpu >= 0], minlength=len(view.job_names))
    if count[job] == np.count_nonzero(view.task_job == job):
        raise ModelError(f"all tasks of job {name!r} run already")
    other = replace(plan, shares=_larger(plan.shares, job, count, limits=plan.priced), given=True)
    found = _warm(rounds, other) or rounds.best_of(other)
    if found is None:
        raise ModelError(f"no round with as many tasks lets job {name!r} run one more")
    return _figures(rounds, found)


def _number(names: tuple[str, ...], name: str, what: str) -> int:
    if name not in names:
        close = ", ".join(get_close_matches(name, names, 3)) or ", ".join(names[:3])
        raise ModelError(f"there is no {what} {name!r}; the nearest are: {close}")
    return names.index(name)


def _larger(shares: Shares, job: int, count: Integers, *, limits: bool) -> Shares:
    """Shares with one GPU more for a job; the others run one fewer in all, unless shares are ``limits``."""
    if limits:
        more = np.zeros_like(shares.least)
        more[job] = 1
        total = shares.group_total.copy()
        total[shares.group[job]] += 1
        return replace(shares, least=shares.least + more, most=shares.most + more, group_total=total)
    least, most = np.maximum(shares.least - 1, 0), shares.most.copy()
    least[job] = most[job] = count[job] + 1
    return replace(shares, least=least, most=most, group=np.zeros_like(shares.group), group_total=count.sum()[None])


def _warm(rounds: Rounds, plan: Round, dropped: int | None = None) -> Leaf | None:
    """The best answer to a changed round from that to the present one; None where that is not certain."""
    now = rounds.best
    if now.outcome.duals is None or now.outcome.duals.dtype != np.int64 or now.plan is not rounds.round:
        return None
    built = rounds.network_of(plan)
    cost = rounds.weighted(built, plan)
    if cost.dtype != np.int64:
        return None
    network = replace(built.shape, cost=cost)
    carried = _carried(now.built, network, now.outcome, None if dropped is None else now.plan.row(dropped))
    if carried is None:
        return None
    flow = repair(network, *carried)
    if flow is None:
        return None
    outcome = Outcome(Status.OPTIMAL, "network", network.total_cost(flow), values=flow)
    leaf = rounds.leaf_of(plan, built, outcome, np.zeros_like(now.stopped))
    return leaf if leaf.unruly() is None else None


def _carried(
    old: AssignmentNetwork, new: FlowNetwork, outcome: Outcome, row: int | None
) -> tuple[Integers, Integers] | None:
    """Flow and potentials of the old network on the new one, which may lack a task and have other pools."""
    shape = old.shape
    nodes, arcs = np.arange(shape.node_count), np.ones(shape.arc_count, bool)
    if row is not None:
        gone = shape.node_blocks["task"].start + row
        nodes[gone:] -= 1
        arcs = (shape.tail != gone) & (shape.head != gone)
    pools = [name for name in ("leave", "pooled", "delay") if name in shape.arc_blocks]
    if shape.arc_blocks.keys() != new.arc_blocks.keys():
        return None
    first = shape.arc_blocks[pools[0]].start if pools else shape.arc_count
    kept = np.flatnonzero(arcs[:first])
    start = new.arc_blocks[pools[0]].start if pools else new.arc_count
    tails, heads = nodes[shape.tail[kept]], nodes[shape.head[kept]]
    if len(kept) != start or (tails != new.tail[:start]).any() or (heads != new.head[:start]).any():
        return None
    values, duals = outcome.values, outcome.duals
    assert values is not None and duals is not None
    flow, potential = np.zeros(new.arc_count, np.int64), np.full(new.node_count, duals[shape.node_blocks["E"].start])
    flow[:start] = values[kept]
    before = np.arange(shape.node_count) if row is None else np.delete(np.arange(shape.node_count), gone)
    last = min(len(before), new.node_count)
    potential[:last] = duals[before[:last]]
    for name in pools:  # of what waits of each job, as much goes to each place as before, if there is one
        a, b = shape.arc_blocks[name], new.arc_blocks[name]
        flow[b.start : b.start + min(a.count, b.count)] = values[a.start : a.start + min(a.count, b.count)]
    return flow, potential
