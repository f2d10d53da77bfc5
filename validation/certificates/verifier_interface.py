"""The contract of solution files: their contents, their verifiers, and the data that a verdict is bound to.

A solution file claims something of an instance: that an answer is optimal, bounded or feasible, or that there is none
(infeasible) or no best one (unbounded). `verify` proves or refuses that from the instance's own data. It calls no
solver and no model. What optimality needs (prices, cuts, rays over the instance's own names) travels in ``proof``.

A verifier judges the files of one kind of instance. Other packages add theirs by an entry point::

    [project.entry-points."flowlex.verifiers"]
    my-problem = "my_package:MY_VERIFIER"           # the name is the kind of instance, the value a `Verifier`

A verifier returns a `Finding`: checks, the claim they support, and the figures it recomputed. The contract compares
them with the file's kind, version, fingerprint, status, objective, bound, gap, stages, metrics and claim.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias

from flowlex.formulations.deferred_compilation import small_work
from flowlex.formulations.gc_pause import collector_paused
from flowlex.instances.exact_rationals import rational
from flowlex.instances.extensions import entry_points, kinds
from flowlex.instances.input_errors import InstanceError
from flowlex.instances.instance_base import Instance
from flowlex.instances.model_changes import Changes, in_words, read_changes
from flowlex.instances.named_modules import MODELS_VARIABLE, load_named_modules
from flowlex.validation.certificates.certificate import SUPPORTING, WEAKER, Certificate, Check, Finding
from flowlex.validation.certificates.exact_numbers import Number, agrees
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.solution_document import (
    Document,
    Numeric,
    SolutionError,
    Stated,
    Strict,
    read_as,
)
from flowlex.validation.proofs.changed_program import changed_program
from flowlex.validation.proofs.exact_program import ExactProgram
from flowlex.validation.proofs.proof import Completion, exact_answer

__all__ = [
    "RULES",
    "Claimed",
    "Completion",
    "Document",
    "Finding",
    "Numeric",
    "SolutionError",
    "Strict",
    "Verifier",
    "changed_finding",
    "gap_check",
    "read_document",
    "verifier_for",
    "verifier_kinds",
    "verify",
]

#: Version of solution files.
VERSION = 3
_GROUP = "flowlex.verifiers"
#: Name of the check whose detail lists the changes under which an answer holds.
RULES = "rules it holds under"
#: Our own verifiers, by kind of instance; imported when used.
_OWN: dict[str, str] = {
    "jit-bandwidth": "flowlex.validation.restated.jit:VERIFIER",
    "flow-scheduling": "flowlex.validation.restated.flow:VERIFIER",
    "gpu-assignment": "flowlex.validation.restated.gpu_answer:VERIFIER",
    "allocation": "flowlex.validation.restated.allocation:VERIFIER",
    "load-partition": "flowlex.validation.restated.load:VERIFIER",
    "min-cost-flow": "flowlex.validation.restated.min_cost_flow:VERIFIER",
    "pod-placement": "flowlex.validation.restated.pods.verifier:VERIFIER",
}
#: Exceptions of a judgement that refuse the document.
_REFUSING = ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError
#: Relative difference between a metric and its recomputation that floating point explains.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Claimed:
    """Input of a verifier: document, answer and proof as its types, instance, time budget, own goals."""

    document: Document
    answer: Any
    proof: Any
    instance: Any
    budget: Budget = field(default_factory=Budget)
    goals: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Verifier:
    """Judges solution files of one kind of instance.

    Attributes
    ----------
    kind
        Kind of instance.
    answer, proof
        Classes of ``answer`` and ``proof`` of the document; None: the proof is one of `flowlex.validation.proofs`.
    judge
        Recomputes the answer from the instance and judges its proof. An exception refuses the document.
    solvable
        Whether every instance has an optimum: then no document may claim that there is none.
    options
        Class of ``options`` of the document; None: any content.
    restricted
        Of a problem that is never written out: the changed problem over the columns that matter, and what adds to the
        proof what it leaves out; None: the problem is written out, by ``restated``.
    figures
        Judges the answer of a changed model in the instance's own names, given the values of its variables: checks, and
        its metrics.
    measure
        Converts the finding of a changed model to the unchanged objective, if that is not its main stage's value.
    restated, main, needed
        The problem of a claim's instance and options in exact numbers, to judge answers of changed models (which are
        not judged without it); the name of the objective that the document states (empty: the last one); and the rows
        that no change may drop.
    """

    kind: str
    answer: type[Strict]
    proof: type[Strict] | None
    judge: Callable[[Claimed], Finding]
    solvable: bool = False
    options: type[Strict] | None = None
    figures: Callable[[Claimed, Mapping[str, Mapping[str, Any]]], Finding] | None = None
    measure: Callable[[Document, Any, Changes, Finding], Finding] | None = None
    restated: Callable[[Claimed], ExactProgram] | None = None
    restricted: Callable[[Any, Document, Changes], tuple[ExactProgram, Completion] | None] | None = None
    main: str = ""
    needed: frozenset[str] = frozenset()


#: Judges of kinds whose solution files hold the general proof, by kind; models of one's own register theirs.
Judge: TypeAlias = Callable[[Mapping[str, Any], Instance, Budget | None], Certificate]
_JUDGES: dict[str, Judge] = {}


def register_judge(kind: str, judge: Judge) -> None:
    """Let a function judge the solution files of a kind (of version 3, see `flowlex.validation.proofs`)."""
    _JUDGES[kind] = judge


@cache
def _foreign() -> dict[str, str]:
    return {point.name: point.value for point in entry_points(_GROUP) if point.name not in _OWN}


def verifier_kinds() -> tuple[str, ...]:
    """Kinds of instance whose solution files can be judged, sorted."""
    return tuple(sorted({*_OWN, *_foreign()}))


@cache
def verifier_for(kind: str) -> Verifier | None:
    """The verifier of a kind of instance; None when there is none.

    Parameters
    ----------
    kind
        Kind of instance; `TypeError` where the entry point of a package gives no `Verifier` of this kind.
    """
    place = _OWN.get(kind) or _foreign().get(kind)
    if place is None:
        return None
    found = pkgutil.resolve_name(place)
    if not isinstance(found, Verifier) or found.kind != kind:
        raise TypeError(f"{place} is no Verifier of kind {kind!r}")
    return found


def require_solution(document: object) -> None:
    """Raise `SolutionError` unless a file holds a solution of this version (and not, for example, an instance)."""
    if not isinstance(document, dict):
        raise SolutionError("not a solution file: an object with kind, version, answer and proof is expected")
    kind = document.get("kind")
    if not str(kind).endswith("-solution") and kind in kinds():  # which looks through all installed packages
        raise SolutionError(
            f"this is an instance of kind {kind!r}, not a solution; name the file that `flowlex solve INSTANCE -o "
            "FOLDER` writes first, then the instance"
        )
    version = document.get("version")
    if isinstance(version, int) and version != VERSION:
        raise SolutionError(f"version: {str(version)[:20]} is not {VERSION}, which this flowlex reads; solve again")


def read_document(document: object) -> Document:
    """Read plain data as a solution document.

    Raises `SolutionError`: it is none; the message names the place and what is wrong.
    """
    require_solution(document)
    read: Document = read_as(Document, document, "")
    return read


@collector_paused()
def verify(
    document: object,
    instance: Instance,
    budget: Budget | None = None,
    *,
    goals: tuple[Any, ...] = (),
    changes: Changes | None = None,
) -> Certificate:
    """Prove or refuse what a solution document claims of an instance.

    Parameters
    ----------
    document
        The content of a solution file (``Solution.to_dict()``, or what a JSON file holds).
    instance
        The instance that it is said to solve.
    budget
        Processor seconds that proofs may take; unlimited by default. After that, claims are quoted.
    goals
        Your own goals of flow scheduling, from `flowlex.models.flow.own_goals.ask`; missing ones are quoted.
    changes
        The changes of the model under which the answer must be solved, exactly these; None: those that it states.

    Returns
    -------
    Certificate
        ``ok`` if the document is true; its claim is what was proven. A failed check states why it is refused.

    Raises
    ------
    SolutionError
        The document cannot be judged at all.

    Examples
    --------
    >>> from flowlex import generate, model_for
    >>> instance = generate("network-random")
    >>> verify(model_for(instance).solve("network").to_dict(), instance).claim
    'optimal'
    """
    own = instance.kind in _OWN or (isinstance(document, Mapping) and _kind_of(document) in _OWN)
    if isinstance(document, Mapping) and document.get("version") == 3 and not own:
        if instance.kind == "problem":
            importlib.import_module("flowlex.models.problem_model")
        elif instance.kind not in _JUDGES and os.environ.get(MODELS_VARIABLE):
            load_named_modules()
        judge = _JUDGES.get(instance.kind)
        if judge is None:
            raise SolutionError(f"no model of kind {instance.kind!r} is known here; name its file with --models")
        found = judge(document, instance, budget)
        if changes is None:
            return found
        same = read_changes(dict(document.get("changes") or {})).plain() == changes.plain()
        return found.including([Check("solved under the rules demanded", same)])
    require_solution(document)
    kind = _kind_of(document)
    verifier = verifier_for(kind)
    if (kind == "problem" or kind in _JUDGES) and instance.kind != kind:  # a problem or a model of one's own
        raise SolutionError(f"kind: this is a {kind}-solution, the instance is of kind {instance.kind!r}")
    read = read_document(document)
    if verifier is None or not read.kind.endswith("-solution"):
        known = ", ".join(f"{name}-solution" for name in verifier_kinds())
        raise SolutionError(f"kind: {read.kind[:60]!r} has no verifier; those that have one: {known}")
    mine = Check("instance kind matches", kind == instance.kind, detail=f"{kind}; the instance: {instance.kind}")
    same = read.fingerprint == instance.fingerprint and read.instance == instance.name
    detail = "" if same else f"of {read.instance!r} {read.fingerprint[:15]}, not of {instance.name!r} "
    print_of = Check("instance fingerprint matches", same, detail=detail + ("" if same else instance.fingerprint[:15]))
    first: tuple[Check, ...] = mine, print_of
    if changes is not None:
        first = *first, _demanded(read, instance, changes)
    if read.duals:
        first = *first, Check("duals are in the proof", False, detail="multipliers of its rows, and nowhere else")
    if not all(check.ok for check in first):
        return Certificate("feasible", True, first)
    if read.status in ("error", "time_limit") and not (read.answer or read.values):
        text = f"status {read.status!r} claims nothing: {read.message[:200] or 'without a message'}; solve again"
        return Certificate("feasible", True, (*first, Check("the file holds an answer or a claim", False, detail=text)))
    if verifier.options is not None:
        read_as(verifier.options, read.options, "options")
    if read.changes is not None or read.values is not None or instance.changes:
        if every := _all_changes(read, instance):  # none where no method but the statement solves the problem
            first = *first, Check(RULES, True, detail="; ".join(map(in_words, every)))
        budget = budget or Budget()
        return _judged(first, read, lambda: _changed(read, verifier, instance, budget, goals), instance.cells)
    answered = bool(read.answer) or read.status in ("optimal", "feasible")
    answer = read_as(verifier.answer, read.answer, "answer") if answered else None
    if verifier.solvable and read.status in ("infeasible", "unbounded"):
        denied = Check("there is no answer", False, detail=f"{read.status!r}; every {kind} instance has one")
        return Certificate("feasible", True, (*first, denied))
    proof = read.proof if verifier.proof is None else read_as(verifier.proof, read.proof, "proof")
    claimed = Claimed(read, answer, proof, instance, budget or Budget(), goals)
    return _judged(first, read, lambda: verifier.judge(claimed), instance.cells)


def _kind_of(document: Any) -> str:
    """Kind of instance that a solution file is of, as it says."""
    return str(document.get("kind")).removesuffix("-solution")


def _all_changes(read: Document, instance: Instance) -> Changes:
    """The changes of the instance, then those that the document states."""
    try:
        stated = read_changes(read.changes or {})
    except InstanceError as error:
        raise SolutionError(f"changes: {error}") from error
    return stated if instance.changes is None else instance.changes.also(*stated)


def _demanded(read: Document, instance: Instance, wanted: Changes) -> Check:
    """Whether the answer was solved under these changes, beside those of the instance, and no others."""
    own = list(instance.changes or ())
    stated = [each.model_dump() for each in _all_changes(read, instance)][len(own) :]
    asked = [each.model_dump() for each in wanted]
    missing = [in_words(each) for each, data in zip(wanted, asked, strict=True) if data not in stated]
    more = list(_all_changes(read, instance))[len(own) :]
    extra = [in_words(each) for each, data in zip(more, stated, strict=True) if data not in asked]
    parts = [("solved without", missing), ("solved with", extra)]
    detail = "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
    ok = stated == asked
    return Check("solved under the rules demanded", ok, detail=detail or ("" if ok else "the order of changes differs"))


def _judged(checks: tuple[Check, ...], read: Document, judge: Callable[[], Finding], cells: int) -> Certificate:
    """The certificate of what a judgement finds, or of its refusal."""
    try:
        with small_work(cells):
            finding = judge()
        checks = (*checks, *finding.checks, *_bindings(read, finding))
    except _REFUSING as error:
        failed = Check("can be judged", False, detail=f"{type(error).__name__}: {error}"[:300])
        return Certificate("feasible", True, (*checks, failed))
    return Certificate(finding.claim, not finding.tolerance, checks, finding.tolerance)


def changed_finding(
    document: object, instance: Instance, budget: Budget | None = None, *, goals: tuple[Any, ...] = ()
) -> Finding | None:
    """What is true of the answer of a changed model, whatever its document claims; None if it cannot be judged.

    Parameters
    ----------
    document, instance, budget, goals
        As for `verify`.
    """
    read = read_document(document)
    verifier = verifier_for(read.kind.removesuffix("-solution"))
    try:
        return None if verifier is None else _changed(read, verifier, instance, budget or Budget(), goals)
    except _REFUSING:
        return None


def _changed(read: Document, verifier: Verifier, instance: Instance, budget: Budget, goals: tuple[Any, ...]) -> Finding:
    """Judge values of the variables, and the proof, against the restated problem after all changes."""
    from flowlex.validation.restated.program_finding import program_finding

    if verifier.restated is None:
        raise SolutionError(f"answers of changed models of kind {instance.kind!r} cannot be judged")
    every, claimed = _all_changes(read, instance), Claimed(read, None, None, instance, budget, goals)
    few = None if verifier.restricted is None else verifier.restricted(instance, read, every)
    program, complete = few or (changed_program(verifier.restated(claimed), every, verifier.needed), None)
    values = None if read.status in ("infeasible", "unbounded") else exact_answer(read.values or {}, program)
    found = program_finding(program, values, read.proof, read.status, budget, main=verifier.main, complete=complete)
    if values is not None and values.unit.denominator > 1:  # the file states figures in floating point
        found = replace(found, tolerance=max(found.tolerance, program.tolerance))
    found = _with_figures(found, claimed, verifier)
    if verifier.measure is None or found.objective is None:
        return found
    return verifier.measure(read, instance, every, found)


def _with_figures(found: Finding, claimed: Claimed, verifier: Verifier) -> Finding:
    """The finding with what the answer in the instance's own names says beside the values of the variables."""
    read = claimed.document
    if not read.answer.keys() - {"weights", "shares"}:
        return found
    if verifier.figures is None:
        raise SolutionError(f"answers of changed models of kind {verifier.kind!r} cannot be judged")
    answer = read_as(verifier.answer, read.answer, "answer")
    bare = None if verifier.proof is None else read_as(verifier.proof, {}, "proof")
    said = verifier.figures(replace(claimed, answer=answer, proof=bare), read.values or {})
    checks = (*found.checks, *said.checks)
    return replace(found, checks=checks, metrics=said.metrics, unjudged=said.unjudged, words=said.words)


