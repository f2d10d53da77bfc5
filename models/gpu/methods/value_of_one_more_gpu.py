"""The value of one more GPU, a larger share, or a task, by solving the changed round.

Duals hold for a fixed number of running tasks. One more GPU lets one more task run, so duals do not give its value.
Solving the changed round gives exact values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from flowlex.formulations.fair_shares import Shares
from flowlex.formulations.language.labels import nearest
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.gpu import Gpu, GpuInstance
from flowlex.models.gpu.methods.rounds import Leaf, Rounds
from flowlex.models.model_base import ModelError


@dataclass(frozen=True)
class Value:
    """Differences between the optimum of the changed round and of the original round.

    Attributes
    ----------
    objective_s
        Seconds of transfer, waiting and lost work; negative if the change saves.
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


def _figures(rounds: Rounds, leaf: Leaf) -> tuple[Fraction, Fraction, int]:
    """Return the objective, transfer and number of running tasks of a solved round."""
    view = leaf.plan.view
    started = (leaf.gpu >= 0) & (view.task_running_gpu < 0)
    transfer = rounds.costs.seconds(np.where(started, view.gpu_node[leaf.gpu], -1))
    running = int(np.count_nonzero(leaf.gpu >= 0))
    waiting = len(leaf.gpu) - running if rounds.policy.fair else 0
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
    names = set(view.gpu_names)
    new = next(label for k in range(len(names) + 1) if (label := f"another GPU {k}") not in names)
    nodes = [
        n.model_copy(update={"gpus": (*n.gpus, Gpu(name=new, memory_gb=memory))}) if n.name == name else n
        for n in instance.nodes
    ]
    return _anew(rounds, instance.model_copy(update={"nodes": tuple(nodes)}))


def _without_task(rounds: Rounds, name: str) -> tuple[Fraction, Fraction, int]:
    instance = rounds.instance
    _number(instance.arrays.task_names, name, "task")
    jobs = [j.model_copy(update={"tasks": tuple(t for t in j.tasks if t.name != name)}) for j in instance.jobs]
    jobs = [job for job in jobs if job.tasks]
    if not jobs:
        return Fraction(0), Fraction(0), 0
    return _anew(rounds, instance.model_copy(update={"jobs": tuple(jobs)}))


def _with_share(rounds: Rounds, name: str) -> tuple[Fraction, Fraction, int]:
    view, plan, leaf = rounds.instance.arrays, rounds.round, rounds.best
    job = _number(view.job_names, name, "job")
    if plan.shares is None:
        raise ModelError(f"policy {plan.policy} knows no shares; ask for the value of a GPU or a task")
    count = np.bincount(view.task_job[leaf.gpu >= 0], minlength=len(view.job_names))
    if count[job] == np.count_nonzero(view.task_job == job):
        raise ModelError(f"all tasks of job {name!r} run already")
    other = replace(plan, shares=_larger(plan.shares, job, count, limits=plan.priced), given=True)
    found = rounds.best_of(other)
    if found is None:
        raise ModelError(f"no round with as many tasks lets job {name!r} run one more")
    return _figures(rounds, found)


def _number(names: tuple[str, ...], name: str, what: str) -> int:
    if name not in names:
        raise ModelError("there is " + nearest(what, name, names))
    return names.index(name)


def _larger(shares: Shares, job: int, count: Integers, *, limits: bool) -> Shares:
    """Give one job a GPU more; the others lose one in total, unless shares are only upper bounds (``limits``)."""
    if limits:
        more = np.zeros_like(shares.least)
        more[job] = 1
        total = shares.group_total.copy()
        total[shares.group[job]] += 1
        return replace(shares, least=shares.least + more, most=shares.most + more, group_total=total)
    least, most = np.maximum(shares.least - 1, 0), shares.most.copy()
    least[job] = most[job] = count[job] + 1
    return replace(shares, least=least, most=most, group=np.zeros_like(shares.group), group_total=count.sum()[None])
