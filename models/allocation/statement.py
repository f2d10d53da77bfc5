r"""The policies stated in the language: shares of time, what limits them, and the objectives.

``share[job,partner,gpu_type]`` (:math:`X` in the paper) is the fraction of time that a job runs on a type, alone
(``partner`` is empty) or with a partner (of a pair, ``job`` is the earlier in the instance). Sums over the shares of a
member have those of its pairs too. ``runs[job,gpu_type]`` is the time of a job on a type, alone or in pairs. Where the
policy compares jobs, ``rise`` is how far the gains of all jobs rise together. Water filling and hierarchies raise jobs
step by step: it depends on the jobs that the steps before have filled how fast each one rises. So their statement is
over the steps that the method finds: ``rise[step]``, maximised in order, and after each the sum of the gains of the
jobs that it fills, at whose optimum none of them can gain more.

Source: Narayanan et al. (OSDI 2020), section 3.1 for shares and space sharing, section 4 for policies; limits are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowlex.formulations.program_arrays import Floats
from flowlex.models.allocation.allocation_linear_program import limited, run_columns
from flowlex.models.allocation.policy_linear_programs import TOTALS, PolicyProgram
from flowlex.models.problem import Problem

#: The names that rows may have; and why some cannot be dropped.
ROWS = frozenset({"time", "gpus", "most", "least", "deadline", "level", "runs"})
NEEDED = {
    "time": "a job would run more than all the time",
    "gpus": "GPUs would be lent twice",
    "runs": "`runs` would say nothing",
}
#: What a step/s of a job counts; by default relative to its throughput if its time is split as GPUs are.
_GAINS = {
    "makespan": "the shortest makespan by steps left: the rise is it by the makespan",
    "finish_time": "1: all jobs rise in proportion to what a ratio of finish times needs",
}


def state_policy(
    p: Problem,
    policy: PolicyProgram,
    fills: Sequence[Sequence[int]] = (),
    ratio: float | None = None,
    *,
    rising: bool = True,
) -> None:
    """State a policy over all jobs and pairs that may run.

    ``fills``: the jobs that each step fills; without them, the first step alone. ``ratio``: of finish-time fairness,
    which all jobs keep where they rise by 1. Not ``rising``: only what limits the shares.
    """
    import pandas as pd

    instance, view = policy.instance, policy.instance.arrays
    columns, names = run_columns(view, sharing=policy.sharing), [job.name for job in instance.jobs]
    jobs, types = np.array(names, object), np.array([t.name for t in instance.gpu_types], object)
    owner = np.array([job.entity or "" for job in instance.jobs], object)
    alone, pair = columns.second < 0, np.flatnonzero(columns.paired)
    low = np.where(alone, columns.first, np.minimum(columns.first, columns.second))
    late = np.where(alone, columns.first, np.maximum(columns.first, columns.second))
    keys = {"job": jobs[low], "partner": np.where(alone, "", jobs[late]), "gpu_type": types[columns.gpu]}
    by_job, by_type = pd.Index(names, name="member"), pd.Index(types, name="gpu_type")
    for level, labels, words in (("job", names, "jobs"), ("member", names, "jobs"), ("gpu_type", types, "GPU types")):
        p.set(level, list(labels), words=words)

    over = pd.DataFrame({**keys, "entity": owner[low]}).set_index(list(keys))
    share = p.variables("share", over=over, upper=1, words="fraction of time")
    # A row for each member of each column.
    column = np.concatenate([np.arange(columns.count), pair])
    member = np.concatenate([columns.first, columns.second[pair]])
    members = pd.DataFrame({name: each[column] for name, each in keys.items()} | {"member": jobs[member]})
    each = pd.MultiIndex.from_frame(members)
    inside = p.data("a", pd.Series(1, each), words="1 for each job that runs")
    shares = share.join(members) * inside
    speed = np.concatenate([columns.speed[:, 0], columns.speed[pair, 1]])
    steps = p.data("T", pd.Series(speed, each), unit="steps/s", words="throughput")
    scale = p.data("s", pd.Series(view.scale, pd.Index(names, name="job")), words="GPUs that a job uses at once")
    count = p.data("N", pd.Series(view.count, by_type), words="GPUs of a type")

    time, throughput = shares.sum(by="member"), (share.join(members) * steps).sum(by="member")
    p.constrain("time", time <= 1, words="a job runs at most all the time")
    p.constrain("gpus", (share * scale).sum(by="gpu_type") <= count, words="a type has so many GPUs")
    for name, level, letters, words in (("most", "cap", "uq", "caps"), ("least", "floor", "oz", "floors")):
        sides = {str(k): getattr(limit, f"{name}_gpus") for k, limit in enumerate(instance.limits)}
        sides = {k: side for k, side in sides.items() if (side is not None if name == "most" else side > 0)}
        if not sides:
            continue
        p.set(level, list(sides), words=words)
        counted = {k: np.flatnonzero(limited(instance, instance.limits[int(k)], columns)) for k in sides}
        chosen = np.concatenate(list(counted.values()))
        table = pd.DataFrame({key: each[chosen] for key, each in keys.items()})
        table[level] = np.repeat(np.array(list(sides), object), [len(each) for each in counted.values()])
        bound = pd.Series(sides, pd.Index(list(sides), name=level))
        side = p.data(letters[0], bound, unit="GPUs", words=f"side of {words}")
        one = pd.Series(1, pd.MultiIndex.from_frame(table))
        against = p.data(letters[1], one, words=f"1 if it counts ({words})")
        held = ((share * scale).join(table) * against).sum(by=level)
        p.constrain(name, held <= side if name == "most" else held >= side, words=words)
    if policy.deadlines:
        due = np.flatnonzero(np.isfinite(view.deadline))
        owed = pd.Series(view.steps[due] / view.deadline[due], by_job[due])
        rate = p.data("d", owed, unit="steps/s", words="steps left by seconds until the deadline")
        p.constrain("deadline", throughput.sel(member=[names[m] for m in due]) >= rate, words="deadlines are kept")

    on = np.unique(member * len(types) + columns.gpu[column])
    job, gpu = np.divmod(on, len(types))
    used = pd.DataFrame({"job": jobs[job], "gpu_type": types[gpu], "entity": owner[job]}).set_index(["job", "gpu_type"])
    runs = p.variables("runs", over=used, upper=1, words="time of a job on a type")
    places = pd.DataFrame({"member": jobs[job], "gpu_type": types[gpu]})
    total = shares.sum(by=["member", "gpu_type"])
    p.constrain("runs", total == runs.at(places, job="member", gpu_type="gpu_type"), words="alone or beside others")

    if policy.policy == "max_throughput":
        p.maximize("objective", throughput.sum(), words="total throughput", unit="steps/s")
    elif policy.policy == "min_cost":
        price = p.data("p", pd.Series(view.price, by_type), unit="USD/h", words="price of a GPU")
        p.minimize("objective", (share * scale * price).sum(), words="cost of the GPUs in use", unit="USD/h")
    if policy.policy in TOTALS or not rising:
        return
    unit, paces, gain = policy.unit, policy.pace(np.zeros(len(names), bool)), time
    if ratio is not None:
        unit, paces = 1 / policy.times.needed(ratio), np.ones(len(names))
    elif policy.policy == "finish_time":  # is every job as fast as the ratio needs?
        needed = np.minimum(policy.times.needed(float(policy.times.ratio(policy.best).max())), policy.best)
        unit, paces = np.ones(len(names)), needed / needed.max()
    if unit is not None:
        gain = throughput * p.data(
            "g", pd.Series(unit, by_job), words=_GAINS.get(policy.policy, "1 by throughput of an equal split")
        )
    highest = np.ones(len(names)) if unit is None else policy.best * unit

    def most(pace: Floats) -> float:
        return 2 * float((highest[pace > 0] / pace[pace > 0]).max())

    if not fills:
        pace = p.data("v", pd.Series(paces, by_job), words="pace of a job's gain")
        rise = p.variables("rise", upper=most(paces), words="how far all gains rise")
        p.constrain("level", gain >= rise * pace, words="all jobs rise together")
        p.maximize("objective", rise, words="how far all jobs rise together")
        return
    filled = np.zeros(len(names), np.int64)  # the step that fills each job
    for number, mine in enumerate(fills):
        filled[list(mine)] = number
    by_step = np.array([policy.pace(filled < k) for k in range(len(fills))])
    numbers = list(range(1, len(fills) + 1))
    p.set("step", numbers, words="steps")
    at, of = np.nonzero((by_step > 0) & (filled >= np.arange(len(fills))[:, None]))
    table = pd.DataFrame({"member": jobs[of], "step": at + 1})
    moving = pd.Series(by_step[at, of], pd.MultiIndex.from_frame(table))
    pace = p.data("v", moving, words="pace of a job's gain in a step")
    bounds = pd.Series([most(each) for each in by_step], pd.Index(numbers, name="step"))
    rises = p.variables("rise", step=numbers, upper=bounds, words="how far a step raises gains")
    p.constrain("level", gain >= (rises.join(table) * pace).sum(by="member"), words="jobs rise until they are full")
    for number, mine in zip(numbers, fills, strict=True):
        p.maximize(f"rise_{number}", rises.sel(step=number), words=f"how far step {number} raises the jobs")
        full = gain.sel(member=[names[m] for m in mine]).sum()
        p.maximize(f"full_{number}", full, words=f"gains of the jobs that step {number} fills")
