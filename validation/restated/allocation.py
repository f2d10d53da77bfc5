"""Verify solution files of allocation of GPU time: the problem stated again, and the one proof of its objectives.

`flowlex.validation.restated.allocation_program` states the problem. Of many pairs only those are columns that the
answer uses, or whose reduced cost may be negative at some multipliers of the proof. `_listed` looks at all pairs, with
a margin for rounding. A column left out lowers no bound.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.formulations.block_labels import label_text
from flowlex.instances.allocation import AllocationInstance
from flowlex.instances.exact_rationals import rational
from flowlex.instances.model_changes import Changes, Cost
from flowlex.validation.certificates.certificate import Check, Finding
from flowlex.validation.certificates.exact_numbers import agrees
from flowlex.validation.certificates.verifier_interface import Claimed, Document, Strict, Verifier, same_values
from flowlex.validation.proofs.exact_program import ExactProgram, Objective
from flowlex.validation.proofs.proof import Leaf, ProofError, from_document
from flowlex.validation.restated.allocation_program import (
    FILLING,
    LEAST,
    TOLERANCE,
    Cluster,
    Floats,
    Ints,
    Restated,
    Runs,
)
from flowlex.validation.restated.program_finding import program_finding

#: Number of pairs of jobs up to which all are columns.
_WRITTEN_OUT = 2_000
#: A reduced cost above this share of its terms is positive, whatever rounding did to it.
_ROUNDING = 1e-14


# ---- the answer


class AllocationOptions(Strict):
    """Allocation of GPU time."""

    policy: Literal[
        "max_min", "water_filling", "hierarchical", "makespan", "finish_time", "max_throughput", "min_cost"
    ] = "max_min"
    aware: bool = True
    sharing: bool = True
    deadlines: bool | None = None
    tolerance: Annotated[float, Field(ge=0)] = 1e-6
    pricing: bool | None = None
    parts: Annotated[int, Field(ge=1)] = 1
    seed: int = 0


class Share(Strict):
    """One job, or two that share GPUs, on a GPU type for a fraction of time."""

    jobs: list[str]
    gpu_type: str
    fraction: float


class AllocationAnswer(Strict):
    """Who runs where, the steps/s of every job, and, where levels rise in steps, the jobs that each step fills."""

    shares: list[Share]
    steps_per_s: dict[str, float]
    full: list[list[str]] = Field(default_factory=list)


class _Use:
    """The shares of an answer by column, with (n,) steps/s and (J,) GPUs held; ``wrong``: shares that cannot be."""

    def __init__(self, cluster: Cluster, answer: AllocationAnswer) -> None:
        table = [
            (*(cluster.job.get(name, -1) for name in [*share.jobs, ""][:2]), cluster.gpu.get(share.gpu_type, -1))
            for share in answer.shares
            if share.jobs
        ]
        size = np.array([len(share.jobs) for share in answer.shares], np.int64)
        columns = np.full((len(size), 3), -1, np.int64)
        columns[size > 0] = np.array(table, np.int64).reshape(-1, 3)
        fraction = np.array([share.fraction for share in answer.shares], np.float64)
        one, two, gpu = columns.T
        alone, both = size == 1, (size == 2) & (columns >= 0).all(axis=1) & (one != two)
        may = alone & (one >= 0) & (gpu >= 0)
        may[may] = cluster.speed[one[may], gpu[may]] > 0
        #: First and second job of each share, and the number of their pair.
        pairs = np.stack([one, two, np.full(len(size), -1)], axis=1)
        pairs[both] = np.stack(cluster.together(*columns[both].T), axis=1)
        may |= both & (pairs[:, 2] >= 0)
        key = np.stack([np.where(alone, one, np.minimum(one, two)), np.where(alone, -1, np.maximum(one, two)), gpu], 1)
        once = np.zeros(len(size), bool)
        once[np.flatnonzero(may)[np.unique(key[may], axis=0, return_index=True)[1]]] = True
        good = once & ~(fraction < 0)
        self.wrong: list[str] = [
            f"{' + '.join(answer.shares[k].jobs)} on {answer.shares[k].gpu_type}"[:100]
            for k in np.flatnonzero(~good).tolist()
        ]
        self.pairs: Ints = pairs[good & both]
        places = zip(*key[good].T.tolist(), fraction[good].tolist(), strict=True)
        self.shares: dict[tuple[int, int, int], float] = {(a, b, j): share for a, b, j, share in places}
        mine = good & alone
        self.throughput, self.held = np.zeros(len(cluster.job)), np.zeros(len(cluster.gpu))
        np.add.at(self.held, gpu[good], cluster.scale[one[good]] * fraction[good])
        np.add.at(self.throughput, one[mine], cluster.speed[one[mine], gpu[mine]] * fraction[mine])
        speed = cluster.pairs[1][self.pairs[:, 2]]
        for side in (0, 1):
            np.add.at(self.throughput, self.pairs[:, side], speed[:, side] * fraction[good & both])

    def checks(self, cluster: Cluster, stated: Mapping[str, float]) -> list[Check]:
        """Who runs may run, and steps/s are those of the shares."""
        known = stated.keys() == cluster.job.keys()
        said = np.array([stated.get(name, np.inf) for name in cluster.job])
        off = np.abs(said - self.throughput) / (1 + self.throughput)
        worst = float(off.max(initial=0))
        return [
            Check("every share is of jobs that may run there", not self.wrong, detail="; ".join(self.wrong[:3])),
            Check("throughputs recomputed", known and worst <= TOLERANCE, worst),
        ]

    def figures(self, cluster: Cluster) -> dict[str, float]:
        """The metrics that shares determine."""
        found = {
            "least_normalised": float((self.throughput / cluster.equal * cluster.scale / cluster.weight).min()),
            "total_steps_per_s": float(self.throughput.sum()),
            "gpus_held": float(self.held.sum()),
            "cost_usd_per_hour": float(self.held @ cluster.price),
        }
        if np.isfinite(cluster.steps).all() and (self.throughput > 0).all():
            found["makespan_s"] = float((cluster.steps / self.throughput).max())
        return found


# ---- columns that are left out


def _listed(
    cluster: Cluster,
    used: Ints,
    proof: Mapping[str, Any],
    made: Callable[[Runs], Restated],
) -> Restated:
    """The problem with the pairs that the answer uses and those that matter for the proof."""
    if cluster.pair_count <= _WRITTEN_OUT:
        return made(Runs.of(cluster, cluster.every_pair()))
    found = made(Runs.of(cluster, [(used[:, 0], used[:, 1], used[:, 2])]))
    program = found.program
    read = from_document(dict(proof), program)
    leaves: list[tuple[Objective | None, Leaf]] = [(None, leaf) for leaf in read.empty]
    leaves += [(o, leaf) for o in program.objectives for leaf in read.stages.get(o.name, ())]
    if read.derived or any(leaf.branches or leaf.complete or leaf.earlier or leaf.before for _, leaf in leaves):
        raise ProofError("with many pairs, a proof has multipliers of rows only")
    prices = [_Prices.of(found, program, leaf, objective) for objective, leaf in leaves]
    needed = [
        (one[might], two[might], pair[might])
        for one, two, pair in cluster.every_pair()
        if (might := np.logical_or.reduce([each.may_be_negative(one, two, pair) for each in prices])).any()
    ]
    if not needed:
        return found
    return made(Runs.of(cluster, [(used[:, 0], used[:, 1], used[:, 2]), *needed]))


@dataclass(frozen=True, eq=False)
class _Prices:
    """The multipliers of a leaf as prices: what a step/s and running bring a job, and what time and GPUs cost."""

    cluster: Cluster
    pull: Floats
    flat: Floats
    time: Floats
    charge: Floats
    limits: list[tuple[NDArray[np.bool_], NDArray[np.bool_], float]]

    @classmethod
    def of(cls, problem: Restated, program: ExactProgram, leaf: Leaf, objective: Objective | None) -> _Prices:
        cluster, n = problem.cluster, len(problem.cluster.job)
        rows: dict[str, Floats] = {}
        for part in (leaf.rows, leaf.shared):
            for name, y in part.items():
                if name not in program.rows or len(y.numbers) != program.rows[name].count:
                    raise ProofError(f"multipliers of rows {name!r}, which do not exist")
                rows[name] = rows.get(name, 0.0) + y.floats
        own, units = float(leaf.own), problem.rising.units
        levels = rows.get("level", np.zeros(n))
        name = "" if objective is None else objective.name
        if name.startswith("full_"):
            members = [m for m, k in problem.rising.last.items() if k == int(name[5:]) - 1]
            levels = levels.copy()
            levels[members] += own
        pull = np.full(n, own if name and cluster.policy == "max_throughput" else 0.0)
        if units is not None:
            pull = pull + levels * units
        for m, y in zip(cluster.owed, rows.get("deadline", ()), strict=False):
            pull[m] += y
        charge = -rows.get("gpus", np.zeros(len(cluster.gpu)))
        if name and cluster.policy == "min_cost":
            charge = charge + own * cluster.price
        limits = []
        for row in ("most", "least"):
            for label, y in zip(program.rows[row].texts(), rows[row], strict=True) if row in rows else ():
                _, members_of, on = cluster.limits[int(label)]
                limits.append((members_of, on, -float(y)))
        time = -rows.get("time", np.zeros(n))
        return cls(cluster, pull, levels if units is None else np.zeros(n), time, charge, limits)

    def may_be_negative(self, one: Ints, two: Ints, pair: Ints) -> NDArray[np.bool_]:
        """Whether the reduced costs of pairs may be negative; those far from 0 are not, whatever rounding does."""
        cluster, speed, gpu = self.cluster, self.cluster.pairs[1][pair], self.cluster.pairs[0][pair, 2]
        earned = self.pull[one] * speed[:, 0] + self.pull[two] * speed[:, 1] + self.flat[one] + self.flat[two]
        due = self.charge[gpu]
        size = np.abs(due)
        for members, on, price in self.limits:
            counted = price * (on[gpu] & (members[one] | members[two]))
            due, size = due + counted, size + np.abs(counted)
        time = self.time[one] + self.time[two]
        over = cluster.scale[one] * due + time - earned
        size = cluster.scale[one] * size + np.abs(time) + np.abs(earned)
        return np.asarray(~(over >= _ROUNDING * size))


# ---- the verdict


def _judge(claimed: Claimed) -> Finding:
    document, budget = claimed.document, claimed.budget
    cluster = Cluster(claimed.instance, document.options)
    policy, status, proof = cluster.policy, document.status, document.proof
    whole = status == "optimal" and document.options.get("parts", 1) == 1
    checks: list[Check] = []
    if proof and budget.spent:  # the answer is judged, nothing else
        proof = {}
        checks.append(budget.quoted("no allocation is better"))
    if status == "infeasible":
        problem = _listed(cluster, np.zeros((0, 3), np.int64), proof, lambda runs: Restated(cluster, runs))
        found = program_finding(problem.program, None, proof, status, budget, main="objective")
        if proof and any(check.how == "quoted" for check in found.checks):
            checks.append(budget.quoted("no allocation exists"))
        return replace(found, claim="feasible", checks=(*checks, *found.checks)) if checks else found
    use = _Use(cluster, claimed.answer)
    checks += use.checks(cluster, claimed.answer.steps_per_s)
    steps = ratio = None
    if whole and policy in FILLING:
        steps = [[cluster.job.get(name, -1) for name in members] for members in claimed.answer.full]
        every = sorted(m for members in steps for m in members) == list(range(len(cluster.job))) and all(steps)
        checks.append(Check("every job is full after one of the steps", every))
    if policy == "finish_time" and document.bound is not None:
        ratio = float(rational(document.bound)) * (1 - 1e-9)
    if not all(check.ok for check in checks):
        return Finding("feasible", tuple(checks))
    problem = _listed(cluster, use.pairs, proof, lambda runs: Restated(cluster, runs, steps, ratio))
    program = problem.program
    found = program_finding(
        program,
        problem.values(use.shares),
        proof,
        status if whole else "feasible",
        budget,
        main=program.objectives[0].name,
        checks=checks,
        metrics=use.figures(cluster),
        stages=False,
    )
    found = replace(found, unjudged=["programs_solved"], tolerance=TOLERANCE)
    if found.objective is None or document.objective is None:
        return replace(found, claim="feasible", objective=None, bound=None)
    if policy == "finish_time":
        return _finish_time(cluster, document, found, use.throughput, ratio if proof else None)
    found = replace(found, objective=_measured(cluster, found.objective), bound=_measured(cluster, found.bound))
    return found if whole else _bounded(cluster, document, found, proven=bool(proof) and not budget.quoting)


def _measured(cluster: Cluster, value: Fraction | int | None) -> Fraction | int | None:
    """Under ``makespan``, seconds instead of how far all jobs rise."""
    return Fraction(cluster.shortest) / value if value and cluster.policy == "makespan" else value


def _bounded(cluster: Cluster, document: Document, found: Finding, *, proven: bool) -> Finding:
    """An answer by parts, or found on the way: the bound is no stronger than what is proven, or fits the answer."""
    stated, sign = document.bound, 1 if cluster.policy in LEAST else -1
    shown = found.bound if proven else found.objective
    if stated is None or shown is None:
        return replace(found, claim="feasible", bound=None)
    weaker = sign * rational(stated) <= sign * shown or agrees(stated, shown, TOLERANCE)
    name = "no allocation is better than the bound" if proven else "the bound does not contradict the answer"
    check = Check(name, weaker, detail=f"stated {stated}, shown {float(shown):.10g}")
    return replace(found, claim="bounded", checks=(*found.checks, check), bound=rational(stated))


def _finish_time(
    cluster: Cluster, document: Document, found: Finding, throughput: Floats, ratio: float | None
) -> Finding:
    """Whether no allocation has a lower worst ratio than the bound, and the answer is within the tolerance of it."""
    proven = found.bound if found.claim in ("bounded", "optimal") else None
    reached, stated = float(cluster.ratios(throughput).max()), rational(document.bound or 0)
    gap = float(document.options.get("tolerance", 0.0))
    within = reached <= float(stated) * (1 + gap) + 1e-12
    checks = [*found.checks, Check("the answer is within the tolerance of the bound", within, detail=f"{reached:.10g}")]
    if not np.isfinite(reached):
        return replace(found, claim="feasible", checks=(*checks, Check("every job runs", False)), objective=None)
    found = replace(found, objective=Fraction(reached), bound=stated)
    name = "no allocation has a lower worst ratio than the bound"
    quoted = any(check.how == "quoted" for check in checks)
    if ratio is None or quoted:
        checks += [] if quoted else [Check(name, True, how="quoted")]
        return replace(found, claim="feasible", checks=tuple(checks))
    none = bool(np.isinf(cluster.needed(ratio)).any())
    shown = none or (proven is not None and proven <= 1)
    checks.append(Check(name, shown, detail=f"{float(stated):.10g}"))
    return replace(found, claim="optimal", checks=tuple(checks))


def _measure(document: Document, instance: AllocationInstance, changes: Changes, finding: Finding) -> Finding:
    """The finding about a changed model, with objective and bound in the measure that its policy reports.

    ``finish_time``: the worst ratio; policies that fill jobs: the first rise; ``makespan``: seconds, unless a change
    adds a cost to the rise of all jobs, which then is the objective.
    """
    cluster = Cluster(instance, document.options)
    if cluster.policy == "finish_time" and finding.objective is not None:
        return _measured_ratio(cluster, document, finding)
    if "rise_1" in finding.stages:
        return replace(finding, objective=finding.stages["rise_1"], bound=finding.bounds.get("rise_1"))
    if any(isinstance(change, Cost) and change.stage == "objective" for change in changes):
        return finding
    return replace(finding, objective=_measured(cluster, finding.objective), bound=_measured(cluster, finding.bound))


def _measured_ratio(cluster: Cluster, document: Document, finding: Finding) -> Finding:
    """The worst ratio of finish times, and the bound that the document states, if the program shows it."""
    shares = [
        Share(jobs=[name for name in label[:2] if name], gpu_type=label[2], fraction=float(rational(value)))
        for text, value in (document.values or {}).get("share", {}).items()
        for label in [next(csv.reader([text]))]
    ]
    use = _Use(cluster, AllocationAnswer(shares=shares, steps_per_s={}))
    reached = float(cluster.ratios(use.throughput).max())
    if use.wrong or not np.isfinite(reached):
        return replace(finding, claim="feasible", objective=None, bound=None)
    bound = document.bound if finding.bound is not None and finding.bound <= 1 else None
    gap = float(document.options.get("tolerance", 1e-6))
    within = bound is not None and reached <= float(rational(bound)) * (1 + gap) + 1e-12
    claim = finding.claim if within else "feasible"
    return replace(finding, claim=claim, objective=Fraction(reached), bound=None if bound is None else rational(bound))


def restate_allocation(claimed: Claimed) -> ExactProgram:
    """The problem, over the steps that fill the jobs, or at the ratio below which nothing is claimed to be."""
    document = claimed.document
    cluster = Cluster(claimed.instance, document.options)
    if document.options.get("parts", 1) != 1:
        raise ValueError("allocations by parts take no changes")
    steps = ratio = None
    if cluster.policy in FILLING and document.answer.get("full"):
        steps = [[cluster.job[name] for name in members] for members in document.answer["full"]]
        if sorted(m for members in steps for m in members) != list(range(len(cluster.job))):
            raise ValueError("every job must be full after exactly one of the steps")
    told = document.objective if document.bound is None else document.bound
    if cluster.policy == "finish_time" and told is not None:
        ratio = float(rational(told)) * (1 - 1e-9)
    return Restated(cluster, Runs.of(cluster, cluster.every_pair()), steps, ratio, changes=True).program


def _changed_figures(claimed: Claimed, values: Mapping[str, Mapping[str, Any]]) -> Finding:
    """The answer of a changed model: shares are those of the values, and throughputs follow from them."""
    cluster, answer = Cluster(claimed.instance, claimed.document.options), claimed.answer
    use = _Use(cluster, answer)
    told = {}
    for each in answer.shares:
        first, second, *_ = [*sorted(each.jobs, key=lambda name: cluster.job.get(name, -1)), "", ""]
        told[label_text((first, second, each.gpu_type))] = each.fraction
    checks = (same_values({"share": told}, values, TOLERANCE), *use.checks(cluster, answer.steps_per_s))
    return Finding("feasible", checks, metrics=use.figures(cluster), unjudged=["programs_solved"])


VERIFIER = Verifier(
    "allocation",
    AllocationAnswer,
    None,
    _judge,
    options=AllocationOptions,
    restated=restate_allocation,
    main="objective",
    needed=frozenset({"time", "gpus", "runs"}),
    figures=_changed_figures,
    measure=_measure,
)
