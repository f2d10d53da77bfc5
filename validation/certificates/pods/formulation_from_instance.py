"""Pod placement stated from the instance, for answers of changed models."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any

from flowlex.instances.exact_rationals import rational
from flowlex.instances.model_changes import Changes
from flowlex.instances.pods import PodInstance
from flowlex.validation.certificates.certificate import Check, Finding
from flowlex.validation.certificates.pods.formulation_rows import StatedPods
from flowlex.validation.certificates.pods.formulation_stages import add_admission, add_balance, add_moves
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.statement.rational_linear_program import ExactStatement
from flowlex.validation.certificates.statement.stage_proof import StatementProof
from flowlex.validation.certificates.statement.verify_changed_model import judge_statement

_BALANCE = ("largest", "mean", "above", "below", "distance", "tangent")
_NEEDED = frozenset({"pod", "running", "card_link", "card_distinct", "count", "fair", *_BALANCE})
#: Tolerance of a square, relative to it and to one squared percent.
_ROUNDED = Fraction(1, 10**9)


def state_pods(
    instance: PodInstance, options: Mapping[str, Any], tangents: Collection[tuple[str, Fraction]] = ()
) -> ExactStatement:
    """State pods on nodes and cards, admission level by level, then the balance and the moves.

    ``tangents``: (node, distance in percent) of additional tangents of the squares of ``balance="deviation"``.
    """
    state = StatedPods(instance, options, ExactStatement("balance", needed=_NEEDED))
    state.columns()
    state.pods()
    state.nodes()
    if state.cards:
        state.on_cards()
    state.gangs()
    state.limits()
    state.counts()
    add_admission(state)
    add_balance(state, options.get("balance", "deviation"), tangents)
    add_moves(state)
    return state.of


def judge_pods(
    instance: PodInstance,
    options: Mapping[str, Any],
    changes: Changes,
    values: Mapping[str, Mapping[str, Any]] | None,
    proof: StatementProof,
    budget: Budget,
) -> Finding | None:
    """Judge a changed model whose balance is the variance, by the tangents that its proof names (all are valid).

    None for other balances, which are linear.
    """
    if options.get("balance", "deviation") != "deviation":
        return None
    named = [label for leaf in (*proof.empty, *chain(*proof.stages.values())) for label in leaf.rows.get("tangent", ())]
    tangents = [(label.rpartition(",")[0], Fraction(label.rpartition(",")[2])) for label in named]

    def state(source: PodInstance, chosen: Mapping[str, Any]) -> ExactStatement:
        return state_pods(source, chosen, tangents)

    found = judge_statement(state, instance, options, changes, values, proof, budget)
    if values is None:
        return found
    square, distance = values.get("square", {}), values.get("distance", {})
    short = [
        node
        for node, each in distance.items()
        if (d := rational(each)) * d * (1 - _ROUNDED) > rational(square.get(node, 0)) + _ROUNDED
    ]
    check = Check("squares of distances", not short, len(short), ", ".join(short[:3]))
    return replace(found, checks=(*found.checks, check))
