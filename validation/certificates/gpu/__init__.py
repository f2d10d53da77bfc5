"""Verify solution files of GPU assignment from the instance: who runs where, fair shares, least transfer.

The problem: a task runs on one GPU of enough memory, and a GPU runs one task. A running task stays on its GPU or
stops; `preemption` says which may stop. The goals in order are the lexicographically greatest sorted numbers of running
tasks per job (FSU: their sum), the least weighted transfer plus price of lost work, and the fewest stops. With waiting
at a price no job runs more than its fair share; the goals are the least transfer plus prices of waiting and lost work,
the fewest stops, and the most starts. For the proof see `search_proof`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.instances.exact_rationals import rational
from flowlex.validation.certificates.certificate import Check, Claim
from flowlex.validation.certificates.exact_numbers import agrees
from flowlex.validation.certificates.gpu.cluster_columns import Cluster, none
from flowlex.validation.certificates.gpu.dual_values import check_duals
from flowlex.validation.certificates.gpu.fair_shares import fair_limits
from flowlex.validation.certificates.gpu.formulation_from_instance import state_gpu
from flowlex.validation.certificates.gpu.judge_large_rounds import judge_refined
from flowlex.validation.certificates.gpu.preemption import Stops
from flowlex.validation.certificates.gpu.round_options import RoundOptions
from flowlex.validation.certificates.gpu.search_proof import GpuProof, SearchProof
from flowlex.validation.certificates.gpu.transfer_costs import Costs
from flowlex.validation.certificates.problem_options import GpuOptions
from flowlex.validation.certificates.verifier_interface import Claimed, Finding, Strict, Verifier
from flowlex.validation.restated.gpu import PolicyRules

__all__ = ["VERIFIER"]

_LEVELS = ("node", "rack", "between")


class GpuAnswer(Strict):
    """GPU of each running task, reason of every other task, the table of jobs, and the unit of costs."""

    placements: dict[str, str]
    preempted: dict[str, str]
    waiting: dict[str, str]
    jobs: list[dict[str, Any]]
    cost_unit_s: str


def _judge(claimed: Claimed) -> Finding:
    instance, document, answer = claimed.instance, claimed.document, claimed.answer
    cluster = Cluster(instance, answer.placements)
    if cluster.strange:
        return Finding("feasible", (none("tasks and GPUs of this instance", cluster.strange),))
    policy, weights, priced, stop_price = RoundOptions.read(document.options)
    costs = Costs.read(instance, cluster.view, weights, stop_price)
    fair, level = _fair_shares(cluster, answer, policy)
    stops = Stops.of(cluster, policy, level)
    checks = [*_feasible(cluster, answer, policy), *(stops.checks() if fair.ok and policy.preemptive else ())]
    started = (cluster.at >= 0) & (cluster.own < 0)
    read = costs.levels(started, cluster.gpu_node[cluster.at])
    waits = int(np.count_nonzero(cluster.at < 0)) if policy.fair else 0
    transfer = costs.seconds(read)
    lost = np.flatnonzero((cluster.own >= 0) & (cluster.at < 0)).tolist()
    objective = transfer + costs.waiting_s * waits + sum((costs.stop_s[t] for t in lost), Fraction(0))
    checks += [*_tables(cluster, answer, costs.by_task(read)), fair]
    parts = costs.unit_s / rational(answer.cost_unit_s) if rational(answer.cost_unit_s) > 0 else Fraction(1, 2)
    checks.append(Check("all costs are whole multiples of the unit", parts.denominator == 1, detail=answer.cost_unit_s))
    if document.duals and fair.ok:
        startable = stops.startable if policy.fair else None
        checks.append(check_duals(cluster, costs, document.duals, startable, transfer))
    figures: dict[str, Any] = {"metrics": _metrics(cluster, costs.read_mb(read), transfer)}
    figures["stages"] = _stages(cluster, policy, priced, objective)
    if document.status == "feasible" and document.bound is not None and claimed.proof.search is not None:
        bound = Fraction(rational(document.bound))
        proof = SearchProof(cluster, costs, claimed.proof, policy, stops, objective, priced, claimed.budget, bound)
        return _proven("bounded", checks, proof.checks(), objective, bound, figures)
    if document.status != "optimal" or not all(check.ok for check in checks):
        return Finding("feasible", tuple(checks), objective, **figures)
    if claimed.proof.search is None:
        checks.append(
            Check(
                "optimal: no answer is fairer or transfers less", True, detail=f"says {document.engine}", how="quoted"
            )
        )
        return Finding("feasible", tuple(checks), objective, objective, **figures)
    proof = SearchProof(cluster, costs, claimed.proof, policy, stops, objective, priced, claimed.budget)
    return _proven("optimal", checks, proof.checks(), objective, objective, figures)


def _proven(
    claim: Claim, checks: list[Check], proof: list[Check], objective: Fraction, bound: Fraction, figures: dict[str, Any]
) -> Finding:
    """The finding with its claim, or with ``feasible`` if the time for its proof was spent."""
    late = any(check.how == "quoted" for check in proof)
    return Finding("feasible" if late else claim, (*checks, *proof), objective, bound, **figures)


def _stages(cluster: Cluster, policy: PolicyRules, priced: bool, objective: Fraction) -> dict[str, Fraction | int]:
    """The objectives minimised one after the other, if there is more than one."""
    out, running = cluster.at < 0, cluster.own >= 0
    stops = {"stops": int(np.count_nonzero(out & running))} if policy.preemptive and running.any() else {}
    waits = {"waiting": int(np.count_nonzero(out & ~running))} if priced else {}
    return {"transfer": objective, **stops, **waits} if stops or waits else {}


def _feasible(cluster: Cluster, answer: GpuAnswer, policy: PolicyRules) -> Iterator[Check]:
    at, own, names = cluster.at, cluster.own, cluster.names
    twice = [g for g, times in Counter(answer.placements.values()).items() if times > 1]
    yield none("every GPU runs at most one task", twice)
    small = np.flatnonzero((at >= 0) & (cluster.need > cluster.gpu_memory[at]))
    yield none("every task fits the memory of its GPU", [names[t] for t in small.tolist()])
    yield none("no running task is moved", [names[t] for t in np.flatnonzero((own >= 0) & (at >= 0) & (at != own))])
    stopped = (own >= 0) & (at < 0)
    if not policy.preemptive:
        yield none("no running task is stopped", [names[t] for t in np.flatnonzero(stopped)])
    longest = np.full(len(cluster.job), -1.0)
    np.maximum.at(longest, cluster.job_of[stopped], cluster.elapsed[stopped])
    kept = (own >= 0) & (at >= 0)
    wrong = np.flatnonzero(kept & (cluster.elapsed < longest[cluster.job_of]))
    yield none("a job stops its shortest-running tasks", [names[t] for t in wrong.tolist()])
    for state, chosen, said in (
        ("stopped", stopped, answer.preempted),
        ("waiting", (own < 0) & (at < 0), answer.waiting),
    ):
        true = {names[t] for t in np.flatnonzero(chosen).tolist()}
        yield none(f"{state} tasks are those named", sorted(true ^ set(said)))


def _tables(cluster: Cluster, answer: GpuAnswer, seconds: NDArray[np.float64]) -> Iterator[Check]:
    at, own = cluster.at, cluster.own
    true = {
        "tasks": cluster.counts(at >= -1),
        "running": cluster.counts(at >= 0),
        "started": cluster.counts((at >= 0) & (own < 0)),
        "preempted": cluster.counts((at < 0) & (own >= 0)),
        "waiting": cluster.counts((at < 0) & (own < 0)),
        "transfer_s": np.bincount(cluster.job_of, weights=seconds, minlength=len(cluster.job)),
    }
    wrong = [str(row.get("job")) for row in answer.jobs if row.get("job") not in cluster.job]
    wrong += list(cluster.job.keys() - {row.get("job") for row in answer.jobs})
    wrong += ["a job twice"] if len(answer.jobs) > len(cluster.job) else []
    wrong += [f"columns of {row['job']}" for row in answer.jobs if row.keys() != {"job", "fair_share", *true}]
    columns = {name: values.tolist() for name, values in true.items()}
    for row in answer.jobs if not wrong else ():
        j = cluster.job[row["job"]]
        for name, values in columns.items():
            if row[name] != values[j] and abs(row[name] - values[j]) > 1e-9 * (1 + abs(values[j])):
                wrong.append(f"{name} of {row['job']} is {values[j]:g} (stated {row[name]})")
    yield none("the table of jobs", wrong)


def _fair_shares(cluster: Cluster, answer: GpuAnswer, policy: PolicyRules) -> tuple[Check, list[Fraction] | None]:
    """Check stated shares; their denominators are at most the number of jobs, so a float determines the fraction."""
    name = "fair shares of the table"
    stated: dict[str, Any] = {str(row.get("job")): row.get("fair_share") for row in answer.jobs}
    if not policy.fair:
        return none("no job has a fair share", [job for job, share in stated.items() if share is not None]), None
    if strange := [job for job in cluster.job if not isinstance(stated.get(job), (int, float, str))]:
        return none(name, strange), None
    level = [rational(stated[job]).limit_denominator(len(cluster.job)) for job in cluster.job]
    wrong = [job for job, x in zip(cluster.job, level, strict=True) if not agrees(stated[job], x)]
    running = cluster.own >= 0
    kept = running & (not policy.preemptive)
    return none(name, wrong or fair_limits(cluster, kept, ~kept, level)[0]), level


def _metrics(cluster: Cluster, megabytes: list[Fraction], transfer: Fraction) -> dict[str, Any]:
    at, own = cluster.at, cluster.own
    total, running = sum(megabytes), int(np.count_nonzero(at >= 0))
    count = cluster.counts(at >= 0)
    square = int((count**2).sum())
    return {
        "running": running,
        "started": int(np.count_nonzero((at >= 0) & (own < 0))),
        "preempted": int(np.count_nonzero((at < 0) & (own >= 0))),
        "waiting": int(np.count_nonzero((at < 0) & (own < 0))),
        "idle_gpus": len(cluster.gpu) - running,
        "transfer_s": transfer,
        **{f"{name}_gb": amount / 1000 for name, amount in zip(_LEVELS, megabytes, strict=True)},
        **{
            f"{name}_percent": 100 * amount / total if total else 0
            for name, amount in zip(_LEVELS, megabytes, strict=True)
        },
        "jain_index": Fraction(int(count.sum()) ** 2, len(count) * square) if square else 1,
    }


def _columns(placements: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """``x`` by task and place."""
    return {"x": {label_text((task, place)): 1 for task, place in placements.items()}}


VERIFIER = Verifier(
    "gpu-assignment",
    GpuAnswer,
    GpuProof,
    _judge,
    solvable=True,
    options=GpuOptions,
    state=state_gpu,
    grouped=judge_refined,
    columns=_columns,
)