def same_values(
    told: Mapping[str, Mapping[str, Number | Fraction]],
    values: Mapping[str, Mapping[str, Any]],
    tolerance: float = 0.0,
) -> Check:
    """Whether the variables have the values that the answer in the instance's own names tells, by name and label."""
    wrong = []
    for name, mine in told.items():
        given = {label: rational(value) for label, value in values.get(name, {}).items()}
        for label in {**mine, **given}:
            here, there = rational(mine.get(label, 0)), given.get(label, Fraction(0))
            if here != there and abs(here - there) > Fraction(tolerance) * max(Fraction(1), abs(there)):
                wrong.append(f"{name}[{label}]")
    return Check.none("answer is that of the values", sorted(wrong))


def _bindings(document: Document, finding: Finding) -> Iterator[Check]:
    """Compare what the document states beside answer and proof with what was recomputed."""
    true = finding.claim in SUPPORTING.get(document.status, ())
    word = any(check.how == "quoted" for check in finding.checks)
    claims = {"optimal": word or not document.proof, "infeasible": word}
    quoted = claims.get(document.status, False) and finding.claim in ("bounded", "feasible")
    detail = f"{document.status!r}, shown: {finding.claim}{', the rest quoted from the solver' if quoted else ''}"
    yield Check("status", true or quoted, detail=detail, how="quoted" if quoted else "recomputed")
    if document.certificate is not None:
        yield _stated(document.certificate, finding, {*WEAKER["optimal"], document.status} if quoted else set())
    tolerance = finding.tolerance
    yield _figure("objective", document.objective, finding.objective, tolerance)
    yield _bound(document, finding, quoted)
    yield gap_check(document, finding.gap)
    names = sorted({*document.stages, *finding.stages})
    stages = [_figure(f"stage {n}", document.stages.get(n), finding.stages.get(n), tolerance) for n in names]
    wrong = [check for check in stages if not check.ok]
    right = Check("stages", True, max((c.worst for c in stages), default=0), f"{len(stages)} values are as stated")
    yield from wrong or ([right] if stages else [])
    yield _metrics(document, finding)


