"""Forged proofs: whatever is written into a proof, nothing false is proven."""

import json
import random
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

import flowlex as fx
from flowlex.testing import random_problem
from flowlex.validation.proofs.checker import Checker, Verdict, judge
from flowlex.validation.proofs.exact_program import Exact, ExactProgram
from flowlex.validation.proofs.own_statement import exact_program
from flowlex.validation.proofs.proof import Branch, Derived, Leaf, Proof, ProofError, from_document, to_document
from flowlex.validation.proofs.solution_file import exact_answer
from flowlex.validation.restated.gpu_answer import _values
from flowlex.validation.restated.gpu_program import GpuRound
from tests.models.problem.exact_optimum import exact_optima, limit
from tests.seeds import seeds
from tests.validation.proofs.forging import forged, names_of

#: Documents of this many seeds of problems are forged.
PROBLEMS = 40
_CLOSE = Fraction(1, 10**6)


@cache
def known(seed: int) -> tuple[fx.Problem, ExactProgram, dict[str, Any], str, list[Fraction]] | None:
    """A problem with its exact optima, and its solution file; None if it is too large."""
    problem = random_problem(np.random.default_rng(seed), most=2)
    truth = exact_optima(problem, 400)
    if truth is None:
        return None
    return problem, exact_program(problem), problem.solve().to_dict(), *truth


def true(problem: fx.Problem, verdict: Verdict, status: str, optima: list[Fraction]) -> None:
    """Everything that a verdict claims holds."""
    certificate = verdict.certificate
    if not certificate.ok or any(check.how == "quoted" for check in certificate.checks):
        return
    if verdict.claim in ("infeasible", "unbounded"):
        assert verdict.claim == status
        return
    assert status != "infeasible"
    before = True
    for stage, objective, optimum in zip(verdict.stages, problem.objectives, optima, strict=False):
        sign = -1 if objective.maximize else 1
        room = _CLOSE * (1 + abs(optimum))
        top = limit(optimum, (objective.within, objective.relative))
        if stage.bound is not None and before:
            assert sign * stage.bound <= optimum + room, (stage, optimum)
        if stage.proven:
            assert optimum - room <= sign * stage.value <= top + room, (stage, optimum)
        before = before and stage.proven
    if status == "unbounded":
        assert not (verdict.claim == "optimal" and problem.objectives)


def verdict_of(document: dict[str, Any], program: ExactProgram) -> Verdict | None:
    """The verdict over a solution file; None if the file is refused."""
    try:
        answered = document["status"] in ("optimal", "feasible")
        values = exact_answer(document["answer"], program) if answered else None
        return judge(program, values, from_document(document["proof"], program), document["status"])
    except (ProofError, ValueError):
        return None


# ---- forging


def _random_leaf(problem: fx.Problem, program: ExactProgram, rng: np.random.Generator, stage: int, k: int) -> Leaf:
    rows = {}
    for name, block in program.rows.items():
        y = rng.integers(-3, 4, block.count)
        if rng.random() < 0.9:
            y = np.minimum(y, 0) if block.relation == "<=" else np.maximum(y, 0) if block.relation == ">=" else y
        rows[name] = Exact(y, Fraction(1, int(rng.choice([1, 2, 3, 10**6]))))
    big = int(rng.choice([1, 1, 10**9, 10**30]))
    earlier = {
        o.name: Fraction(-int(rng.integers(0, 3)) * big) for o in program.objectives[: stage + (rng.random() < 0.1)]
    }
    derived = {i: Fraction(int(rng.integers(0, 3))) for i in range(k)}
    own = Fraction(int(rng.integers(1, 4)), int(rng.choice([1, 1, 7]))) if rng.random() < 0.8 else 0
    shared = rows if rng.random() < 0.3 else {}
    able = [name for name, b in program.rows.items() if b.once and len({*b.value.tolist()}) == 1]
    complete = tuple(name for name in able if rng.random() < 0.5)
    return Leaf({} if shared else rows, earlier, derived, (), own, shared, complete)


