"""A round as a flow network: common parts of both forms, and the paper's form with one vertex per GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowlex.formulations.engines.beyond_64_bits import fits
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.network_builder import NetworkBuilder
from flowlex.formulations.program_arrays import Integers
from flowlex.models.gpu.round_eligibility import Round
from flowlex.models.gpu.transfer_costs import TransferCosts


@dataclass(frozen=True, eq=False)
class AssignmentNetwork:
    """A network of one round, with the conversion of its flow to an assignment."""

    shape: FlowNetwork  # nodes and arcs; its costs are all zero
    # (A,) transfer cost, alpha for waiting, minus the cost of a stop for tasks that keep running, in integer multiples
    # of ``unit_s`` seconds
    cost: NDArray[Any]
    unit_s: Fraction
    constant: int  # cost of tasks that cannot run, and of stopping all that may stop, in the same units
    # keep, start: arcs on which running tasks continue (in order of `Round.optional`), and on which waiting tasks start
    keep: Integers
    start: Integers
    # Function from (A,) flows to the (C,) GPU of each candidate, -1 for waiting ones
    gpus_of_flow: Callable[[Integers], Integers]

    @cached_property
    def network(self) -> FlowNetwork:
        """The network of least transfer and waiting in seconds; costs beyond 64 bits are rounded."""
        cost, unit = self.cost, self.unit_s
        if not fits(self.shape, cost):
            coarse = int(np.abs(cost).max()) // 2**50 + 1
            cost, unit = (2 * cost.astype(object) + coarse) // (2 * coarse), unit * coarse
        constant = self.unit_s * self.constant
        return replace(self.shape, cost=cost.astype(np.int64), unit=unit, constant=constant)


class RoundBuilder(NetworkBuilder):
    """Network builder with separate arc costs, which may exceed 64 bits."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._costs: list[NDArray[Any]] = []

    def arcs(self, name: str, tail: ArrayLike, head: ArrayLike, *, cost: ArrayLike = 0, **rest: Any) -> Integers:
        """Declare arcs as `NetworkBuilder` does."""
        numbers = super().arcs(name, tail, head, **rest)
        self._costs.append(np.broadcast_to(np.asarray(cost), len(numbers)))
        return numbers

    def costs(self) -> NDArray[Any]:
        """(A,) costs, as Python integers if some are large."""
        return np.concatenate(self._costs)

    def leave_waiting(self, plan: Round, job: Integers, sink: Integers, alpha: int, *, pooled: bool) -> None:
        """Add the unscheduled vertices: bounds on the waiting tasks of each job and of each group of jobs."""
        if plan.shares is None:
            return
        shares, have = plan.shares, plan.candidates_by_job
        must, fair = plan.waiting_by_job
        names = plan.view.job_names
        unscheduled = self.nodes("unscheduled", len(job), labels=names)
        self.arcs("share", job, unscheduled, lower=must, upper=have if plan.priced else fair, cost=alpha, labels=names)
        if not pooled:
            self.arcs("leave", unscheduled, sink, lower=0, upper=fair)
            return
        pool = self.nodes("pool", len(shares.group_total))
        self.arcs("leave", unscheduled, pool[shares.group], upper=fair)
        waiting = plan.waiting_by_group
        self.arcs("pooled", pool, sink, lower=waiting, upper=UNBOUNDED if plan.priced else waiting)
        if plan.priced:
            self.arcs("delay", unscheduled, sink, upper=have)


def constant_of(plan: Round, costs: TransferCosts) -> int:
    """Cost of the tasks that cannot run, and of stopping all that may stop."""
    stops: list[int] = costs.stop[np.concatenate([plan.idle, plan.optional])].tolist()
    return costs.waiting * len(plan.idle) + sum(stops)


def build_paper(plan: Round, costs: TransferCosts) -> AssignmentNetwork:
    """Build the paper's network: S, E; vertices j and u_j per job; one per task; one per free GPU."""
    view, tasks, gpus = plan.view, plan.candidates, plan.free_gpu
    names = np.array(view.task_names, dtype=object)[tasks]
    net = RoundBuilder("gpu-assignment")
    through = len(tasks) if plan.shares is not None else plan.total
    source, sink = net.nodes("S", 1, supply=through), net.nodes("E", 1, supply=-through)
    job = net.nodes("job", len(view.job_names), labels=view.job_names)
    task = net.nodes("task", len(tasks), labels=names)
    gpu_names = np.array(view.gpu_names, dtype=object)[gpus]
    gpu = net.nodes("gpu", len(gpus), labels=gpu_names)
    fits_on = view.task_memory[tasks][:, None] <= view.gpu_memory[gpus]
    fits_on[len(plan.startable) :] = view.task_running_gpu[plan.optional][:, None] == gpus
    row, column = np.nonzero(fits_on)
    cost = costs.dense()[tasks[row], view.gpu_node[gpus[column]]]
    going_on = row >= len(plan.startable)
    cost[going_on] = -costs.stop[tasks[row[going_on]]]
    net.arcs("enter", source, job, upper=plan.candidates_by_job)
    net.arcs("offer", job[view.task_job[tasks]], task, upper=1)
    place = net.arcs("place", task[row], gpu[column], upper=1, cost=cost)
    # If every free GPU is in use, this lower bound fixes the number of running tasks.
    all_used = plan.shares is not None and plan.total == len(gpus) and not plan.priced
    net.arcs("gpu_out", gpu, sink, upper=1, lower=int(all_used), labels=gpu_names)
    # If several groups have remainder GPUs (of fractional shares), each group needs its own total.
    odd = plan.shares is not None and len(np.unique(plan.shares.group[plan.shares.least < plan.shares.most])) > 1
    fixed = all_used or (plan.total == len(tasks) and not plan.priced)
    net.leave_waiting(plan, job, sink, costs.waiting, pooled=odd or not fixed)

    def gpus_of_flow(flow: Integers) -> Integers:
        chosen = flow[place] > 0
        answer = np.full(len(tasks), -1)
        answer[row[chosen]] = gpus[column[chosen]]
        return answer

    keep, start = place[going_on], place[~going_on]
    constant = constant_of(plan, costs)
    return AssignmentNetwork(net.build(), net.costs(), costs.unit_s, constant, keep, start, gpus_of_flow)
