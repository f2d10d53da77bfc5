"""Judge changed GPU rounds of many pairs without listing the pairs: equivalent tasks and GPUs are grouped.

A bound needs only prices of GPUs, shares and rules. At these prices each task takes its cheapest GPU, or none; the sum
over tasks bounds the stage (Lagrangian relaxation of all rows but those of tasks). All numbers are integer multiples of
a unit, and Python integers where 64 bits might not suffice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from flowlex.instances.gpu import GpuInstance
from flowlex.instances.model_changes import Changes
from flowlex.validation.certificates.certificate import Check, Claim, Finding
from flowlex.validation.certificates.gpu.large_round_bounds import Prices
from flowlex.validation.certificates.gpu.large_rounds import Large, Values
from flowlex.validation.certificates.gpu.user_written_rules import GpuRules
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.solution_document import read_as
from flowlex.validation.certificates.statement.stage_proof import StatementProof, duals_of

#: Pairs of tasks and GPUs above which a changed round is judged here.
LARGE = 20_000


def judge_refined(
    instance: GpuInstance,
    options: Mapping[str, Any],
    changes: Changes,
    values: Values | None,
    document: Mapping[str, Any],
    budget: Budget,
) -> Finding | None:
    """Judge a changed round; None if it is small, or its changes or proof need the statement pair by pair."""
    pairs = sum(len(job.tasks) for job in instance.jobs) * sum(len(node.gpus) for node in instance.nodes)
    if pairs <= LARGE:
        return None
    proof = _one_leaf_each(document)
    leaves = [leaf for each in (*proof.stages.values(), proof.empty) for leaf in each]
    branched = any(leaf.branches for leaf in leaves) or any(len(each) > 1 for each in proof.stages.values())
    if branched or not GpuRules.takes(changes) or options.get("waiting", "least") != "least":
        return None
    large = Large(instance, options, changes)
    if values is None:
        if len(proof.empty) != 1:
            return Finding("feasible", (Check("no answer exists", True, detail="as the solver says", how="quoted"),))
        leaf = proof.empty[0]
        shown = large.contradictory or (not leaf.own and Prices(large, leaf, "", {}).total() > 0)
        return Finding("infeasible" if shown else "feasible", (Check("no answer exists", shown),))
    checks = list(large.facts(values))
    if not all(check.ok for check in checks):
        return Finding("feasible", tuple(checks))
    return _stages(large, proof, checks, budget)


def _one_leaf_each(document: Mapping[str, Any]) -> StatementProof:
    """The proof of each stage, where rows have no default and leaves share nothing."""

    def leaf(of: dict[str, Any]) -> dict[str, Any]:
        rows = {name: _listed(given) for name, given in of.get("rows", {}).items()}
        branches = [
            {"variable": name, "label": label, "relation": branch["relation"], "side": branch["side"]}
            for branch in of.get("branches", ())
            for name, label, _ in branch["row"]
        ]
        return {**of, "rows": rows, "branches": branches}

    stages = {name: [leaf(each) for each in leaves] for name, leaves in document.get("stages", {}).items()}
    plain = {"stages": stages, "empty": [leaf(each) for each in document.get("empty", ())]}
    read: StatementProof = read_as(StatementProof, plain, "proof")
    return read


def _listed(given: Mapping[str, Any]) -> Mapping[str, Any]:
    if given.keys() != {"at"}:
        raise ValueError("in a changed round of many pairs, multipliers stand by label")
    at: Mapping[str, Any] = given["at"]
    return at


def _stages(large: Large, proof: StatementProof, checks: list[Check], budget: Budget) -> Finding:
    """Value and bound of each stage."""
    figures: dict[str, Fraction] = {}
    before: dict[str, Fraction] = {}
    main, proven, duals = None, True, {}
    for name in large.names:
        value = large.value(name)
        figures[name] = value
        goal = -value if name.startswith("share_") or name == "running" else value - large.constant_of(name)
        leaves, bound = proof.stages.get(name, []), None
        if proven and leaves and budget.spent:
            checks.append(budget.quoted(f"bound of stage {name}"))
        elif proven and leaves:
            step = large.step_of(name)
            bound = math.ceil(Prices(large, leaves[0], name, before).total() / step) * step if leaves[0].own else None
        if name == "transfer" and bound is not None:
            main = min(bound, goal) + large.constant
        proven = proven and bound is not None and bound >= goal
        if proven and name == "transfer":
            duals = duals_of(leaves, maximize=False)
        checks.append(Check(f"stage {name}", True, detail=f"{float(value):g}{', optimal' if proven else ''}"))
        before[name] = goal
    claim: Claim = "optimal" if proven else "bounded" if main is not None else "feasible"
    bound = figures["transfer"] if proven else main
    return Finding(claim, tuple(checks), figures["transfer"], bound, figures, duals=duals)
