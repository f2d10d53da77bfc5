"""Verify a solution file against a problem: the answer and the proof are read from the file, the rest is recomputed.

The problem is the statement itself: that of a problem file, or that which a model of one's own makes of its instance.
The certificate says so; a statement that says the wrong thing is not found out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from flowlex.formulations.language.statement import Statement
from flowlex.models.problem_solution import exact_from_document
from flowlex.validation.certificates.certificate import Certificate, Check
from flowlex.validation.certificates.solution_document import SolutionError
from flowlex.validation.proofs.checker import Verdict, judge
from flowlex.validation.proofs.own_statement import exact_program
from flowlex.validation.proofs.proof import ProofError, from_document, rational

#: Version of solution files whose proof is that of `flowlex.validation.proofs`.
VERSION = 3
_KEYS = {
    *("kind", "version", "file", "instance", "fingerprint", "model", "options", "engine", "status", "objective"),
    *("bound", "gap", "stages", "message", "answer", "table", "changes", "proof", "certificate"),
}
#: The claims that support each status; an optimum may rest on the solver's word, which the certificate then says.
_SHOWN = {
    "optimal": ("optimal",),
    "feasible": ("optimal", "bounded", "feasible"),
    "infeasible": ("infeasible",),
    "unbounded": ("unbounded",),
}


def verify_solution(
    document: Mapping[str, Any], problem: Statement, *, kind: str, name: str, fingerprint: str, stated_in: str
) -> Certificate:
    """Prove or refuse what a solution file says of a problem.

    Parameters
    ----------
    document
        Content of the file.
    problem
        The problem, with all changes.
    kind, name, fingerprint
        Of the problem or instance that the file must be of.
    stated_in
        Where the problem is stated, for the certificate: ``this file``, ``the model Shifts``.

    Raises
    ------
    SolutionError
        The document is no solution file of this version.
    """
    if document.get("version") != VERSION:
        raise SolutionError(
            f"version: {str(document.get('version'))[:20]} is not {VERSION}, which this flowlex reads; solve again"
        )
    if odd := sorted(set(document) - _KEYS, key=str):
        raise SolutionError(f"{str(odd[0])[:60]!r} is no part of a solution file")
    same_kind = document.get("kind") == f"{kind}-solution"
    same = document.get("fingerprint") == fingerprint and document.get("instance") == name
    detail = "" if same else f"of {str(document.get('instance'))[:60]!r}, not of {name!r}"
    checks = [
        Check(
            "instance kind matches",
            same_kind,
            detail=f"{str(document.get('kind'))[:60]}, not {kind}-solution" if not same_kind else "",
        ),
        Check("instance fingerprint matches", same, detail=detail),
        Check(f"proven for the problem as stated in {stated_in}", True),
    ]
    if not same or not same_kind:
        return Certificate("feasible", False, tuple(checks))
    program = exact_program(problem)
    status = document.get("status")
    if status not in _SHOWN:
        text = f"status {str(status)[:20]!r} claims nothing; solve again"
        return Certificate("feasible", False, (*checks, Check("the file holds a claim", False, detail=text)))
    try:
        answered = status in ("optimal", "feasible")
        values = exact_from_document(document.get("answer"), program) if answered else None
        verdict = judge(program, values, from_document(document.get("proof", {}), program), str(status))
        checks += [*verdict.certificate.checks, *_stated(document, verdict, str(status))]
    except (ProofError, ArithmeticError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        failed = Check("can be judged", False, detail=f"{type(error).__name__}: {error}"[:300])
        return Certificate("feasible", False, (*checks, failed))
    word = any(check.how == "quoted" for check in checks)
    claim = verdict.claim if not (word and verdict.claim == "optimal") else "bounded"
    return Certificate(claim, verdict.certificate.exact, tuple(checks), verdict.certificate.tolerance)


def _stated(document: Mapping[str, Any], verdict: Verdict, status: str) -> list[Check]:
    """Compare what the file states beside answer and proof with what was found."""
    shown = verdict.claim in _SHOWN[status]
    by_word = not shown and status == "optimal" and verdict.claim in ("bounded", "feasible")
    says = f"{status!r}, shown: {verdict.claim}{', the rest by the word of the solver' if by_word else ''}"
    checks = [Check("status", shown or by_word, detail=says, how="quoted" if by_word else "recomputed")]
    if not verdict.stages:
        return checks
    stated = document.get("stages")
    if not isinstance(stated, dict) or set(stated) != {stage.name for stage in verdict.stages}:
        return [*checks, Check("objectives", False, detail=f"stated {str(list(stated or ()))[:80]}")]
    for stage in verdict.stages:
        given = stated[stage.name]
        if not isinstance(given, dict):
            return [*checks, Check(f"objective {stage.name}", False, detail="no object")]
        checks.append(_equal(f"objective {stage.name}", given.get("value"), stage.value))
        bound = given.get("bound")
        if bound is not None:
            checks.append(_no_stronger(f"bound of {stage.name}", bound, stage.bound, stage.value))
    first = verdict.stages[0]
    checks.append(_equal("objective", document.get("objective"), first.value))
    if document.get("bound") is not None:
        checks.append(_no_stronger("bound", document["bound"], first.bound, first.value))
    return checks


def _equal(what: str, stated: Any, found: Fraction) -> Check:
    if stated is None:
        return Check(what, False, detail=f"none stated, recomputed {float(found):.10g}")
    close = abs(rational(stated) - found) <= Fraction(1, 10**9) * (1 + abs(found))
    return Check(what, close, detail="" if close else f"stated {str(stated)[:40]}, recomputed {float(found):.10g}")


def _no_stronger(what: str, stated: Any, found: Fraction | None, value: Fraction) -> Check:
    """A stated bound may be weaker than the one that is shown: farther from the value."""
    if found is None:
        return Check(what, False, detail=f"stated {str(stated)[:40]}, none is shown")
    slack = Fraction(1, 10**9) * (1 + abs(found))
    number = rational(stated)
    weaker = number <= found + slack if found <= value else number >= found - slack
    return Check(what, weaker, detail="" if weaker else f"stated {str(stated)[:40]}, shown {float(found):.10g}")
