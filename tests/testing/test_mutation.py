"""Mutants: effect of each operator in place and in a copy, killed mutants, and the verdicts on survivors."""

import highspy
import numpy as np
import pulp
import pytest

from flowlex import generate, model_for
from flowlex.formulations import LinearProgram
from flowlex.testing import (
    Staged,
    UnknownNameError,
    assert_feasible,
    assert_optimum,
    assert_violates,
    formulation,
    mutate,
)
from flowlex.testing.canonical_program import changed_rows
from flowlex.testing.formulation_mutants import Mutant, mutants_of
from flowlex.testing.program_adapters import program_of, rewrite
from flowlex.testing.row_names import families_of
from tests.testing.conftest import knapsack


def two_blocks(integer: bool = True) -> LinearProgram:
    program = LinearProgram("two")
    x = program.variables("x", 2, upper=[1.0, 2.0], integer=integer, labels=["A", "B"])
    y = program.variables("y", 1)
    program.constrain("room", (x * [2.0, 3.0]).sum(), "<=", 4)
    program.constrain("least", x, ">=", [0.0, 1.0], labels=["A", "B"])
    program.constrain("count", x.sum() - y, "==", 0)
    program.maximize((x * [2.0, 4.0]).sum() - y.sum())
    return program


def applied(text: str, source=None):
    """Return the arrays of the small program and of the named mutant."""
    before = program_of(source if source is not None else two_blocks())
    (mutant,) = (each for each in mutants_of(before, single=True) if str(each) == text)
    return before, mutant.apply(before)


def test_the_mutants_of_a_program():
    assert list(map(str, mutants_of(program_of(two_blocks())))) == [
        "room: drop",
        "room: side + 1",
        "room: side - 1",
        "room: flipped relation",
        "least: drop",
        "least: side + 1",
        "least: side - 1",
        "least: flipped relation",
        "least: swapped sides",
        "count: drop",
        "count: side + 1",
        "count: side - 1",
        "count: <= for ==",
        "count: >= for ==",
        "room: unit terms of x",
        "room: doubled term of x",
        "room: negated terms of x",
        "least: doubled term of x",
        "least: negated terms of x",
        "count: doubled term of x",
        "count: negated terms of x",
        "count: doubled term of y",
        "count: negated terms of y",
        "x: lost lower bound",
        "x: lost upper bound",
        "x: lost integrality",
        "x: lost cost",
        "x: swapped columns",
        "y: lost lower bound",
        "y: lost cost",
    ]
    assert not any("[" in str(mutant) for mutant in mutants_of(program_of(two_blocks())))
    assert "least[B]: drop" in map(str, mutants_of(program_of(two_blocks()), single=True))


@pytest.mark.parametrize(
    ("text", "point", "row"),
    [
        ("room: flipped relation", {"x[A]": 1, "y": [1]}, "room"),
        ("room: side - 1", {"x[A]": 0.5, "x[B]": 1, "y": [1.5]}, "room"),
        ("least: side + 1", {"x[B]": 1, "y": [1]}, "least[A]"),
        ("least: swapped sides", {"x[B]": 1, "y": [1]}, "least[A]"),
        ("count: negated terms of y", {"x[B]": 1, "y": [1]}, "count"),
        ("count: doubled term of x", {"x[A]": 1, "y": [1]}, "count"),
    ],
)
def test_a_mutant_states_another_row(text, point, row):
    before, after = applied(text, two_blocks(integer=False))
    assert row not in {violation.name.removesuffix("[0]") for violation in before.violations(before.point(point))}
    assert_violates(after, point, row)


def test_a_dropped_family_keeps_its_names_and_never_binds():
    _, after = applied("room: drop")
    assert_feasible(after, {"x": [1, 2], "y": [3]})
    assert after.arrays.matrix.tocsr()[[0]].nnz == 0
    with pytest.raises(AssertionError, match=r"keeps room"):
        assert_violates(after, {"x": [1, 2]}, "room")


@pytest.mark.parametrize("single", [False, True])
def test_every_mutant_survives_the_way_back_into_its_source(single, tmp_path):
    staged = Staged(two_blocks(), {"first": two_blocks().variable("x").sum(), "then": two_blocks().variable("y")})
    network = model_for(generate("network-random", seed=1, nodes=4, arcs=6)).formulation
    statement = model_for(generate("gpu-random", seed=1, nodes=2, jobs=1, tasks=2)).problem
    makers = (lambda: staged, lambda: network, lambda: statement, lambda: solver(two_blocks()))
    for make in (knapsack, two_blocks, *makers):
        for mutant in mutants_of(program_of(make()), single=single):
            source = make()
            before = program_of(source)
            after = mutant.apply(before)
            back = program_of(rewrite(source, before, after))
            assert not len(changed_rows(after.arrays, back.arrays)), mutant
            for name in ("column_lower", "column_upper", "integrality"):
                assert np.array_equal(getattr(after.arrays, name), getattr(back.arrays, name)), mutant
            assert [s.cost.tolist() for s in after.stages] == [s.cost.tolist() for s in back.stages], mutant
            assert (list(after.rows.names), list(after.columns.names)) == (back.rows.names, back.columns.names)


