"""Verify a solution file against a problem: answer and proof are read from the file, the rest is recomputed.

The problem is the statement itself: that of a problem file, or that which a model of one's own makes of its instance.
The certificate says so; a statement that says the wrong thing is not found out here. No solver is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from flowlex.formulations.language.statement import Statement
from flowlex.instances.exact_rationals import rational
from flowlex.validation.certificates.certificate import SUPPORTING, WEAKER, Certificate, Check
from flowlex.validation.certificates.exact_numbers import agrees
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.solution_document import Numeric, Solved, Strict, read_as
from flowlex.validation.certificates.verifier_interface import gap_check, require_solution
from flowlex.validation.proofs.checker import StageVerdict, Verdict, judge
from flowlex.validation.proofs.exact_program import ExactProgram
from flowlex.validation.proofs.own_statement import exact_program
from flowlex.validation.proofs.proof import exact_answer, from_document

#: Begins the check that says what a verdict rests on.
PROVEN_FOR = "proven for the problem as stated in"


class StatedStage(Strict):
    """An objective as a file states it."""

    value: Numeric
    """Value of the answer."""
    bound: Numeric | None
    """What is proven: no answer is better, among the optima of the objectives before."""
    quoted: Numeric | None
    """What the solver states beyond that."""
    given_away: Numeric
    """How much worse it became for later objectives."""


class SolutionDocument(Solved):
    """A solution file of a problem or of a model of one's own."""

    stages: dict[str, StatedStage]
    """The objectives in order."""
    answer: dict[str, dict[str, Numeric]]
    """Values that are not 0, by variable and label."""
    table: Any = None
    """The answer in the words of a model, for readers."""