def _stated(certificate: Stated, finding: Finding, quoted: Collection[str]) -> Check:
    """A file may state a weaker or less exact certificate than is shown; a stronger one if it is ``quoted``."""
    weaker = certificate.claim in WEAKER.get(finding.claim, (finding.claim,))
    stronger = not weaker and certificate.claim not in quoted
    wrong = {
        f"claim {certificate.claim!r}, shown: {finding.claim!r}": stronger,
        f"exact, shown: to a tolerance of {finding.tolerance}": certificate.exact and bool(finding.tolerance),
        f"tolerance {certificate.tolerance}, shown: {finding.tolerance}": certificate.tolerance < finding.tolerance,
    }
    failed = [text for text, is_wrong in wrong.items() if is_wrong]
    detail = "; ".join(failed)[:200] or f"{certificate.claim!r}, shown: {finding.claim!r}"
    return Check("stated claim", not failed, len(failed), detail, "recomputed" if weaker or failed else "quoted")


def _figure(name: str, stated: Number | None, found: Fraction | int | None, tolerance: float) -> Check:
    if stated is None or found is None:
        return Check(name, stated is None and found is None, detail=f"stated {stated}, recomputed {found}")
    ok = agrees(stated, found, tolerance)
    worst = 0 if ok else _size(rational(stated) - found)
    return Check(name, ok, worst, f"{_short(found)}" if ok else f"stated {stated}, recomputed {_short(found)}")