def solver(program: LinearProgram) -> highspy.Highs:
    held = highspy.Highs()
    held.setOptionValue("output_flag", False)
    held.passModel(program.to_highs())
    return held


def test_a_pulp_problem_is_changed_in_place_and_a_program_is_copied():
    problem, program = knapsack(), two_blocks()
    variables = problem.variables()
    before = program_of(problem)
    assert rewrite(problem, before, Mutant("room", "side + 1").apply(before)) is problem
    assert problem.variables() == variables
    assert_optimum(problem, 6)
    before = program_of(program)
    changed = rewrite(program, before, Mutant("room", "drop").apply(before))
    assert changed is not program and len(changed_rows(program.arrays(), before.arrays)) == 0
    assert changed.row_names() == program.row_names()
    with pytest.raises(TypeError, match=r"cannot mutate MinCostFlow; .* return its problem or formulation"):
        rewrite(model_for(generate("network-random", seed=1, nodes=4, arcs=6)), before, before)


def test_families_of_names():
    names = ["share_memory_A", "share_gpu[B]", "share_1", "x1", "x2", "_C1", "_C2", "y[a_b]"]
    found = {family: indices.tolist() for family, indices in families_of(names, ["share_memory", "share_gpu"]).items()}
    assert found == {"share_memory": [0], "share_gpu": [1], "share": [2], "x": [3, 4], "_C": [5, 6], "y": [7]}


# What kills, and what does not.


@formulation
def items(room: float = 4.0) -> pulp.LpProblem:
    return knapsack(room)


def one_optimum() -> None:
    assert_optimum(items(), 4)


def every_answer() -> None:
    assert_optimum(items(3), 4)
    assert_violates(items(), {"x[A]": 1, "x[B]": 1}, "room", only=True)
    assert_violates(items(), {"x[A]": 0.5}, "x")
    assert_violates(items(), {"x[A]": -1}, "x")


def fates(*tests, **options) -> dict[str, str]:
    (report,) = mutate(*tests, **options)
    return {str(result.mutant): result.fate for result in report.results}


def test_survivors_are_judged_in_three_steps():
    (report,) = mutate(one_optimum)
    assert str(report).splitlines() == [
        "items: 18 mutants, 2 survive, 10 killed, 0 expected, 6 equivalent",
        "  room: side - 1: equivalent",
        "  once: drop: equivalent",
        "  once: side + 1: equivalent",
        "  room: doubled term of x: equivalent",
        "  once: negated terms of x: equivalent",
        "  x: lost lower bound: answers; the mutant allows x_A_ = -1, x_B_ = 1: x_A_ = -1, expected between 0 and 1",
        "  x: lost upper bound: equivalent",
        "  x: swapped columns: answers; the mutant calls x_A_ = 1 optimal: objective 2, expected 4",
    ]
    by_name = {str(result.mutant): result for result in report.results}
    assert by_name["room: drop"].fate == "killed" and by_name["room: drop"].text == "one_optimum"
    assert by_name["once: drop"].fate == "equivalent"


def test_a_better_test_kills_more():
    before, after = fates(one_optimum), fates(one_optimum, every_answer)
    assert {text for text in before if before[text] != after[text]} == {
        "room: side - 1",
        "room: doubled term of x",
        "x: lost lower bound",
    }
    assert (after["room: side - 1"], after["x: lost lower bound"]) == ("killed", "killed")
    assert after["room: doubled term of x"] == "answers"  # judged on more instances: no longer equivalent


def test_a_changed_optimum_that_no_test_looks_at():
    def only_feasible() -> None:
        assert_feasible(items(), {"x[A]": 1})

    (report,) = mutate(only_feasible)
    (dropped,) = (result for result in report.results if str(result.mutant) == "room: drop")
    assert (dropped.fate, dropped.text) == (
        "optimum",
        "the optimum changes: 4 -> 6; the mutant allows x_A_ = 1, x_B_ = 1: "
        "room: 2*x_A_ + 3*x_B_ = 5, expected at most 4",
    )


def test_a_crash_is_no_kill():
    def crashes() -> None:
        problem = items()
        problem.solve(pulp.HiGHS(msg=False))
        _ = {4.0: "as ever"}[pulp.value(problem.objective)]

    (report,) = mutate(crashes)
    (dropped,) = (result for result in report.results if str(result.mutant) == "room: drop")
    assert (dropped.fate, dropped.text) == ("crashed", "crashes ends in KeyError: 6.0")
    assert dropped in report.survivors