def _random_proof(problem: fx.Problem, program: ExactProgram, rng: np.random.Generator) -> Proof:
    """Multipliers, branches and derived rows without any sense, often with the right signs."""
    derived = []
    for k in range(int(rng.integers(0, 3))):
        column = np.sort(rng.permutation(program.count)[: int(rng.integers(1, program.count + 1))])
        cases = _branched(problem, program, rng, 0, k)
        derived.append(Derived(column, rng.integers(-3, 4, len(column)), cases, int(rng.integers(0, 2))))
    stages = {
        o.name: _branched(problem, program, rng, stage, len(derived)) for stage, o in enumerate(program.objectives)
    }
    zero = tuple(Fraction(int(v)) for v in rng.integers(-2, 3, program.count))
    ray = tuple(
        Fraction(int(v)) * (1 if rng.random() < 0.7 else Fraction(1, 10**9)) for v in rng.integers(-1, 2, program.count)
    )
    return Proof(
        stages, tuple(derived), _branched(problem, program, rng, 0, len(derived)), zero, tuple(map(Fraction, ray))
    )


def _branched(
    problem: fx.Problem, program: ExactProgram, rng: np.random.Generator, stage: int, k: int
) -> tuple[Leaf, ...]:
    leaves = [_random_leaf(problem, program, rng, stage, k)]
    whole = np.flatnonzero(program.integer)
    for _ in range(int(rng.integers(0, 3))):
        if not len(whole):
            break
        old = leaves.pop()
        columns = rng.permutation(whole)[: int(rng.integers(1, 3))]
        value, side = rng.integers(1, 3, len(columns)), int(rng.integers(-2, 3))
        gap = int(rng.choice([1, 1, 1, 1, 0, 2]))
        sides = [(True, side), (False, side + gap)]
        for upper, at in sides[: 1 + (rng.random() < 0.9)]:
            branch = Branch(columns, value, upper, at, Fraction(int(rng.integers(-2, 3))))
            fresh = _random_leaf(problem, program, rng, stage, k)
            leaves.append(replace(fresh, branches=(*old.branches, branch)))
    return tuple(leaves)


def _random_answer(program: ExactProgram, rng: np.random.Generator, document: dict[str, Any]) -> Exact:
    if document["answer"] and rng.random() < 0.5:
        x = exact_answer(document["answer"], program)
        moved = [x[j] for j in range(program.count)]
        j = int(rng.integers(program.count))
        moved[j] += Fraction(int(rng.integers(-1, 2)), int(rng.choice([1, 2, 10**9, 10**25])))
        return Exact.of(moved)
    return Exact(rng.integers(-2, 3, program.count))


@pytest.mark.parametrize("seed", seeds(40, 400))
def test_no_forged_proof_proves_anything_false(seed: int) -> None:
    found = known(seed)
    if found is None:
        return
    problem, program, document, status, optima = found
    rng = np.random.default_rng(seed + 10**6)
    draw, names = random.Random(seed), names_of(program)
    for _ in range(30):
        made = json.loads(json.dumps(document))
        forged(made, draw, names)
        if draw.random() < 0.2:
            made["status"] = draw.choice(["optimal", "infeasible", "unbounded", "feasible"])
        verdict = verdict_of(made, program)
        if verdict is not None:
            true(problem, verdict, status, optima)
    for _ in range(30):
        values = _random_answer(program, rng, document)
        proof = _random_proof(problem, program, rng)
        true(problem, judge(program, values, proof), status, optima)
        for claimed in ("infeasible", "unbounded"):
            true(problem, judge(program, None, proof, claimed), status, optima)
        # The honest proof beside another answer, and proofs of the stages exchanged.
        honest = from_document(document["proof"], program)
        true(problem, judge(program, values, honest), status, optima)
        names = [o.name for o in program.objectives]
        leaves = [honest.stages.get(name, ()) for name in rng.permutation(names)]
        exchanged = Proof(dict(zip(names, leaves, strict=True)), honest.derived, honest.empty, points=honest.points)
        true(problem, judge(program, values, exchanged), status, optima)


