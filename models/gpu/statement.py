r"""GPU assignment, stated once in the language: every policy, waiting at a price, and the published network.

``x[t,g]`` is 1 if task t runs on GPU g. It exists for a waiting task that may start on every GPU with enough memory,
and for a running task on its own GPU. The parts below are shared by all variants.

`state` is ours: fair shares first, then as many running tasks as possible, then least transfer. ``share_step[j,s]`` is
1 if job j runs at least s tasks; for s = 1, 2, ... as many jobs as possible run s tasks, so that the sorted vector of
tasks by job is lexicographically largest. With waiting at a price a job runs at most its fair share.

`state_published` is the network of the paper, arc by arc, with a price alpha on both arcs of a waiting task.

Source: Tang, Zhu, Mao, Fu, Li, Journal of Software 33(12), 2022. It numbers no equations: its edges stand in the
section on the flow network, shares and stops in algorithm 2 and the section on policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.gpu import GpuArrays
from flowlex.models.gpu.round_eligibility import Round, base_shares
from flowlex.models.gpu.transfer_costs import TransferCosts
from flowlex.models.solution import ModelError

if TYPE_CHECKING:
    from flowlex.formulations.language.expressions import Expression
    from flowlex.models.problem import Problem

#: Rows that no change may drop, and why.
NEEDED = {
    "task": "a task would run several times",
    "gpu_out": "a GPU would run several tasks at once",
    "stay": "running tasks would be lost without being stopped",
}
#: Names of all rows, in some variant.
ROWS = frozenset({*NEEDED, "keep", "order", "share", "odd", "job", "unscheduled"})
#: Numbers of pairs up to which a changed round is always solved by pairs, and beyond which it never is.
SMALL, LARGEST = 20_000, 2_000_000
#: Numbers up to here are exact in a program.
_EXACT = 2**53


def pair_count(plan: Round) -> int:
    """Number of variables ``x``."""
    view, may = plan.view, plan.may_start
    small = np.searchsorted(np.sort(view.gpu_memory), view.task_memory[may])
    return int((len(view.gpu_memory) - small).sum() + (view.task_running_gpu >= 0).sum())


def pairs_of(plan: Round) -> tuple[Integers, Integers]:
    """Tasks and GPUs of the variables ``x``, sorted by task."""
    view = plan.view
    fits = (view.task_memory[:, None] <= view.gpu_memory[None, :]) & plan.may_start[:, None]
    held = np.flatnonzero(view.task_running_gpu >= 0)
    fits[held, view.task_running_gpu[held]] = True
    task, gpu = np.nonzero(fits)
    return task.astype(np.int64), gpu.astype(np.int64)


def state(p: Problem, plan: Round, costs: TransferCosts, pairs: tuple[Integers, Integers] | None = None) -> None:
    """State a round.

    Parameters
    ----------
    p
        The problem to state.
    plan
        What the policy makes of the instance.
    costs
        Seconds of transfer, of waiting and of lost work.
    pairs
        Tasks and GPUs of the variables; default: all.

    Raises
    ------
    ModelError
        The costs have no common unit that is exact in a program.
    """
    view = plan.view
    task, gpu = pairs_of(plan) if pairs is None else pairs
    sets(p, view)
    x = p.variables("x", over=pair_table(view, task, gpu), binary=True, words="a task runs on a GPU")
    p.constrain("task", x.sum(by="task") <= 1, words="a task runs at most once (capacity of j -> t)")
    p.constrain(
        "gpu_out",
        x.sum(by="gpu") <= 1,
        words="a GPU runs at most one task (capacity of g -> E)",
        dual="price of a GPU at a fixed total: what another one there would save if no more tasks ran [s]",
    )
    runs = x.sum(by="task").sel(task=held_names(view)) if (view.task_running_gpu >= 0).any() else None
    running_tasks(p, plan, x, runs)
    fair_shares(p, plan, x.sum(by="job"))
    if not plan.priced:
        p.maximize("running", x.sum(), words="running tasks")
    minimise_costs(p, plan, costs, transfer(p, costs, x, task, gpu), x.sum(), runs)
    if plan.priced:
        waiting = [view.task_names[t] for t in np.flatnonzero(view.task_running_gpu < 0).tolist()]
        p.minimize("waiting", len(waiting) - x.sel(task=waiting).sum(), words="tasks that still wait")


def sets(p: Problem, view: GpuArrays) -> None:
    """Declare tasks, GPUs, jobs, nodes and racks."""
    for level, names in (("task", view.task_names), ("gpu", view.gpu_names), ("job", view.job_names),
                         ("node", view.node_names), ("rack", view.rack_names)):  # fmt: skip
        p.set(level, names, words="GPUs" if level == "gpu" else f"{level}s")


def pair_table(view: GpuArrays, task: Integers, gpu: Integers, **keys: Any) -> Any:
    """Pairs by task and GPU, with job, node and rack; ``keys``: labels of further levels that tell members apart."""
    import pandas as pd

    node = view.gpu_node[gpu]
    names = [*zip((task, gpu), (view.task_names, view.gpu_names), ("task", "gpu"), strict=True)]
    levels: list[Any] = [pd.Index(labels, dtype=object) for _, labels, _ in names]
    index = pd.MultiIndex(levels=levels, codes=[codes.tolist() for codes, *_ in names], names=[n for *_, n in names])
    follow = ((view.task_job[task], view.job_names), (node, view.node_names), (view.node_rack[node], view.rack_names))
    columns = {
        level: np.array(labels, object)[code]
        for level, (code, labels) in zip(("job", "node", "rack"), follow, strict=True)
    }
    table = pd.DataFrame(columns, index=index).assign(**keys)
    return table.set_index(list(keys), append=True) if keys else table


def by_label(labels: Any, values: Any, level: str) -> Any:
    """Values by the labels of a level."""
    import pandas as pd

    return pd.Series(values, pd.Index(labels, name=level, dtype=object))


def held_names(view: GpuArrays) -> list[str]:
    """Names of the running tasks."""
    return [view.task_names[t] for t in np.flatnonzero(view.task_running_gpu >= 0).tolist()]


def running_tasks(p: Problem, plan: Round, x: Expression, runs: Expression | None) -> None:
    """Running tasks stay; with preemption a job loses so many at most, and the shortest-running first.

    ``x``: of tasks and GPUs; ``runs``: of each running task whether it continues; None: there is none.
    """
    import pandas as pd

    if runs is None:
        return
    view = plan.view
    if not plan.policy.preemptive:
        p.constrain("stay", runs == 1, words="running tasks stay")
        return
    held = np.flatnonzero(view.task_running_gpu >= 0)
    count = np.bincount(view.task_job[held], minlength=len(view.job_names))
    jobs = [view.job_names[j] for j in np.flatnonzero(count).tolist()]
    least = by_label(jobs, (count - plan.stoppable)[count > 0], "job")
    keeps = p.data("m", least, words="running tasks that a job keeps: its fair share, and at least one")
    kept = x.sel(task=held_names(view)).sum(by="job").sel(job=jobs)
    p.constrain("keep", kept >= keeps, words="a job loses no more running tasks than it is above its fair share")
    pairs = list(order_pairs(view))
    if pairs:
        names = np.array(view.task_names, object)[np.array(pairs)]
        table = pd.DataFrame({"longer": names[:, 0], "shorter": names[:, 1]})
        gap = runs.at(table, task="longer") - runs.at(table, task="shorter")
        p.constrain("order", gap >= 0, words="the shortest-running tasks of a job stop first")


def order_pairs(view: GpuArrays) -> Iterator[tuple[int, int]]:
    """Pairs of running tasks of a job: the first has the next longer elapsed time after the second."""
    held = np.flatnonzero(view.task_running_gpu >= 0)
    for job in np.unique(view.task_job[held]).tolist():
        mine = held[view.task_job[held] == job]
        elapsed = view.task_elapsed[mine]
        for low, high in pairwise(np.unique(elapsed).tolist()):
            yield from ((a, b) for a in mine[elapsed == high].tolist() for b in mine[elapsed == low].tolist())


def fair_shares(p: Problem, plan: Round, by_job: Expression) -> None:
    """Fair shares first; with waiting at a price a job runs at most its share. ``by_job``: tasks that each job runs."""
    import pandas as pd

    view, shares = plan.view, plan.shares
    if not plan.policy.fair:
        return
    if plan.priced:
        assert shares is not None
        odd = shares.least < shares.most
        floor = by_label(view.job_names, shares.least, "job")
        limit = p.data(r"\underline{A}", floor, words="fair share of a job, rounded down")
        if odd.any():
            jobs = pd.Index(np.array(view.job_names, object)[odd], name="job", dtype=object)
            of_level = pd.DataFrame({"level": shares.most[odd]}, index=jobs)
            more = p.variables(
                "odd", over=of_level, binary=True, words="a job of a fractional share runs one task more"
            )
            limit = limit + more.reindex(pd.Index(view.job_names, name="job", dtype=object))
            tops = np.unique(shares.most[odd])
            mine = [odd & (shares.most == top) for top in tops]
            spare = [int(shares.group_total[shares.group[m][0]] - shares.least[m].sum()) for m in mine]
            fractions = p.data(
                "o", pd.Series(spare, pd.Index(tops, name="level")), words="GPUs that fractions add up to"
            )
            p.constrain("odd", more.sum(by="level") <= fractions, words="as many as the fractions of a level add up to")
        p.constrain("share", by_job <= limit, words="a job runs at most its fair share", dual=_SHARE)
        return
    most = np.minimum(np.bincount(view.task_job, minlength=len(view.job_names)), len(view.gpu_names))
    steps = range(1, int(most.max(initial=0)) + 1)
    p.set("step", steps, words="numbers of tasks")
    job = np.repeat(np.arange(len(most)), most)
    step = np.arange(len(job)) - np.repeat(np.cumsum(most) - most, most)
    levels: list[Any] = [pd.Index(view.job_names, dtype=object), pd.Index(steps)]
    index = pd.MultiIndex(levels=levels, codes=[job.tolist(), step.tolist()], names=["job", "step"])
    y = p.variables("share_step", over=index, binary=True, words="a job runs at least so many tasks")
    p.constrain("share", by_job == y.sum(by="job"), words="a job has as many steps as running tasks", dual=_SHARE)
    p.maximize_in_order("share", y.sum(by="step"), words="fair shares: jobs that run at least so many tasks")


_SHARE = "price of a share at a fixed total: what one GPU more for this job, taken from others, costs at least [s]"


def transfer(p: Problem, costs: TransferCosts, x: Expression, task: Integers, gpu: Integers) -> Expression:
    """Seconds of transfer of tasks that start on GPUs, in the order of the variables ``x``."""
    import pandas as pd

    view = costs.view
    units = np.where(view.task_running_gpu[task] < 0, costs.dense()[task, view.gpu_node[gpu]], 0)
    if np.abs(units).max(initial=0) * (len(view.task_names) + 1) >= _EXACT:
        raise ModelError(_NO_UNIT)
    words = "seconds to bring the data of a task to a GPU, each shard from its nearest replica"
    c = p.data("c", pd.Series(units.astype(np.int64), x.index.to_pandas()), unit="s", words=words, scale=costs.unit_s)
    return (x * c).sum()


_NO_UNIT = "transfer costs have no common unit that is exact in a program; write sizes with fewer digits"


def minimise_costs(
    p: Problem, plan: Round, costs: TransferCosts, seconds: Expression, all_runs: Expression, runs: Expression | None
) -> None:
    """Least transfer with the costs of waiting (in fair rounds) and of lost work; then fewest stops."""
    view = plan.view
    if plan.policy.fair:
        alpha = p.data(r"\alpha", costs.waiting_s, unit="s", words="price of a waiting task")
        seconds = seconds + (len(view.task_names) - all_runs) * alpha
    if runs is not None and any(costs.stop_s):
        held = np.flatnonzero(view.task_running_gpu >= 0)
        price = by_label(held_names(view), [costs.stop_s[t] for t in held.tolist()], "task")
        lost = p.data("b", price, unit="s", words="price of a stop: beta times the seconds that a task has run")
        seconds = seconds + ((1 - runs) * lost).sum()
    p.minimize("transfer", seconds, unit="s", words="seconds of transfer, waiting and lost work")
    made = p.objectives[-1]
    largest = max(float(np.abs(made.values).max(initial=0)) * (len(view.task_names) + 1), abs(made.constant))
    if made.unit is None or largest >= _EXACT:
        raise ModelError(_NO_UNIT)
    if runs is not None and plan.policy.preemptive:
        p.minimize("stops", (1 - runs).sum(), words="running tasks that stop")


def state_published(
    p: Problem, plan: Round, costs: TransferCosts, pairs: tuple[Integers, Integers] | None = None
) -> None:
    r"""State the network as the paper prints it: a variable for each arc, within its capacity.

    ``S -> j`` (``enter``, at most N_j), ``j -> t`` (``offer``), ``t -> g`` (``x``, at cost c_tg if t fits), ``g -> E``
    (``out``), ``j -> u_j`` and ``u_j -> E`` (``wait``, ``leave``, at most N_j - A*_j, each at cost alpha), with
    A*_j = min(floor(Q / K), N_j) for Q GPUs and K jobs. The answer is a minimum-cost *maximum* flow. So every job runs
    at least A*_j tasks if they fit, and a further GPU is used only where its transfer costs at most 2 alpha: so
    the paper delays tasks.

    Of running tasks the paper prints no arcs. Reconstructed: they have an arc of cost 0 to their own GPU. Without
    preemption all of them stay; with it (FSP) the A*_j longest-running ones of a job do. Without fairness (FSU) no job
    has a vertex u_j.
    """
    import pandas as pd

    view = plan.view
    task, gpu = pairs_of(plan) if pairs is None else pairs
    sets(p, view)
    jobs = list(view.job_names)
    count = np.bincount(view.task_job, minlength=len(jobs))
    tasks = pd.DataFrame(
        {"job": np.array(view.job_names, object)[view.task_job]},
        index=pd.Index(view.task_names, name="task", dtype=object),
    )
    enter = p.variables("enter", job=jobs, upper=count, integer=True, words="S -> j: at most the tasks of a job")
    offer = p.variables("offer", over=tasks, binary=True, words="j -> t")
    x = p.variables("x", over=pair_table(view, task, gpu), binary=True, words="t -> g: a task runs on a GPU")
    out = p.variables("out", gpu=list(view.gpu_names), binary=True, words="g -> E")
    offered = offer.sum(by="job")
    p.constrain("task", offer == x.sum(by="task"), words="flow through t")
    p.constrain("gpu_out", x.sum(by="gpu") == out, words="flow through g")
    if plan.kept.any():
        stay = [view.task_names[t] for t in np.flatnonzero(plan.kept).tolist()]
        p.constrain("stay", x.sum(by="task").sel(task=stay) == 1, words="running tasks that stay (reconstructed)")
    seconds = transfer(p, costs, x, task, gpu)
    if not plan.policy.fair:
        p.constrain("job", enter == offered, words="flow through j")
    else:
        room = count - np.maximum(base_shares(view), np.bincount(view.task_job[plan.kept], minlength=len(jobs)))
        wait = p.variables("wait", job=jobs, upper=room, integer=True, words="j -> u_j: at most N_j - A*_j")
        leave = p.variables("leave", job=jobs, upper=room, integer=True, words="u_j -> E: at most N_j - A*_j")
        p.constrain("job", enter == offered + wait, words="flow through j")
        p.constrain("unscheduled", wait == leave, words="flow through u_j")
        alpha = p.data(r"\alpha", costs.waiting_s, unit="s", words="cost of each of the two arcs of a waiting task")
        seconds = seconds + wait.sum() * alpha + leave.sum() * alpha
    p.maximize("flow", enter.sum(), words="maximum flow")
    p.minimize("transfer", seconds, unit="s", words="minimum cost")
    if p.objectives[-1].unit is None:
        raise ModelError(_NO_UNIT)
