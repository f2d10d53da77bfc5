"""Problems drawn at random against exact enumeration, and against SciPy where they are too large for it."""

import collections
import json
from fractions import Fraction

import numpy as np
import pytest

import flowlex as fx
from flowlex.formulations.language import problem_document
from flowlex.models.problem_solution import ProblemSolution
from flowlex.testing import random_problem
from flowlex.validation.proofs.checker import judge
from flowlex.validation.proofs.own_statement import exact_program
from flowlex.validation.proofs.proof import from_document
from flowlex.validation.proofs.solution_file import exact_answer
from tests.models.problem.exact_optimum import exact_optima, limit, read, scipy_optima


def _signed(problem: fx.Problem, name: str, value: float | Fraction | None) -> Fraction:
    assert value is not None
    sign = -1 if next(o.maximize for o in problem.objectives if o.name == name) else 1
    return sign * Fraction(value)


def check(problem: fx.Problem, solution: ProblemSolution) -> str:
    """Status, values, bounds and claims are right; returns what is proven."""
    exact = exact_optima(problem)
    status, optima = exact if exact is not None else scipy_optima(problem)
    close = Fraction(1, 10**6) if exact is None else Fraction(1, 10**7)
    if status == "unknown":  # SciPy does not tell infeasible from unbounded
        status = str(solution.status)
        assert status in ("infeasible", "unbounded"), status
    assert str(solution.status) == status, (solution.status, status, solution.message)
    certificate = solution.certificate
    assert certificate is not None and certificate.ok, certificate
    if status != "optimal":
        quoted = any(c.how == "quoted" for c in certificate.checks)
        assert certificate.claim == status
        return f"{status}, quoted" if quoted else f"{status}, proven"
    everything = True
    assert solution.exact is not None
    x = [int(v) * solution.exact.unit for v in solution.exact.numbers.tolist()]
    costs = read(problem).costs
    for objective, optimum, (cost, constant) in zip(problem.objectives, optima, costs, strict=True):
        stage = solution.stages[objective.name]
        best = Fraction(optimum)
        value = constant + sum(c * v for c, v in zip(cost, x, strict=True))
        assert float(abs(value)) == float(abs(stage.value))
        room = close * (1 + abs(best))
        top = limit(best, (objective.within, objective.relative))
        assert best - room <= value <= top + room, (objective.name, float(value), float(best), float(top))
        if stage.bound is not None:
            assert _signed(problem, objective.name, stage.bound) <= best + room, (objective.name, stage.bound, best)
        if stage.proven and certificate.exact and exact is not None:
            # With earlier objectives within a tolerance, or later ones, the value itself may be worse than the best.
            assert best <= value <= top
        everything = everything and stage.proven
    assert everything == (certificate.claim == "optimal")
    return (
        "optimal, proven exactly"
        if everything and certificate.exact
        else ("optimal, proven" if everything else "optimal, not proven")
    )


def judged_again(problem: fx.Problem, solution: ProblemSolution) -> None:
    """The problem and the answer, written and read, give the same verdict without a solver."""
    written = json.dumps(problem_document.to_document(problem), allow_nan=False)
    again = problem_document.from_document(fx.Problem, json.loads(written))
    assert problem_document.fingerprint(again) == problem_document.fingerprint(problem)
    document = json.loads(json.dumps(solution.to_dict(), allow_nan=False))
    program = exact_program(again)
    values = exact_answer(document["answer"], program) if solution.status.has_answer else None
    verdict = judge(program, values, from_document(document["proof"], program), document["status"])
    assert solution.certificate is not None
    assert verdict.certificate == solution.certificate
    for stage in verdict.stages:
        assert float(stage.value) == float(solution.stages[stage.name].value)


def one(seed: int) -> str:
    """Draw, solve and check one problem."""
    problem = random_problem(np.random.default_rng(seed))
    solution = problem.solve()
    found = check(problem, solution)
    judged_again(problem, solution)
    return found


def _run(seeds: range) -> None:
    found = collections.Counter[str]()
    for seed in seeds:
        try:
            found[one(seed)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    proven = sum(n for kind, n in found.items() if ", proven" in kind)
    print(f"{len(seeds)} problems, {100 * proven / len(seeds):.2f} % proven:", dict(found))
    assert proven >= 0.98 * len(seeds)


@pytest.mark.parametrize("seed", [5555, 7991])
def test_an_unbounded_problem_that_presolve_calls_infeasible_is_unbounded(seed: int) -> None:
    assert one(seed) == "unbounded, proven"


@pytest.mark.rare
def test_a_hundred_random_problems_have_the_right_status_values_and_proofs() -> None:
    _run(range(100))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(1, 20))
def test_ten_thousand_random_problems(block: int) -> None:
    _run(range(block * 500, (block + 1) * 500))