@pytest.mark.parametrize("seed", seeds(6, 40))
def test_what_many_objectives_show_together_each_shows_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    instance = fx.generate("gpu-random", seed=seed)
    document = fx.model_for(instance, policy=("FSP", "FS")[seed % 2]).solve("network").to_dict()
    round_ = GpuRound.of(instance, document["options"])
    pairs, places = round_.all_pairs(), document["answer"]["placements"]
    program = round_.program(*pairs)
    at = np.array([round_.view.gpu_names.index(places[t]) if t in places else -1 for t in round_.view.task_names])
    values = _values(program, round_, pairs, at)
    names, together = names_of(program), 0
    for k in range(60):
        file = json.loads(json.dumps(document))
        try:
            if k:
                forged(file, rng, names)
            read = from_document(file["proof"], program)
        except (ProofError, ValueError, OverflowError):
            continue
        if file["proof"].get("derived") != document["proof"].get("derived"):
            continue  # derived rows are read where an objective is judged alone
        quick = judge(program, values, read).stages
        with monkeypatch.context() as patched:
            patched.setattr(Checker, "optimal_together", lambda *_: [])
            slow = judge(program, values, read).stages
        assert all(s.proven for q, s in zip(quick, slow, strict=True) if q.proven)
        assert k or quick == slow
        together += sum(q.proven for q in quick)
    assert together > len(program.objectives)


def test_forging_can_fail() -> None:
    """The judge of this test refuses a false verdict, and most honest proofs are proven."""
    proven = 0
    for seed in range(PROBLEMS):
        found = known(seed)
        if found is None or found[3] != "optimal":
            continue
        problem, program, document, status, optima = found
        verdict = verdict_of(document, program)
        assert verdict is not None
        proven += verdict.claim == "optimal"
        wrong = [v - 1 for v in optima]
        if verdict.claim == "optimal" and optima:
            with pytest.raises(AssertionError):
                true(problem, verdict, status, wrong)
    assert proven > 10


# ---- attacks found by reading the checker


def _solved(p: fx.Problem) -> tuple[ExactProgram, Exact, Proof]:
    s = p.solve()
    assert s.exact is not None
    return exact_program(p), s.exact, s.found


def test_a_weak_bound_of_an_objective_with_within_does_not_tighten_what_later_ones_may_use() -> None:
    # The first optimum is 0 and may give up 2, so the second is 0 at x = 2. An answer x = 1 with the bound -1 of the
    # first, which is true but weak, would leave the second the values x <= 1 only.
    p = fx.Problem("weak")
    x = p.variables("x", lower=-1, upper=2, integer=True)
    y = p.variables("y", upper=2)
    p.constrain("low", x >= 0)
    p.constrain("sum", x + y == 2)
    p.minimize("first", x, within=2)
    p.minimize("second", y)
    program = exact_program(p)
    first = (Leaf(),)
    assert judge(program, Exact(np.array([1, 1])), Proof({"first": first})).stages[0].proven is False
    second = (Leaf(earlier={"first": Fraction(-1)}, rows={"sum": Exact(np.array([1]))}),)
    verdict = judge(program, Exact(np.array([1, 1])), Proof({"first": first, "second": second}))
    assert verdict.claim != "optimal"
    assert not verdict.stages[1].proven
    assert p.solve().certificate.summary.startswith("optimal, proven exactly")
    assert p.solve().stages["second"].value == 0


def test_an_answer_beside_that_attains_the_first_optimum_is_judged_itself() -> None:
    p = fx.Problem("points")
    x = p.variables("x", lower=0, upper=3, integer=True)
    p.constrain("low", x >= 1)
    p.minimize("first", x, within=1)
    p.maximize("second", x)
    program, values, proof = _solved(p)
    assert judge(program, values, proof).claim == "optimal"
    for point in ([0], [3], [4]):
        forged = Proof(proof.stages, proof.derived, points={"first": Exact(np.array(point))})
        assert judge(program, values, forged).claim != "optimal"
    document = to_document(proof, program)
    assert from_document(document, program).points["first"].numbers.tolist() == [1]


