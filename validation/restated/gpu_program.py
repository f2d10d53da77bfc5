r"""GPU assignment stated again from the instance alone: columns, rows and objectives in exact numbers.

Columns: ``x[task, gpu]`` of a waiting task that may start on each GPU of enough memory, and of a running task on its
own; ``share_step[job, k]``, 1 if the job runs at least k tasks; with waiting at a price ``odd[job]``, 1 if a job of a
fractional share runs the next task.

Rows: ``task`` and ``gpu_out`` at most 1; ``stay``: running tasks do (FS, FSU); ``keep``: a job keeps at least
its fair share, rounded down, and never loses its longest-running one; ``order``: the shortest-running stop first;
``share``: a job's steps are its running tasks, or with waiting at a price at most its fair share.

The published network (``network="published"``) has a column for each of its arcs: ``enter[j]`` from S, ``offer[t]``,
``x[t, g]``, ``out[g]`` to E, ``wait[j]`` to u_j and ``leave[j]`` from it, the last two at most ``N_j - A*_j``; flow is
conserved at ``task``, ``gpu_out``, ``job`` and ``unscheduled``; ``flow`` is greatest, then ``transfer`` least.

Objectives in order: ``share_k`` for each step, ``running``, ``transfer`` (with waiting and lost work), ``stops``; with
waiting at a price ``transfer``, ``stops``, ``waiting``.

A round of many pairs is never written out. Of each task only the columns are made that some prices of GPUs can make
the cheapest: of all GPUs that cost it the same, the one of the least price. At these prices and with the multipliers
of ``task`` completed, every column left out has a reduced cost of at least 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from math import ceil, floor
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.formulations.block_labels import label_text
from flowlex.instances import model_changes as variables
from flowlex.instances.exact_rationals import rational
from flowlex.instances.gpu import GpuInstance
from flowlex.instances.model_changes import Changes, Constraint, Cost, Fix, Term
from flowlex.validation.certificates.solution_document import Numeric, Strict
from flowlex.validation.proofs.exact_program import Exact, ExactProgram, Labels, narrow
from flowlex.validation.proofs.program_builder import ProgramBuilder, texts_at
from flowlex.validation.restated.gpu import Costs, GpuColumns

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class PolicyRules(NamedTuple):
    """What a policy demands.

    ``network``: nothing beside shares and running tasks, so that columns of a large round may be left out.
    """

    fair: bool
    preemptive: bool
    network: bool = False


_POLICIES = {
    "FSP": PolicyRules(fair=True, preemptive=True, network=True),
    "FS": PolicyRules(fair=True, preemptive=False, network=True),
    "FSU": PolicyRules(fair=False, preemptive=False, network=True),
}


class _Penalties(Strict):
    type: Literal["Penalties"] = "Penalties"
    rack: Numeric = 1.0
    between_racks: Numeric = 1.0
    waiting: Numeric = 1.0


class GpuOptions(Strict):
    """GPU assignment."""

    policy: Literal["FSP", "FS", "FSU"] = "FSP"
    network: Literal["compact", "paper", "published"] = "compact"
    penalties: _Penalties = Field(default_factory=_Penalties)
    stop_price: Numeric = 0.0
    waiting: Literal["least", "priced"] = "least"
    stage: Literal["transfer", "stops", "waiting"] = "transfer"


class RoundOptions(NamedTuple):
    """Policy, weights a1 to a3, whether waiting has a price, price of lost work, whether the network is as printed."""

    policy: PolicyRules
    weights: tuple[Fraction, Fraction, Fraction]
    priced: bool
    stop_price: Fraction
    published: bool

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> RoundOptions:
        """Read the options of a solution file; `ValueError` names what is wrong."""
        policy, waiting = _POLICIES[options.get("policy", "FSP")], options.get("waiting", "least")
        if waiting not in ("least", "priced") or (waiting == "priced" and not policy.fair):
            raise ValueError(f"waiting must be 'least', or with fair shares 'priced', got {waiting!r}")
        penalties = options.get("penalties", {})
        a1, a2, a3 = (rational(penalties.get(name, 1)) for name in ("rack", "between_racks", "waiting"))
        if min(a1, a2, a3) < 0:
            raise ValueError("penalties must not be negative")
        stop_price = rational(options.get("stop_price", 0))
        if stop_price < 0 or (stop_price and not policy.preemptive):
            raise ValueError(f"stop_price must be at least 0, and 0 where no task may stop, got {stop_price}")
        published = options.get("network") == "published"
        if published and (stop_price or waiting == "priced" or not policy.network):
            raise ValueError("the published network has neither stop_price nor waiting='priced' nor other policies")
        return cls(policy, (a1, a2, a3), waiting == "priced", stop_price, published)


def fair_levels(view: GpuColumns, held: Mask, asking: Mask) -> list[Fraction]:
    """Max-min fair shares if GPUs could be split: tasks of ``held`` keep theirs, tasks of ``asking`` want one.

    A job uses its least demanding tasks first; a running task asks for a GPU like its own. The lowest levels rise
    together. A job stops when it has all it asks for, or when all GPUs from some memory up, which its next task needs,
    are used.
    """
    free = np.ones(len(view.gpu_memory), bool)
    free[view.task_running_gpu[held]] = False
    memory, supply = np.unique(view.gpu_memory[free], return_counts=True)
    need = np.where(view.task_running_gpu >= 0, view.gpu_memory[view.task_running_gpu], view.task_memory)
    wanted = np.searchsorted(memory, need)
    asks: list[list[int]] = [[] for _ in view.job_names]
    for t in np.flatnonzero(asking & (wanted < len(memory))).tolist():
        asks[view.task_job[t]].append(int(wanted[t]))
    have = np.bincount(view.task_job[held], minlength=len(asks)).tolist()
    asks = [sorted(mine) for mine in asks]
    spare: list[Any] = [int(supply[c:].sum()) for c in range(len(memory))]
    level: list[Any] = have.copy()
    rising = {j for j, mine in enumerate(asks) if mine}

    def may_rise(j: int) -> bool:
        own = floor(level[j]) - have[j]
        return own < len(asks[j]) and all(left > 0 for left in spare[: asks[j][own] + 1])

    while rising := {j for j in rising if may_rise(j)}:
        water = min(level[j] for j in rising)
        moving = [j for j in rising if level[j] == water]
        at = [asks[j][floor(water) - have[j]] for j in moving]
        rate = [sum(c <= mine for mine in at) for c in range(len(memory))]
        rise = floor(water) + 1 - water
        if later := [level[j] - water for j in rising if level[j] > water]:
            rise = min(rise, *later)
        if any(rise * n > left for left, n in zip(spare, rate, strict=True)):
            rise = min(Fraction(left) / n for left, n in zip(spare, rate, strict=True) if n)
        spare = [left - rise * n for left, n in zip(spare, rate, strict=True)]
        for j in moving:
            level[j] = water + rise
    return [Fraction(x) for x in level]


@dataclass(frozen=True, eq=False)
class GpuRound:
    """A round: what its policy makes of the instance, from which the program follows."""

    instance: GpuInstance
    options: RoundOptions
    view: GpuColumns
    costs: Costs

    @classmethod
    def of(cls, instance: GpuInstance, options: Mapping[str, Any]) -> GpuRound:
        """Read instance and options; `ValueError` names an option that is wrong."""
        read, view = RoundOptions.read(options), GpuColumns.of(instance)
        return cls(instance, read, view, Costs.read(instance, view, read.weights, read.stop_price))

    @cached_property
    def held(self) -> Mask:
        """(T,) running tasks."""
        running: Mask = self.view.task_running_gpu >= 0
        return running

    @cached_property
    def levels(self) -> list[Fraction]:
        """The fair share of each job, over running and waiting tasks (without preemption: above those it runs)."""
        if self.options.published:
            return [Fraction(n) for n in self.base.tolist()]
        kept = self.held & (not self.options.policy.preemptive)
        return fair_levels(self.view, kept, ~kept)

    @cached_property
    def base(self) -> Ints:
        """(J,) A*: ``min(floor(Q / K), N_j)`` for Q GPUs and K jobs."""
        each = len(self.view.gpu_names) // len(self.view.job_names)
        return np.minimum(each, self.counts(np.ones(len(self.view.task_names), bool)))

    @cached_property
    def stays(self) -> Mask:
        """(T,) running tasks that the published network keeps: all, or with preemption the A* longest of each job."""
        if not self.options.policy.preemptive:
            return self.held
        stays, left = np.zeros(len(self.held), bool), self.base.tolist()
        for t in sorted(np.flatnonzero(self.held).tolist(), key=lambda t: -float(self.view.task_elapsed[t])):
            stays[t] = left[self.view.task_job[t]] > 0
            left[self.view.task_job[t]] -= 1
        return stays

    @cached_property
    def least(self) -> Ints:
        """(J,) running tasks that each job keeps."""
        count = self.counts(self.held)
        if not self.options.policy.preemptive:
            return count
        must = [max(floor(x), int(x > 0)) for x in self.levels]
        return np.minimum(count, np.array(must, np.int64))

    @cached_property
    def starts(self) -> Mask:
        """(T,) waiting tasks that may start: not of jobs that run more than their share."""
        if self.options.published or not self.options.policy.preemptive:
            return ~self.held
        above = self.counts(self.held) > np.array([floor(x) for x in self.levels], np.int64)
        return ~self.held & ~above[self.view.task_job]

    @cached_property
    def limits(self) -> tuple[list[Fraction], list[int]]:
        """With waiting at a price: the share of each job, and (J,) its group of odd GPUs (-1: none).

        Tasks that run longer than all that may stop keep their GPUs.
        """
        view, sure = self.view, self.held.copy()
        if self.options.policy.preemptive:
            for j, keeps in enumerate(self.least.tolist()):
                mine = np.flatnonzero(self.held & (view.task_job == j))
                may = len(mine) - keeps
                if may:
                    sure[mine] = view.task_elapsed[mine] > np.sort(view.task_elapsed[mine])[may - 1]
        level = fair_levels(view, sure, self.starts | (self.held & ~sure))
        return level, [ceil(x) if x.denominator > 1 else -1 for x in level]

    def counts(self, chosen: Mask) -> Ints:
        """(J,) chosen tasks of each job."""
        return np.bincount(self.view.task_job[chosen], minlength=len(self.view.job_names)).astype(np.int64)

    def may(self, task: Ints, gpu: Ints) -> Mask:
        """Whether tasks may run on GPUs: the columns ``x``."""
        view, fits = self.view, self.view.task_memory[task] <= self.view.gpu_memory[gpu]
        return np.where(self.held[task], view.task_running_gpu[task] == gpu, self.starts[task] & fits)

    @cached_property
    def pair_count(self) -> int:
        """Number of columns ``x``."""
        memory = np.sort(self.view.gpu_memory)
        return int((len(memory) - np.searchsorted(memory, self.view.task_memory[self.starts])).sum() + self.held.sum())

    def all_pairs(self) -> tuple[Ints, Ints]:
        """Tasks and GPUs of all columns ``x``, by task."""
        view = self.view
        fits = self.starts[:, None] & (view.task_memory[:, None] <= view.gpu_memory[None, :])
        fits[self.held, view.task_running_gpu[self.held]] = True
        task, gpu = np.nonzero(fits)
        return task.astype(np.int64), gpu.astype(np.int64)

    def pairs_at(
        self, prices: Iterable[NDArray[Any]], also: tuple[Ints, Ints], apart: Sequence[tuple[Mask, Ints]] = ()
    ) -> tuple[Ints, Ints]:
        """Tasks and GPUs of the columns that can be the cheapest at some (G,) prices, and of others, by task.

        ``apart``: (T,) tasks, and (G,) a number that differs for GPUs between which rules tell them apart.
        """
        view, gpus = self.view, len(self.view.gpu_names)
        held = np.flatnonzero(self.held)
        keys = [held * gpus + view.task_running_gpu[held], also[0] * gpus + also[1]]
        tasks = np.flatnonzero(self.starts)
        rack_of, nodes = view.node_rack[view.gpu_node], len(view.node_rack)
        _, (rack_key, _), (node_key, _) = self.costs.tiers
        if not self.costs.nearer_is_cheaper:
            node_key = (tasks[:, None] * nodes + np.arange(nodes)).ravel()
        racks = len(view.rack_names)
        places = [
            (np.zeros_like(view.gpu_node), tasks, np.zeros_like(tasks)),
            (rack_of, rack_key // racks, rack_key % racks),
            (view.gpu_node, node_key // nodes, node_key % nodes),
        ]
        ranks = {rank.tobytes(): rank for rank in (np.unique(p, return_inverse=True)[1] for p in prices)}
        for chosen, code in apart or ((self.starts, np.zeros(gpus, np.int64)),):
            every = np.arange(int(code.max()) + 1)
            for rank, (place, task, where) in product(ranks.values(), places):
                mine = self.starts[task] & chosen[task]
                each = np.repeat(task[mine], len(every))
                spot = (where[mine][:, None] * len(every) + every).ravel()
                at, gpu = _cheapest(place * len(every) + code, view.gpu_memory, rank, spot, view.task_memory[each])
                keys.append(each[at] * gpus + gpu)
        key = np.sort(np.concatenate(keys))  # `np.unique` would look each up in a table that no cache holds
        task, gpu = np.divmod(key[np.append(True, key[1:] != key[:-1])[: len(key)]], gpus)
        return task, gpu

    def program(self, task: Ints, gpu: Ints) -> ExactProgram:
        """The program over the columns of these pairs, sorted by task."""
        made = _Program(self, task, gpu)
        return made.published() if self.options.published else made.build()


class GpuSelections:
    """What the changes of a round tell apart.

    Attributes
    ----------
    apart
        (T,) tasks that the same changes select, and (G,) a number that differs for GPUs that these treat differently.
    bounded
        (2, n) tasks and GPUs of the columns with another lower bound than 0.
    """

    def __init__(self, instance: GpuInstance, of: GpuRound, changes: Changes) -> None:
        view, nodes = of.view, instance.nodes
        where = view.gpu_node.tolist()
        self._of_task = {"task": view.task_names, "job": [view.job_names[j] for j in view.task_job.tolist()]}
        self._of_gpu = {"gpu": view.gpu_names, "node": [nodes[n].name for n in where],
                        "rack": [nodes[n].rack for n in where]}  # fmt: skip
        masks, codes = [], []
        fixed = np.zeros((2, 0), np.int64)
        for change in changes:
            terms: tuple[Term, ...] = ()
            if isinstance(change, (Constraint, Cost)):
                terms = change.terms
            elif isinstance(change, (Fix, variables.Bounds)):
                terms = (change.variables,)
            for term in (term for term in terms if term.variable == "x"):
                masks.append(self._chosen(term, self._of_task))
                code = self._chosen(term, self._of_gpu).astype(np.int64)
                for level in (level for level in term.by if level in self._of_gpu):
                    _, place = np.unique(np.array(self._of_gpu[level], object), return_inverse=True)
                    code = np.where(code > 0, code * (len(code) + 1) + place + 1, 0)
                codes.append(code)
                low = change.value if isinstance(change, Fix) else getattr(change, "lower", None)
                if low:
                    both = np.flatnonzero(masks[-1]), np.flatnonzero(code)
                    if len(both[0]) * len(both[1]) > _MOST_FIXED:
                        raise ValueError(f"a change fixes more than {_MOST_FIXED} pairs of tasks and GPUs")
                    fixed = np.append(fixed, np.array(np.meshgrid(*both)).reshape(2, -1), axis=1)
        self.bounded: Ints = fixed[:, of.may(*fixed)]
        self.apart: list[tuple[Mask, Ints]] = []
        sets, member = np.unique(np.array(masks, bool).reshape(-1, len(view.task_names)), axis=1, return_inverse=True)
        for k in range(sets.shape[1]):
            joint = np.zeros(len(view.gpu_names), np.int64)
            for used, code in zip(sets[:, k].tolist(), codes, strict=True):
                if used:
                    _, joint = np.unique(joint * (int(code.max()) + 1) + code, return_inverse=True)
            self.apart.append((member.reshape(-1) == k, joint.astype(np.int64)))

    @staticmethod
    def _chosen(term: Term, labels: Mapping[str, Sequence[str]]) -> Mask:
        """Members with the labels that a term asks for."""
        found = np.ones(len(next(iter(labels.values()))), bool)
        for level, wanted in term.where.items():
            if level in labels:
                these = wanted if isinstance(wanted, tuple) else (wanted,)
                found &= np.array([label in these for label in labels[level]], bool)
        return found


#: Most pairs with a lower bound of their own.
_MOST_FIXED = 1_000_000


def _cheapest(place: Ints, memory: NDArray[np.float64], rank: Ints, where: Ints, need: NDArray[np.float64]) -> Any:
    """Positions of queries (place, memory) that some GPU there satisfies, and the GPU of the least rank for each."""
    classes = np.unique(memory)
    key = place * len(classes) + len(classes) - 1 - np.searchsorted(classes, memory)  # the largest of a place first
    order = np.lexsort((rank, key))
    size, values = len(rank), int(rank.max(initial=0)) + 1
    # Running minimum of rank and GPU within each place: places are counted down, so that each begins below the last.
    code = rank[order] * size + order
    shift = place[order] * (values * size)
    best = (np.minimum.accumulate(code - shift) + shift) % size
    at = np.searchsorted(
        key[order], where * len(classes) + len(classes) - 1 - np.searchsorted(classes, need), side="right"
    )
    there = (at > 0) & (need <= memory.max(initial=0))
    hit = np.flatnonzero(there)
    hit = hit[place[order][at[hit] - 1] == where[hit]]
    return hit, best[at[hit] - 1]


class _Program:
    """The program while it is made."""

    def __init__(self, of: GpuRound, task: Ints, gpu: Ints) -> None:
        self.of, self.task, self.gpu, self.view = of, task, gpu, of.view
        self.x, self.job = np.arange(len(task)), of.view.task_job[task]
        self.to = ProgramBuilder()
        self.to.columns("x", lambda: list(self._levels()), len(task), texts=self._texts)

    def build(self) -> ExactProgram:
        of, view, x, to, job = self.of, self.view, self.x, self.to, self.job
        new = np.append(True, self.task[1:] != self.task[:-1])[: len(self.task)]  # pairs are sorted by task
        some, of_task = self.task[new], np.cumsum(new) - 1
        to.rows("task", "<=", texts_at((view.task_names, some)), 1, (of_task, x, 1))
        to.rows("gpu_out", "<=", view.gpu_names, 1, (self.gpu, x, 1))
        held = np.flatnonzero(of.held[self.task])
        if not of.options.policy.preemptive:
            to.rows("stay", "==", texts_at((view.task_names, self.task[held])), 1, (np.arange(len(held)), held, 1))
        else:
            mine, of_job = np.unique(job[held], return_inverse=True)
            to.rows("keep", ">=", texts_at((view.job_names, mine)), of.least[mine], (of_job, held, 1))
            self._order(held)
        if of.options.priced:
            self._limits()
        elif of.options.policy.fair:
            self._steps()
        if not of.options.priced:
            to.objective("running", (x, 1), maximize=True)
        self._transfer(held)
        if of.options.policy.preemptive and len(held):
            to.objective("stops", (held, -1), constant=Exact(np.array([len(held)])))
        if of.options.priced:
            waits = np.flatnonzero(~of.held[self.task])
            to.objective("waiting", (waits, -1), constant=Exact(np.array([np.count_nonzero(~of.held)])))
        return to.program()

    def published(self) -> ExactProgram:
        of, view, x, to = self.of, self.view, self.x, self.to
        jobs, tasks, gpus = view.job_names, view.task_names, view.gpu_names
        of_task = [{"task": t, "job": jobs[j]} for t, j in zip(tasks, view.task_job.tolist(), strict=True)]
        count, fair = of.counts(np.ones(len(tasks), bool)), of.options.policy.fair
        room = count - np.maximum(of.base, of.counts(of.stays)) if fair else count[:0]

        def arcs(name: str, level: str, labels: Sequence[Labels], most: Any) -> Ints:
            start = to.columns(name, labels, keys=(level,), upper=most)
            return start + np.arange(len(labels))

        enter = arcs("enter", "job", [{"job": j} for j in jobs], count)
        offer, out = arcs("offer", "task", of_task, 1), arcs("out", "gpu", [{"gpu": g} for g in gpus], 1)
        of_job = [{"job": j} for j in jobs[: len(room)]]
        wait, leave = (arcs(n, "job", of_job, room) if fair else room for n in ("wait", "leave"))
        each, here, there, two = np.arange(len(jobs)), np.arange(len(tasks)), np.arange(len(gpus)), np.arange(len(room))
        to.rows("task", "==", tasks, 0, (here, offer, 1), (self.task, x, -1))
        to.rows("gpu_out", "==", gpus, 0, (self.gpu, x, 1), (there, out, -1))
        to.rows("job", "==", jobs, 0, (each, enter, 1), (np.append(view.task_job, two), np.append(offer, wait), -1))
        to.rows("unscheduled", "==", jobs[: len(room)], 0, (two, wait, 1), (two, leave, -1))
        stays = np.flatnonzero(of.stays[self.task])
        to.rows("stay", "==", texts_at((tasks, self.task[stays])), 1, (np.arange(len(stays)), stays, 1))
        costs = of.costs
        price = np.where(of.held[self.task], 0, costs.of_pairs(self.task, view.gpu_node[self.gpu]))
        to.objective("flow", (enter, 1), maximize=True)
        to.objective("transfer", (x, Exact(price, costs.unit_s)), (np.append(wait, leave), costs.waiting_s))
        return to.program()

    def _texts(self) -> list[str]:
        return texts_at((self.view.task_names, self.task), (self.view.gpu_names, self.gpu))

    def _levels(self) -> Iterator[dict[str, Any]]:
        view, nodes = self.view, self.of.instance.nodes
        for t, g in zip(self.task.tolist(), self.gpu.tolist(), strict=True):
            node = nodes[int(view.gpu_node[g])]
            yield {"task": view.task_names[t], "gpu": view.gpu_names[g], "job": view.job_names[view.task_job[t]],
                   "node": node.name, "rack": node.rack}  # fmt: skip

    def _order(self, held: Ints) -> None:
        """A running task continues if one of its job of the next shorter elapsed time does."""
        view = self.view
        at = dict(zip(self.task[held].tolist(), held.tolist(), strict=True))
        for j in np.unique(view.task_job[self.task[held]]).tolist():
            mine = [t for t in at if view.task_job[t] == j]
            for low, high in pairwise(sorted({float(view.task_elapsed[t]) for t in mine})):
                for a in (t for t in mine if view.task_elapsed[t] == high):
                    for b in (t for t in mine if view.task_elapsed[t] == low):
                        label = label_text((view.task_names[a], view.task_names[b]))
                        self.to.row("order", label, {at[a]: 1, at[b]: -1}, ">=", 0)

    def _steps(self) -> None:
        """The steps of jobs, the rows that count them, and an objective for each step."""
        view, to = self.view, self.to
        most = np.minimum(np.bincount(view.task_job, minlength=len(view.job_names)), len(view.gpu_names))
        of_job = np.repeat(np.arange(len(most)), most)
        step = np.concatenate([np.arange(1, n + 1) for n in most.tolist()])

        def labels() -> list[dict[str, Any]]:
            return [{"job": view.job_names[j], "step": k} for j, k in zip(of_job.tolist(), step.tolist(), strict=True)]

        start = to.columns("share_step", labels, len(step))
        y = start + np.arange(len(step))
        to.rows("share", "==", view.job_names, 0, (self.job, self.x, 1), (of_job, y, -1))
        by_step, end = y[np.argsort(step, kind="stable")], np.cumsum(np.bincount(step)).tolist()
        names = [f"share_{k}" for k in range(1, len(end))]
        to.counts(names, [by_step[end[k - 1] : end[k]] for k in range(1, len(end))])

    def _limits(self) -> None:
        """With waiting at a price: at most the fair share, and of each group as many odd tasks as fractions sum to."""
        view, to, (level, group) = self.view, self.to, self.of.limits
        odd = [j for j, g in enumerate(group) if g >= 0]
        y = to.columns("odd", [{"job": view.job_names[j]} for j in odd]) + np.arange(len(odd))
        whole = [floor(v) for v in level]
        to.rows("share", "<=", view.job_names, whole, (self.job, self.x, 1), (np.array(odd, np.int64), y, -1))
        groups = sorted({group[j] for j in odd})
        sums = [int(sum(level[j] - whole[j] for j in odd if group[j] == g)) for g in groups]
        of_group = np.array([groups.index(group[j]) for j in odd], np.int64)
        to.rows("odd", "<=", [str(g) for g in groups], sums, (of_group, y, 1))

    def _transfer(self, held: Ints) -> None:
        """Seconds of transfer, of waiting (with fair shares), and of lost work."""
        of, view, costs = self.of, self.view, self.of.costs
        waiting = costs.waiting_s if of.options.policy.fair else Fraction(0)
        stops = [int(costs.stop_s[t] / costs.unit_s) for t in self.task[held].tolist()]
        value = costs.of_pairs(self.task, view.gpu_node[self.gpu])
        wait = int(waiting / costs.unit_s)
        if max(map(abs, [wait, *stops]), default=0) >= 2**60:
            value = value.astype(object)
        value[held] = [-s for s in stops]
        constant = Exact(narrow([wait * len(view.task_names) + sum(stops)]), costs.unit_s)
        # Columns that are not made have multiples of the same unit.
        step = 0 if len(self.x) == of.pair_count else 1
        self.to.objective("transfer", (self.x, Exact(value - wait, costs.unit_s)), constant=constant, step=step)
