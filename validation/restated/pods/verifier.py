"""Verify a pod placement from its instance: rows of nodes and cards, the most of every level, the balance.

The answer is judged on the columns that it uses (`restate_placement`). What is claimed of every level and of the
balance is proven by multipliers over the problem by kinds (`Kinds`). What is not proven is quoted, and the claim falls
to ``feasible``. An answer with values and a proof of the statement is judged like one of a changed model.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.formulations.block_labels import label_text
from flowlex.instances.exact_rationals import rational
from flowlex.instances.model_changes import Changes, Cost
from flowlex.instances.pods import PodInstance
from flowlex.validation.certificates.certificate import Check, Claim
from flowlex.validation.certificates.exact_numbers import Number, agrees
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.solution_document import Document, Numeric, read_as
from flowlex.validation.certificates.verifier_interface import Claimed, Finding, Strict, Verifier, same_values
from flowlex.validation.proofs.checker import Checker
from flowlex.validation.proofs.exact_program import Exact, ExactProgram
from flowlex.validation.proofs.proof import Leaf, from_document
from flowlex.validation.restated.pods.instance_data import PodData, balance_of, loads_of, repacked, size_of
from flowlex.validation.restated.pods.kinds import Kinds
from flowlex.validation.restated.pods.levels import QueueShares, levels_of, units_of
from flowlex.validation.restated.pods.statement import NEEDED, Placed, restate_placement, restate_pods

#: Tolerance of a stated balance (floating point), and for an answer that meets its bound.
TOLERANCE = 1e-6
#: Tolerance of a square, relative to it and to one squared percent.
_ROUNDED = Fraction(1, 10**9)
#: Rows by kind of pods, and by kind of nodes.
_BY_POD, _BY_NODE = ("pod", "running"), ("cpu", "memory", "above", "below", "tangent", "largest")

#: An end of an interval of the mean.
End: TypeAlias = Annotated[float, Field(ge=-1e6, le=1e6)]


class PodOptions(Strict):
    """Pod placement."""

    balance: Literal["deviation", "max_load", "mean_absolute"] = "deviation"
    cards: bool = True
    move_budget: Annotated[float, Field(ge=0)] = 0.0
    moves: Literal["free", "least"] = "free"
    admission: Literal["lexicographic", "weighted", "fair"] = "lexicographic"
    worth: Literal["value", "gpu", "fragmentation"] = "value"
    absolute_gap: Annotated[float, Field(ge=0)] = 0.0
    stage: Literal["admission", "balance"] = "admission"


class Piece(Strict):
    """A leaf that bounds the balance for means between two loads (for the largest load: patterns up to ``high``)."""

    low: End
    high: End
    tangents: dict[str, Numeric] | None = None
    """By lines, with the distance of the tangent of each kind of nodes, by the name of one; absent: by patterns."""
    leaf: dict[str, Any]
    """As in `flowlex.validation.proofs.proof`; a name of a pod or node stands for its kind."""


class PlacementProof(Strict):
    """What the claim of an unchanged model needs beside the answer: leaves by level, and of the balance."""

    format: Literal[3] = 3
    admission: dict[str, dict[str, Any]] = Field(default={})
    balance: list[Piece] = Field(default=[])


class Waiting(Strict):
    """A pod of the queue."""

    pod: str
    reason: str


class Admitted(Strict):
    """Numbers of one level: pods, or their value."""

    admitted: int | float
    wanted: int | float
    most: int | float


class PlacementAnswer(Strict):
    """Where every pod is."""

    placement: dict[str, str]
    cards: dict[str, list[int]]
    queue: list[Waiting]
    admitted: dict[str, Admitted]


def _placed_of(claimed: Claimed) -> tuple[NDArray[np.int64], Placed, list[str]]:
    """(P,) node of each pod, where pods are, and names that do not exist."""
    instance, answer = claimed.instance, claimed.answer
    index = {node.name: n for n, node in enumerate(instance.nodes)}
    number = {pod.name: p for p, pod in enumerate(instance.pods)}
    strange = [name for name in (*answer.placement, *answer.cards) if name not in number]
    strange += [name for name in answer.placement.values() if name not in index]
    strange += [name for name in answer.cards if name not in answer.placement]
    where = np.array([index.get(answer.placement.get(pod.name, ""), -1) for pod in instance.pods], np.int64)
    placed = {p: (int(n), answer.cards.get(instance.pods[p].name, ())) for p, n in enumerate(where) if n >= 0}
    return where, placed, strange


def check_placement(data: PodData, placed: Placed) -> list[Check]:
    """Whether pods may be where they are: every row of the problem on the columns that the answer uses.

    ``placed``: by number of a pod, the number of its node and its cards.
    """
    try:
        program, values = restate_placement(data, placed)
    except ValueError as error:
        return [Check("pods run where they may", False, 1, str(error)[:200])]
    return Checker(program).violations(Exact(np.array(values, np.int64)))


def _who_waits(claimed: Claimed, where: NDArray[np.int64]) -> Check:
    """Whether the queue lists the pods without a node."""
    waits = {pod.name for pod, n in zip(claimed.instance.pods, where.tolist(), strict=True) if n < 0}
    queue = [each.pod for each in claimed.answer.queue]
    return Check("who waits", sorted(queue) == sorted(waits), len(waits ^ set(queue)))


def _judge_placement(claimed: Claimed, objective: float, bound: float) -> Finding:
    """Recompute a placement and what is claimed of it; what is not proven when the budget is spent is quoted."""
    instance, answer, budget = claimed.instance, claimed.answer, claimed.budget
    proof: PlacementProof = read_as(PlacementProof, claimed.proof, "proof")
    options = claimed.document.options
    where, placed_at, strange = _placed_of(claimed)
    if strange:
        return Finding("feasible", (Check("names of pods and nodes", False, len(strange), strange[0][:60]),))
    kinds = Kinds(instance, options)
    checks = check_placement(kinds.data, placed_at)
    if not all(check.ok for check in checks):
        return Finding("feasible", tuple(checks))
    if options.get("cards", True) and (unknown := repacked(kinds.data)):
        text = f"not known of {unknown} running pods, which are assumed to be repacked"
        checks.append(Check("cards of running pods", True, detail=text))
    loads, measure = loads_of(instance, where.tolist()), str(options.get("balance", "deviation"))
    found = balance_of(loads, measure)
    apart = abs(found - objective)
    told = f"{measure} {found:.6g} (stated {objective:.6g})"
    checks.append(Check("balance recomputed", apart <= TOLERANCE, apart, told))
    checks.append(_who_waits(claimed, where))
    admission, proven = _check_admission(kinds, where, answer, proof, budget)
    checks += admission
    placed = count_levels(instance, where, options)[0]
    shown = 0.0
    if bound > TOLERANCE and proof.balance:
        shown = least_balance(kinds, measure, proof.balance, placed, bound, budget)
    balance, claim = _check_balance(objective, bound, shown, proven)
    if balance.how == "quoted" and budget.spent:
        balance = budget.quoted(balance.name)
    checks.append(balance)
    met = claim != "feasible" and objective - bound <= TOLERANCE + 1e-11
    most = all(each.admitted == each.most for each in answer.admitted.values())
    claim = "optimal" if met and most and proven else claim
    return Finding(
        claim,
        tuple(checks),
        rational(objective),
        rational(bound),
        {"admission": _weighted(instance, where, options), "balance": rational(objective)},
        _metrics(instance, where, loads, objective, bound, measure),
        tolerance=TOLERANCE,
        gap=_gap(objective, bound),
    )


def read_leaf(kinds: Kinds, leaf: Mapping[str, Any], program: ExactProgram) -> tuple[Leaf, ...]:
    """A leaf of the last objective (without one: of an empty problem), in which any pod or node stands for its kind."""

    def own(name: str, label: str) -> str:
        if name in _BY_POD:
            return str(kinds.label_of_pod.get(label, label))
        node, comma, share = label.rpartition(",") if name == "slot" else (label, "", "")
        return f"{kinds.label_of_node.get(node, node)}{comma}{share}" if name in ("slot", *_BY_NODE) else label

    made = dict(leaf)
    rows = made.get("rows", {})
    if isinstance(rows, dict):
        made["rows"] = {
            name: {**each, "at": {own(name, label): y for label, y in each["at"].items()}}
            if isinstance(each, dict) and isinstance(each.get("at"), dict)
            else each
            for name, each in rows.items()
        }
    if not program.objectives:
        return from_document({"format": 3, "empty": [made]}, program).empty
    name = program.objectives[-1].name
    return from_document({"format": 3, "stages": {name: [made]}}, program).stages[name]


def most_of_level(
    kinds: Kinds, key: str, kept: Mapping[str, Fraction], leaf: Mapping[str, Any], budget: Budget | None = None
) -> Fraction | None:
    """Upper bound on a level in placements with at least ``kept`` of the levels above; None: nothing is shown."""
    program = kinds.admission(key, kept)
    *above, objective = program.objectives
    before = {each.name: (each, -value) for each, value in zip(above, kept.values(), strict=True)}
    checker = Checker(program, budget or Budget())
    bound = checker.bound(read_leaf(kinds, leaf, program), objective, before, len(above))
    return None if bound is None else -bound


def least_balance(
    kinds: Kinds,
    measure: str,
    pieces: list[Piece],
    placed: Mapping[str, Fraction],
    near: float,
    budget: Budget | None = None,
) -> float:
    """The largest lower bound on the balance that the pieces prove; 0 if they prove nothing.

    ``placed``: amount placed, by level. ``near``: the expected bound, which sets the precision of pattern searches.
    ``budget``: once it is spent, the remaining pieces prove nothing.
    """
    budget = budget or Budget()
    if measure == "max_load":
        return max((_largest(kinds, piece, placed) for piece in pieces if not budget.spent), default=0.0)
    reached, least = 0.0, math.inf
    for piece in sorted(pieces, key=lambda each: (each.low, each.high)):
        if piece.low > reached or budget.spent:
            break
        least, reached = min(least, _least_sum(kinds, measure, piece, placed, near)), max(reached, piece.high)
    if reached < 1 or not least > 0:
        return 0.0
    return math.sqrt(least / kinds.size) if measure == "deviation" else least / kinds.size


def _least_sum(kinds: Kinds, measure: str, piece: Piece, placed: Mapping[str, Fraction], near: float) -> float:
    """What a piece proves of the sum that measures the balance; infinite where it shows that there is no placement."""
    points: dict[str, Fraction] | None = None
    if piece.tangents is not None:
        points = {kinds.label_of_node.get(n, n): rational(a) for n, a in piece.tangents.items()}
    fine = 5e-7 * max(near, 1e-4) if measure == "deviation" else 2e-7
    if piece.low > piece.high and measure != "max_load":
        return -math.inf
    program, empty = kinds.even(measure, placed, piece.low, piece.high, points, fine)
    objective = None if empty else program.objectives[-1]
    bound = Checker(program).bound(read_leaf(kinds, piece.leaf, program), objective, {}, 0)
    return -math.inf if bound is None else math.inf if empty else float(bound)


def _largest(kinds: Kinds, piece: Piece, placed: Mapping[str, Fraction]) -> float:
    """The largest load that a piece proves: by lines, or because patterns with smaller loads do not suffice."""
    found = _least_sum(kinds, "max_load", piece, placed, piece.high)
    return found if found < math.inf else piece.high


def _check_admission(
    kinds: Kinds,
    where: NDArray[np.int64],
    answer: PlacementAnswer,
    proof: PlacementProof,
    budget: Budget,
) -> tuple[list[Check], bool]:
    """Recount the numbers of every level, and prove or quote the most of each."""
    recounted, placed, wanted, told = _recounted(kinds.instance, where, kinds.options, answer)
    checks, proven = [recounted], recounted.ok
    kept: dict[str, Fraction] = {}
    for k in wanted:
        most, least = told.get(k, Fraction(0)), wanted[k] - kinds.lost.get(k, 0)
        name = f"most pods of priority {k}"
        late = budget.spent
        if k in proof.admission and not late:
            shown = most_of_level(kinds, k, kept, proof.admission[k], budget)
            least = least if shown is None else min(least, shown)
        if most < placed[k] or most > wanted[k]:
            told_and_true = f"{float(most):g} stated, {float(placed[k]):g} placed"
            checks.append(Check(name, False, float(abs(most - placed[k])), told_and_true))
        elif most >= least:
            checks.append(Check(name, True, 0, f"at most {float(least):g}, {float(placed[k]):g} placed"))
        else:
            said = f"{float(most):g} stated, only {float(least):g} shown"
            checks.append(budget.quoted(name) if late else Check(name, True, 0, said, how="quoted"))
            proven = False
        kept[k] = placed[k]
    return checks, proven


def _recounted(
    instance: PodInstance, where: NDArray[np.int64], options: Mapping[str, Any], answer: PlacementAnswer
) -> tuple[Check, dict[str, Fraction], dict[str, Fraction], dict[str, Fraction]]:
    """Whether placed and wanted amounts of levels are as stated; both, and the stated most of each level."""
    placed, wanted = count_levels(instance, where, options)
    unit = units_of(levels_of(instance, options))

    def meant(key: str, stated: float) -> Fraction:  # the multiple of a unit that it is nearest to, such as 29/12
        exact = round(rational(stated) / unit.get(key, 1)) * unit.get(key, Fraction(1))
        return exact if float(exact) == stated else rational(stated)

    every = answer.admitted.items()
    told = {key: (meant(key, each.admitted), meant(key, each.wanted)) for key, each in every}
    wrong = sorted(k for k in {*told, *wanted} if told.get(k) != (placed.get(k), wanted.get(k)))
    detail = f"priority {wrong[0]}" if wrong else ""
    check = Check("pods of every priority recounted", not wrong, len(wrong), detail)
    return check, placed, wanted, {key: meant(key, each.most) for key, each in every}


def count_levels(
    instance: PodInstance, where: NDArray[np.int64], options: Mapping[str, Any]
) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
    """Placed and wanted amounts of every level, the most important first."""
    levels = levels_of(instance, options)
    order = {each.key: Fraction(0) for each in sorted((x for x in levels if x is not None), key=lambda x: x.rank)}
    placed, wanted = dict(order), dict(order)
    for level, there in zip(levels, where >= 0, strict=True):
        if level is not None:
            wanted[level.key] += level.worth
            placed[level.key] += level.worth * int(there)
    return placed, wanted


def _check_balance(objective: float, bound: float, shown: float, proven: bool) -> tuple[Check, Claim]:
    """Check the bound of the balance; return also the claim that it supports."""
    if bound > objective + TOLERANCE:
        return Check("bound of the balance", False, bound - objective, "above the balance"), "feasible"
    if bound <= shown + TOLERANCE:
        return Check("bound of the balance", True, 0, f"at least {shown:.6g}"), "bounded" if proven else "feasible"
    return Check("bound of the balance", True, 0, f"{bound:.6g} stated, {shown:.6g} shown", how="quoted"), "feasible"


def _weighted(instance: PodInstance, where: NDArray[np.int64], options: Mapping[str, Any]) -> Fraction:
    """Admission as one number: a unit outweighs all later levels, up to 40 bits; or the least share."""
    placed, wanted = count_levels(instance, where, options)
    if options.get("admission") == "fair" and (shares := QueueShares(instance, options).ordered(where.tolist())):
        return shares[0]
    unit = units_of(levels_of(instance, options))
    units = {key: wanted[key] / unit[key] for key in wanted}
    total, weight = Fraction(0), Fraction(1)
    used: list[str] = []
    for key in units:
        if used and math.prod(1 + units[j] for j in (*used, key)) > 2**40:
            break
        used.append(key)
    for key in reversed(used):
        total += weight * placed[key] / unit[key]
        weight *= 1 + units[key]
    return total


def _metrics(
    instance: PodInstance,
    where: NDArray[np.int64],
    loads: NDArray[np.float64],
    objective: float,
    bound: float,
    measure: str,
) -> dict[str, float | int | Fraction | str]:
    fresh = np.array([pod.node is None for pod in instance.pods], bool)
    at = zip(instance.pods, where.tolist(), strict=True)
    moved = [pod for pod, n in at if pod.node and n >= 0 and instance.nodes[n].name != pod.node]
    found = {name: balance_of(loads, name) for name in ("deviation", "max_load", "mean_absolute")}
    return {
        **found,
        "sigma": found["deviation"],
        "largest_load": found["max_load"],
        "admitted": int((where[fresh] >= 0).sum()),
        "waiting": int((where < 0).sum()),
        measure: objective,
        "absolute_gap": objective - bound,
        "relative_gap": _gap(objective, bound),
        "move_cost": float(sum(size_of(pod.move_cost or 0.0) for pod in moved)),
    }


def _gap(objective: float, bound: float) -> float:
    return (objective - bound) / objective if objective - bound > TOLERANCE + 1e-11 else 0.0


def _judge(claimed: Claimed) -> Finding:
    document = claimed.document
    if document.status not in ("optimal", "feasible"):
        return Finding("feasible", (Check("an answer", False, detail=f"status {document.status}: nothing to judge"),))
    objective, bound = (float(rational(0 if v is None else v)) for v in (document.objective, document.bound))
    finding = _judge_placement(claimed, objective, bound)
    short = [key for key, each in claimed.answer.admitted.items() if each.admitted != each.most]
    if document.status == "optimal" and short:
        told = Check("an optimum admits the most", False, len(short), f"level {short[0]} does not")
        return replace(finding, checks=(*finding.checks, told))
    if document.status == "optimal" and objective - bound > 2 * TOLERANCE:  # the cheapest moves may cost one of them
        told = Check("an optimum meets its bound", False, objective - bound, f"{bound:.6g} below {objective:.6g}")
        return replace(finding, checks=(*finding.checks, told))
    return finding


def _measure(document: Document, instance: PodInstance, changes: Changes, finding: Finding) -> Finding:
    """For ``deviation``: squares are no less than they are, and the variance in squared percent becomes its root.

    Where the document states admission as one number, its stages are those of an unchanged answer.
    """
    if document.options.get("balance", "deviation") == "deviation":
        finding = _rooted(document, changes, finding)
    if "admission" not in document.stages or finding.objective is None:
        return finding
    index, placement = {node.name: n for n, node in enumerate(instance.nodes)}, document.answer["placement"]
    where = np.array([index.get(placement.get(pod.name), -1) for pod in instance.pods], np.int64)
    stages = {"admission": _weighted(instance, where, document.options), "balance": Fraction(finding.objective)}
    return replace(finding, stages=stages)


def _rooted(document: Document, changes: Changes, finding: Finding) -> Finding:
    """The finding of a variance as that of its root."""
    values = document.values or {}
    square, distance = values.get("square", {}), values.get("distance", {})
    short = [
        node
        for node, each in distance.items()
        if (d := rational(each)) * d * (1 - _ROUNDED) > rational(square.get(node, 0)) + _ROUNDED
    ]
    check = Check.none("squares of distances", short)
    finding = replace(finding, checks=(*finding.checks, check))

    def root(value: Fraction, stated: Number | None) -> Fraction:
        said = Fraction(-1) if stated is None else rational(stated)
        if said >= 0 and agrees(str((100 * said) ** 2), value, finding.tolerance):
            return said  # compared before the root, which magnifies rounding near 0
        return Fraction(math.sqrt(max(value, Fraction(0))) / 100)

    if any(isinstance(change, Cost) and change.stage == "balance" for change in changes):
        return finding
    objective = None if finding.objective is None else root(Fraction(finding.objective), document.objective)
    bound = None if finding.bound is None else root(Fraction(finding.bound), document.bound)
    return replace(finding, objective=objective, bound=bound)


def _with_tangents(claimed: Claimed) -> ExactProgram:
    """The problem that changes refer to, with the tangents that a proof names (all tangents are valid)."""
    proof = claimed.document.proof
    stages = proof.get("stages", {})
    leaves = [*proof.get("empty", []), *(leaf for each in stages.values() for leaf in each)]
    named = [label for leaf in leaves for label in leaf.get("rows", {}).get("tangent", {}).get("at", ())]
    parts = (next(csv.reader([label])) for label in named)
    return restate_pods(claimed.instance, claimed.document.options, [(node, Fraction(at)) for node, at in parts])


def _changed_figures(claimed: Claimed, values: Mapping[str, Mapping[str, Any]]) -> Finding:
    """The answer of a changed model: nodes and cards are those of the values, and figures follow from them."""
    instance, answer, document = claimed.instance, claimed.answer, claimed.document
    where = _placed_of(claimed)[0]
    told = {
        "x": {label_text(pair): 1 for pair in answer.placement.items()},
        "y": {label_text((pod, answer.placement[pod], k)): 1 for pod, each in answer.cards.items() for k in each},
    }
    recounted, placed, _, most = _recounted(instance, where, document.options, answer)
    excess = [key for key, value in most.items() if value != placed.get(key)]
    if recounted.ok and excess:
        recounted = Check(recounted.name, False, len(excess), f"most of priority {excess[0]}")
    checks = (same_values(told, values), _who_waits(claimed, where), recounted)
    measure, loads = str(document.options.get("balance", "deviation")), loads_of(instance, where.tolist())
    objective, bound = (None if v is None else float(rational(v)) for v in (document.objective, document.bound))
    figures = _metrics(instance, where, loads, balance_of(loads, measure), 0.0, measure)
    gap = None if objective is None or bound is None else objective - bound
    figures |= {"absolute_gap": "unknown" if gap is None else gap}
    figures |= {"relative_gap": "unknown" if document.gap is None else float(rational(document.gap))}
    return Finding("feasible", checks, metrics=figures)


VERIFIER = Verifier(
    "pod-placement",
    PlacementAnswer,
    None,
    _judge,
    options=PodOptions,
    restated=_with_tangents,
    main="balance",
    needed=NEEDED,
    figures=_changed_figures,
    measure=_measure,
)