def test_a_small_violation_is_not_hidden_behind_a_larger_one() -> None:
    # x is off by 1 of 10**9, which is within the tolerance; y is off by a half of 1, which is not.
    p = fx.Problem("hidden")
    x = p.variables("x", i=["large", "small"], lower=None)
    p.constrain("side", x <= {"large": 10**9, "small": 1})
    p.maximize("goal", x.sum())
    program = exact_program(p)
    verdict = judge(program, Exact(np.array([2 * 10**9 + 2, 3]), Fraction(1, 2)), Proof())
    assert not verdict.certificate.ok
    q = fx.Problem("hidden in bounds")
    x = q.variables("x", i=["large", "small"], upper={"large": 10**9, "small": 1})
    q.maximize("goal", x.sum())
    verdict = judge(exact_program(q), Exact(np.array([2 * 10**9 + 2, 3]), Fraction(1, 2)), Proof())
    assert not verdict.certificate.ok


@pytest.mark.parametrize("by", [Fraction(1, 10**20), Fraction(1, 10**390)])
def test_numbers_near_an_integer_or_a_bound_are_neither(by: Fraction) -> None:
    p = fx.Problem("near")
    x = p.variables("x", upper=5, integer=True)
    y = p.variables("y", upper=5)
    p.constrain("side", y <= 4)
    p.maximize("goal", x + y)
    program = exact_program(p)
    assert not judge(program, Exact.of([3 + by, Fraction(1)]), Proof()).certificate.ok
    assert not judge(program, Exact.of([5 + by, Fraction(1)]), Proof()).certificate.ok
    assert not judge(program, Exact.of([Fraction(5), 4 + by]), Proof()).certificate.exact
    assert not judge(program, Exact.of([Fraction(5), -by]), Proof()).certificate.exact


def test_integer_rows_have_no_tolerance_beside_fractions() -> None:
    p = fx.Problem("large")
    x = p.variables("x", upper=2 * 10**9, integer=True)
    y = p.variables("y", upper=1)
    p.constrain("side", x <= 10**9)
    p.maximize("goal", x + y)
    verdict = judge(exact_program(p), Exact.of([Fraction(10**9 + 1), Fraction(1, 2)]), Proof())
    assert not verdict.certificate.ok


def test_an_almost_ray_proves_nothing_unbounded() -> None:
    p = fx.Problem("bounded")
    x = p.variables("x")
    p.constrain("small", x * Fraction(1, 10**9) <= 1)
    p.maximize("goal", x)
    verdict = judge(exact_program(p), None, Proof(ray=(Fraction(1),)), "unbounded")
    assert not verdict.certificate.ok


def test_values_within_a_tolerance_do_not_empty_the_next_stage() -> None:
    # y = 1 - 1e-9 keeps its row within the tolerance. Were the second stage held to it exactly, it would be empty, and
    # any bound of it could be shown.
    p = fx.Problem("emptied")
    y = p.variables("y", lower=0, upper=4)
    z = p.variables("z", lower=0, upper=4)
    p.constrain("side", y >= 1)
    p.minimize("first", y)
    p.minimize("second", z)
    program = exact_program(p)
    for times in (10**9, 3 * 10**9, 10**10):
        second = (Leaf(rows={"side": Exact(np.array([times]))}, earlier={"first": Fraction(-times)}),)
        proof = Proof({"first": (Leaf(rows={"side": Exact(np.array([1]))}),), "second": second})
        for z_value in (1, 2, 3):
            verdict = judge(program, Exact.of([1 - Fraction(1, 10**9), Fraction(z_value)]), proof)
            assert not verdict.stages[1].proven
            assert verdict.stages[1].bound is None or verdict.stages[1].bound <= 0