def test_auxiliary_variables_are_left_out():
    def build() -> LinearProgram:
        program = LinearProgram("largest")
        x = program.variables("x", 2, upper=3.0)
        largest = program.variables("largest", 1)
        program.constrain("above", x - largest.repeated(2), "<=", 0)
        program.constrain("work", x.sum(), "==", 4)
        program.minimize(largest.sum())
        return program

    def fate(on) -> str:
        marked = formulation(on=on)(build)

        def test() -> None:
            assert_optimum(marked(), 2)

        return fates(test)["x: lost upper bound"]

    assert fate(()) == "answers"
    assert fate(["x"]) == "answers"
    assert fate(["largest"]) == "equivalent"


def test_lost_integrality_is_settled_by_total_unimodularity():
    @formulation
    def assignment() -> LinearProgram:
        program = LinearProgram("assignment")
        x = program.variables("x", 4, integer=True)
        program.constrain("row", x.sum_by([0, 0, 1, 1]), "==", 1)
        program.constrain("column", x.sum_by([0, 1, 0, 1]), "==", 1)
        program.minimize((x * [3, 3, 1, 1]).sum())
        return program

    def test() -> None:
        assert_optimum(assignment(), 4)

    found = fates(test)
    assert found["x: lost integrality"] == "equivalent"
    assert found["row: drop"] == "killed"


def test_a_dropped_stage():
    @formulation
    def staged() -> Staged:
        problem = pulp.LpProblem("staged")
        cost, late = (problem.add_variable(name, 0, 5) for name in ("cost", "late"))
        problem += late + cost >= 4, "work"
        return Staged(problem, {"lateness": late, "price": cost})

    def both() -> None:
        assert_optimum(staged(), [0, 4])

    def price() -> None:
        program = staged().program
        assert_optimum(Staged(program, {"price": program.variables()[0]}), 0)

    assert fates(both)["price: dropped stage"] == "killed"
    assert fates(price)["price: dropped stage"] == "optimum"


def test_references_are_recorded_without_mutants_and_inner_formulations_stay_as_they_are():
    @formulation
    def relaxed() -> pulp.LpProblem:
        problem = items()
        for variable in problem.variables():
            variable.cat = pulp.LpContinuous
        return problem

    def test() -> None:
        assert_optimum(relaxed(), 5)

    reports = {report.formulation: report for report in mutate(test)}
    assert set(reports) == {"items", "relaxed"}
    assert {str(result.mutant) for result in reports["relaxed"].results}.isdisjoint({"x: lost integrality"})


def test_expected_survivors_are_listed_with_their_reason_and_unknown_ones_are_errors():
    def build() -> pulp.LpProblem:
        return knapsack()

    marked = formulation(expected={"x: lost lower bound": "prices are positive"})(build)
    (found,) = mutate(lambda: assert_optimum(marked(), 4))
    assert "x: lost lower bound: expected; prices are positive" in str(found)
    wrong = formulation(expected={"x: lost": ""})(build)
    with pytest.raises(UnknownNameError, match="build: there is no mutant 'x: lost' to expect"):
        mutate(lambda: assert_optimum(wrong(), 4))


def test_tests_must_pass_and_build_something():
    with pytest.raises(ValueError, match="fails without a mutant: knapsack: expected the optimum 5"):
        mutate(lambda: assert_optimum(items(), 5))
    with pytest.raises(ValueError, match="no test calls a function marked"):
        mutate(lambda: None)


def test_a_marked_function_is_the_same_function_outside_of_mutation():
    assert items.__name__ == "items"
    assert_optimum(items(3), 4)


def allowed(arrays, points):
    """Return which points satisfy all rows and bounds, checked row by row."""
    within = ((points >= arrays.column_lower) & (points <= arrays.column_upper)).all(axis=1)
    for row, low, high in zip(arrays.matrix.toarray(), arrays.row_lower, arrays.row_upper, strict=True):
        within &= (points @ row >= low) & (points @ row <= high)
    return within


@pytest.mark.parametrize("seed", range(3))
def test_the_witness_tells_the_programs_apart(seed):
    """The point in each survivor's text is feasible for one of program and mutant only, checked independently."""
    from flowlex.testing.mutant_witness import _answers, _outside

    rng = np.random.default_rng(seed)
    program = LinearProgram("random")
    x = program.variables("x", 3, upper=rng.integers(1, 4, 3).astype(float), integer=True)
    program.constrain("a", (x * rng.integers(1, 4, 3)).sum(), "<=", float(rng.integers(2, 6)))
    program.constrain("b", (x * rng.integers(1, 4, 3)).sum(), ">=", 1.0)
    program.maximize((x * rng.integers(1, 4, 3)).sum())
    before = program_of(program)
    points = np.stack(np.meshgrid(*[np.arange(-4, 9)] * 3), -1).reshape(-1, 3).astype(float)
    for mutant in mutants_of(before):
        after = mutant.apply(before)
        differ = points[allowed(before.arrays, points) != allowed(after.arrays, points)]
        for wide, narrow in ((after, before), (before, after)):
            for point, _ in _outside(wide, narrow):
                assert not wide.violations(point) and narrow.violations(point), mutant
        if len(differ):
            assert _answers(before, after, None) is not None, (mutant, differ[0])