def _bound(document: Document, finding: Finding, quoted: bool) -> Check:
    """A stated bound may be weaker than that found, never stronger (we minimise); if quoted, it must fit the answer."""
    stated, found = document.bound, finding.bound
    if stated is None:
        return Check("bound", document.status != "optimal" or finding.objective is None, detail="none stated")
    if finding.objective is not None and (quoted or (found is None and finding.claim == "feasible")):
        below = rational(stated) <= finding.objective or agrees(stated, finding.objective, finding.tolerance)
        return Check("bound", below, detail=f"stated {stated}, shown {_short(found)}", how="quoted")
    if document.status == "optimal" or found is None:
        return _figure("bound", stated, found, finding.tolerance)
    ok = rational(stated) <= found or agrees(stated, found, finding.tolerance)
    return Check("bound", ok, 0 if ok else _size(rational(stated) - found), f"stated {stated}, shown {_short(found)}")


def gap_check(document: Any, own: float | None = None) -> Check:
    """Whether a file states the gap of its objective and bound; ``own``: by a measure of the problem's own."""
    if document.objective is None or document.bound is None:
        return Check("gap", document.gap is None, detail=f"stated {document.gap}")
    objective = rational(document.objective)
    usual = abs(objective - rational(document.bound)) / max(Fraction(1), abs(objective))
    gap = usual if own is None else Fraction(own)
    ok = document.gap is not None and agrees(document.gap, gap, _ROUNDING)
    return Check("gap", ok, detail=f"stated {document.gap}, recomputed {float(gap):.6g}")