# ---- hostile files


def _hostile(program: ExactProgram) -> dict[str, Any]:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    big = 10**5000
    primes = [n for n in range(3, 4000, 2) if all(n % d for d in range(3, int(n**0.5) + 1, 2))]
    leaf = {"rows": {"cover": {"at": {}}}}
    many = {"rows": {"cover": {"default": 0, "at": {str(k): f"1/{n**40}" for k, n in enumerate(primes)}}}}
    return {
        "deep": {"format": 3, "stages": {"goal": deep}},
        "deep value": {"format": 3, "stages": {"goal": [{"rows": {"cover": {"at": {"0": deep}}}}]}},
        "digits": {"format": 3, "stages": {"goal": [{"rows": {"cover": {"at": {"0": big}}}}]}},
        "digits as text": {"format": 3, "stages": {"goal": [{"rows": {"cover": {"at": {"0": "9" * 10**6}}}}]}},
        "exponent": {"format": 3, "stages": {"goal": [{"rows": {"cover": {"at": {"0": "1e9999"}}}}]}},
        "exponent of digits": {"format": 3, "stages": {"goal": [{"rows": {"cover": {"default": "1e-999999999"}}}]}},
        "denominators": {"format": 3, "stages": {"goal": [many]}},
        "format": {"format": big},
        "objective": {"format": 3, "stages": {"x" * 10**6: [leaf]}},
        "stage": {"format": 3, "derived": [{"row": [["x", "0", 1]], "stage": big, "cases": []}]},
        "side": {
            "format": 3,
            "stages": {"goal": [{"branches": [{"row": [["x", "0", 1]], "relation": "<=", "side": big}]}]},
        },
        "number": {"format": 3, "derived": [{"row": [["x", "0", 1]], "cases": [{"derived": {"9" * 10**6: 1}}]}]},
        "own": {"format": 3, "stages": {"goal": [{"own": deep}]}},
        "ray": {"format": 3, "ray": [["x", "0", big]]},
    }


def _covering() -> ExactProgram:
    p = fx.Problem("cover")
    x = p.variables("x", i=range(1000), binary=True)
    p.constrain("cover", x >= 0)
    p.minimize("goal", x.sum())
    return exact_program(p)


@pytest.mark.parametrize("kind", list(_hostile(ExactProgram())))
def test_hostile_files_are_refused_at_once(kind: str) -> None:
    program = _covering()
    with pytest.raises(ProofError) as caught:
        from_document(_hostile(program)[kind], program)
    assert len(str(caught.value)) < 300


def test_large_multipliers_are_computed_exactly_not_wrapped() -> None:
    p = fx.Problem("wrap")
    x = p.variables("x", i=range(2), upper=3, integer=True)
    p.constrain("cover", x.sum() >= 3)
    p.minimize("goal", x.sum())
    program = exact_program(p)
    for power in (61, 62, 63, 64, 100, 2000):
        leaf = Leaf(rows={"cover": Exact(np.array([2**power], object))})
        bound = judge(program, Exact(np.array([3, 3])), Proof({"goal": (leaf,)})).stages[0].bound
        # 3 m + 2 (1 - m) 3 at the upper bounds.
        assert bound == 6 - 3 * 2**power


def test_branches_in_a_row_of_ten_thousand_are_followed_without_recursion() -> None:
    p = fx.Problem("long")
    x = p.variables("x", upper=20_000, integer=True)
    p.minimize("goal", x * 2)
    program = exact_program(p)
    path: tuple[Branch, ...] = ()
    leaves = []
    for side in range(1000):
        leaves.append(Leaf(branches=(*path, Branch.single(0, True, side))))
        path = (*path, Branch.single(0, False, side + 1))
    leaves.append(Leaf(branches=path))
    assert judge(program, Exact(np.array([0])), Proof({"goal": tuple(leaves)})).claim == "optimal"
    assert judge(program, Exact(np.array([0])), Proof({"goal": tuple(leaves[:-1])})).claim != "optimal"