def verify_solution(
    document: object,
    problem: Statement,
    *,
    kind: str,
    name: str | None,
    fingerprint: str,
    stated_in: str,
    budget: Budget | None = None,
) -> Certificate:
    """Prove or refuse what a solution file says of a problem with all its changes, of any ``name`` if that is None.

    ``stated_in``: where the problem is stated, for the certificate: a file's name, ``the model Shifts``. What is not
    recomputed within the budget is quoted. Raises `SolutionError`: the document is no solution file of this version.
    """
    require_solution(document)
    read: SolutionDocument = read_as(SolutionDocument, document, "")
    mine = read.kind == f"{kind}-solution"
    same = read.fingerprint == fingerprint and name in (None, read.instance)
    other = "" if same else f"of {read.instance[:60]!r}, not of this one"
    basis = [
        Check("instance kind matches", mine, detail="" if mine else f"{read.kind[:60]}, not {kind}-solution"),
        Check("instance fingerprint matches", same, detail=other),
    ]
    if not same or not mine:
        return Certificate("feasible", False, tuple(basis))
    if read.status in ("error", "time_limit"):
        text = f"status {read.status!r} claims nothing: {read.message[:200] or 'without a message'}; solve again"
        return Certificate("feasible", False, (*basis, Check("the file holds a claim", False, detail=text)))
    program = exact_program(problem)
    answered = read.status in ("optimal", "feasible")
    try:
        values = exact_answer(read.answer, program) if answered else None
        budget = budget or Budget()
        verdict = judge(program, values, from_document(read.proof, program), read.status, budget)
        checks = list(verdict.certificate.checks)
        if verdict.certificate.ok:
            stated = _bindings(read, verdict, program)
            of_proof = ("status", "stated claim", "bound", "stated bound", "given away")
            checks += [
                budget.quoted(check.name) if verdict.late and not check.ok and check.name.endswith(of_proof) else check
                for check in stated
            ]
    except (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        failed = Check("can be judged", False, detail=f"{type(error).__name__}: {error}"[:300])
        return Certificate("feasible", False, (*basis, failed))
    if all(check.verdict == "proven" for check in checks):
        basis.append(Check(f"{PROVEN_FOR} {stated_in}", True))
    found = verdict.certificate
    return Certificate(found.claim, found.exact, (*basis, *checks), found.tolerance)


def _bindings(read: SolutionDocument, verdict: Verdict, program: ExactProgram) -> Iterator[Check]:
    """Compare what the file states beside answer and proof with what was found."""
    claim = verdict.claim
    yield _status(read, verdict)
    if read.certificate is not None:
        stronger = read.certificate.claim not in WEAKER.get(claim, (claim,))
        finer = read.certificate.exact and not verdict.certificate.exact
        detail = f"{read.certificate.claim!r}{' exactly' if finer else ''}, shown: {claim!r}"
        yield Check("stated claim", not stronger and not finer, detail=detail)
    answered = read.status in ("optimal", "feasible")
    if not answered:
        empty = read.objective is None and read.bound is None and read.gap is None and not read.stages
        yield Check("no figures without an answer", empty and not read.answer)
        return
    stages = {s.name: s for s in verdict.stages}
    first = verdict.stages[0] if verdict.stages else None
    tolerance = verdict.certificate.tolerance
    value = first.value if first is not None else Fraction(0)
    told = read.objective is not None and agrees(read.objective, value, tolerance)
    yield Check("objective", told, detail=f"{float(value):.12g}" if told else f"stated {read.objective}, is {value}")
    shown = first.bound if first is not None else None
    yield _bound("bound", read.bound, shown, program.objectives[0].sign if first is not None else 1, tolerance)
    yield gap_check(read)
    if list(read.stages) != list(stages):
        said, have = ", ".join(read.stages) or "none", ", ".join(stages) or "none"
        yield Check("objectives", False, detail=f"stated {said}; the problem has {have}")
        return
    for objective in program.objectives:
        yield from _stage(read, read.stages[objective.name], stages[objective.name], objective.sign, tolerance)


def _status(read: SolutionDocument, verdict: Verdict) -> Check:
    detail = f"{read.status!r}, shown: {verdict.claim}"
    if verdict.claim in SUPPORTING[read.status]:
        return Check("status", True, detail=detail)
    if read.status == "optimal":
        # By the solver's word: it states a bound that the value reaches for every objective that is not proven.
        open_ = [s for s in verdict.stages if not s.proven]
        words = [read.stages[s.name].quoted if s.name in read.stages else None for s in open_]
        reached = all(w is not None and agrees(w, s.value, 1e-6) for w, s in zip(words, open_, strict=True))
        if reached and open_:
            return Check("status", True, detail=f"{detail}; optimal by the solver's word", how="quoted")
    return Check("status", False, detail=detail)


def _bound(name: str, stated: Any, shown: Fraction | None, sign: int, tolerance: float) -> Check:
    """A stated bound may be weaker than what is proven, never stronger."""
    if stated is None:
        return Check(name, True, detail="none stated")
    detail = f"stated {stated}, shown {'nothing' if shown is None else f'{float(shown):.12g}'}"
    if shown is None:
        return Check(name, False, detail=detail)
    weaker = sign * rational(stated) <= sign * shown
    return Check(name, weaker or agrees(stated, shown, tolerance), detail=detail)


def _stage(
    read: SolutionDocument, stated: StatedStage, shown: StageVerdict, sign: int, tolerance: float
) -> Iterator[Check]:
    name = f"objective {shown.name}"
    ok = agrees(stated.value, shown.value, tolerance)
    detail = f"{float(shown.value):.12g}" if ok else f"stated {stated.value}, is {shown.value}"
    yield Check(f"{name}: value", ok, detail=detail)
    yield _bound(f"{name}: stated bound", stated.bound, shown.bound, sign, tolerance)
    if not agrees(stated.given_away, shown.given_away, tolerance):
        detail = f"stated {stated.given_away}, is {shown.given_away}"
        yield Check(f"{name}: given away", False, detail=detail)
    if stated.quoted is not None and not shown.proven and read.status == "feasible":
        better = sign * rational(stated.quoted) <= sign * shown.value or agrees(stated.quoted, shown.value, 1e-6)
        yield Check(f"{name}: the solver's bound", better, detail=f"{stated.quoted}", how="quoted")