def _metrics(document: Document, finding: Finding) -> Check:
    """Metrics are as recomputed; those that cannot be (how an answer was found) only have to be of their kind."""
    wrong = []
    for name, stated in document.metrics.items():
        if name in finding.metrics:
            if not _same(stated, finding.metrics[name]):
                wrong.append(f"{name} is {_short(finding.metrics[name])} (stated {_short(stated)})")
        elif name not in {*finding.unjudged, *finding.words}:
            wrong.append(f"{name} is nothing that is recomputed")
        elif reason := _senseless(stated, text=name in finding.words):
            wrong.append(f"{name} is {reason} (stated {_short(stated)})")
    unproven = [name for name in document.metrics if name not in finding.metrics]
    detail = "; ".join(sorted(wrong)[:3]) or (f"found, not proven: {', '.join(unproven)}" if unproven else "")
    return Check("metrics", not wrong, len(wrong), detail)


def _same(stated: object, found: float | int | Fraction | str) -> bool:
    if isinstance(found, str) or isinstance(stated, (str, bool)) or not isinstance(stated, (int, float)):
        return stated == found
    return agrees(stated, rational(found) if isinstance(found, float) else found, _ROUNDING)


def _senseless(stated: object, *, text: bool) -> str:
    """Why a metric that is not recomputed is invalid; empty if it is valid."""
    if text:
        return "" if isinstance(stated, str) else "a text"
    if isinstance(stated, bool) or not isinstance(stated, (int, float)):
        return "a number"
    return "" if 0 <= stated < float("inf") else "a finite number of at least 0"


def _size(value: Fraction) -> float:
    try:
        return float(abs(value))
    except OverflowError:
        return float("inf")


def _short(value: object) -> str:
    if isinstance(value, Fraction) and value.denominator != 1:
        return repr(float(value))  # the shortest text of the nearest number
    written = str(value)
    return written if len(written) <= 60 else f"{written[:57]}..."
