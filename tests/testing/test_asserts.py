"""Each assert: accepted inputs, and the complete message on failure."""

import highspy
import numpy as np
import pulp
import pytest

from flowlex import generate, model_for
from flowlex.formulations import EngineError, LinearProgram
from flowlex.formulations.program_files import ProgramFileError
from flowlex.testing import (
    Staged,
    UnknownNameError,
    assert_binding,
    assert_equivalent,
    assert_feasible,
    assert_infeasible,
    assert_integral,
    assert_optimum,
    assert_relaxation,
    assert_same_optimum,
    assert_totally_unimodular,
    assert_violates,
)
from flowlex.testing.program_adapters import program_of
from flowlex.testing.staged_optimum import optimise
from tests.testing.conftest import knapsack


def blocks(room: float = 4.0, **options: bool) -> LinearProgram:
    """Return the same knapsack problem as a `LinearProgram`."""
    program = LinearProgram("blocks")
    x = program.variables("x", 2, upper=1.0, labels=["A", "B"], integer=options.get("integer", True))
    program.constrain("room", (x * [2.0, 3.0]).sum(), "<=", room)
    program.constrain("once", x, "<=", 1.0, labels=["A", "B"])
    program.maximize((x * [2.0, 4.0]).sum())
    return program


def message(assertion, *arguments, **keywords) -> str:
    with pytest.raises(AssertionError) as caught:
        assertion(*arguments, **keywords)
    return str(caught.value)


def held(problem: pulp.LpProblem, path) -> highspy.Highs:
    problem.writeLP(str(path))
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.readModel(str(path))
    return solver


def test_every_kind_of_source_states_the_same_program(tmp_path):
    problem, program = knapsack(), blocks()
    problem.writeMPS(str(tmp_path / "k.mps"), with_objsense=True)
    problem.writeLP(str(tmp_path / "k.lp"))
    for source in (problem, program, program.to_highs(), tmp_path / "k.mps", str(tmp_path / "k.lp")):
        assert_optimum(source, 4)
        assert_violates(source, {"x[A]": 1, "x[B]": 1}, "room", only=True)
        assert_equivalent(program, source)
    assert_optimum(held(problem, tmp_path / "held.lp"), 4)


def test_models_networks_and_whatever_compiles_are_programs():
    model = model_for(generate("network-random", seed=1, nodes=5, arcs=8))
    optimum = model.solve("network").objective

    class Compiles:
        def compile(self):
            return model.compile()

    for source in (model, model.formulation, Compiles()):
        assert_optimum(source, optimum)
        assert_totally_unimodular(source)
    with pytest.raises(TypeError, match="cannot read a program from 3; expected a Problem, a PuLP problem"):
        assert_optimum(3, 1)
    with pytest.raises(ProgramFileError, match=r"model\.txt: expected a name that ends in \.mps"):
        assert_optimum("model.txt", 1)


def test_changed_models_are_read_from_their_statement():
    model = model_for(generate("gpu-random", seed=1, nodes=3, tasks=6, running=0.0))
    transfer = [o.name for o in model.problem.objectives].index("transfer")
    optimum = list(optimise(program_of(model)).values)
    assert optimum[transfer] == pytest.approx(model.solve("highs").objective)
    x = model.variables["x"]
    changed = model.with_constraint("few", x.sum() <= 1)
    assert_violates(changed, {name: 1 for name in program_of(model).columns.names if name.startswith("x[")}, "few")
    assert_optimum(changed, [float(value) for value in changed.solve("highs").stages.values()])


def test_optimum(small):
    assert_optimum(small, 4)
    assert message(assert_optimum, small, 5) == "knapsack: expected the optimum 5, got 4 at x_B_ = 1"
    assert message(assert_optimum, knapsack(-1), 5) == "knapsack: expected the optimum 5, got infeasible"
    with pytest.raises(ValueError, match="has 1 objectives; expected as many values"):
        assert_optimum(small, [1, 2])


def test_optimum_of_stages_in_their_order():
    problem = pulp.LpProblem("staged")
    cost, late = (problem.add_variable(name, 0, 5) for name in ("cost", "late"))
    problem += late + cost >= 4, "work"
    problem += late >= 1, "start"
    assert_optimum(Staged(problem, {"lateness": late, "price": cost}), [1, 3])
    assert_optimum(Staged(problem, {"price": cost, "lateness": late}), [0, 4])
    said = message(assert_optimum, Staged(problem, {"lateness": late, "price": cost}), [1, 2])
    assert said == "staged: expected the optimum 1, then 2, got 1, then 3 at cost = 3, late = 1"
    program = blocks()
    x = program.variable("x")
    assert_optimum(Staged(program, {"value": (x * [-2.0, -4.0]).sum(), "second": x}), [-4, 1])
    with pytest.raises(ValueError, match="needs at least one objective"):
        assert_optimum(Staged(program, {}), 0)


def test_same_optimum_shows_both_sides_and_what_refuses_the_other_answer(small):
    assert_same_optimum(small, blocks())
    assert_same_optimum(knapsack(-1), blocks(-1))
    assert message(assert_same_optimum, small, blocks(5)) == (
        "the optima differ: knapsack has 4 at x_B_ = 1; blocks has 6 at x[A] = 1, x[B] = 1; "
        "the answer of blocks violates in knapsack: room: 2*x_A_ + 3*x_B_ = 5, expected at most 4"
    )


def test_relaxation(small):
    relaxed = knapsack(kind="Continuous")
    assert_relaxation(relaxed, small)
    assert_relaxation(small, knapsack(-1))
    said = message(assert_relaxation, small, relaxed)
    assert said.startswith("knapsack is no relaxation of knapsack: knapsack has 4 at x_B_ = 1; knapsack has 5 at")
    assert "knapsack has infeasible" in message(assert_relaxation, knapsack(-1), small)
    minimising = pulp.LpProblem("least")
    minimising += minimising.add_variable("y", 0)
    with pytest.raises(ValueError, match="do not minimise and maximise in the same order"):
        assert_relaxation(small, minimising)


def test_feasible(small):
    assert_feasible(small, {"x[A]": 1})
    assert_feasible(small, [0, 1])
    assert_feasible(small, {small.variables()[0]: 1})
    assert_feasible(blocks(), {"x": [0, 1]})
    assert message(assert_feasible, small, {"x[A]": 0.5, "x[B]": 2}) == (
        "knapsack: the point x_A_ = 0.5, x_B_ = 2 violates room: 2*x_A_ + 3*x_B_ = 7, expected at most 4; "
        "once_B_: x_B_ = 2, expected at most 1; x_B_ = 2, expected between 0 and 1; x_A_ = 0.5, expected an integer"
    )
    for values, said in (
        ([1], r"expected 2 values, one per column; got shape \(1,\)"),
        ({"x": 1}, "x has 2 columns; expected as many values, got 1"),
        ({"x[A]": np.nan}, "the value of x_A_ is not finite"),
    ):
        with pytest.raises(ValueError, match=said):
            assert_feasible(small, values)


def test_violates(small):
    both = {"x[A]": 1, "x[B]": 1}
    assert_violates(small, both, "room", only=True)
    assert_violates(small, {"x[B]": 2}, "once", "x", "room")
    assert message(assert_violates, small, {"x[A]": 1}, "room") == (
        "knapsack: x_A_ = 1 keeps room (2*x_A_ + 3*x_B_ = 2, at most 4); it violates nothing"
    )
    assert message(assert_violates, small, {"x[B]": 2}, "room", only=True) == (
        "knapsack: x_B_ = 2 also violates once_B_: x_B_ = 2, expected at most 1; x_B_ = 2, expected between 0 and 1"
    )
    with pytest.raises(TypeError, match="needs the name of a row"):
        assert_violates(small, both)


def test_infeasible_means_a_conflict_by_itself_of_which_nothing_can_be_spared(small):
    small += small.variables()[1] >= 1, "wanted"
    small += small.variables()[0] >= 1, "promised"
    assert_infeasible(small)
    assert_infeasible(small, because={"room", "wanted", "promised"})
    assert message(assert_infeasible, small, because={"room", "wanted"}) == (
        "knapsack: room, wanted do not conflict by themselves: x_B_ = 1 keeps them"
    )
    assert message(assert_infeasible, small, because={"room", "wanted", "promised", "once"}) == (
        "knapsack: once can be spared: promised, room, wanted conflict without it"
    )
    assert message(assert_infeasible, knapsack()) == "knapsack: expected no feasible point, got all columns zero"
    with pytest.raises(TypeError, match="expected a set of names"):
        assert_infeasible(small, because="room")


def test_binding_holds_in_every_optimal_answer():
    assert_binding(knapsack(3), "room", "once[B]")
    assert message(assert_binding, knapsack(4), "room") == (
        "knapsack: room is not binding: 2*x_A_ + 3*x_B_ = 3, expected 4 in every optimal answer; optimum 4 at x_B_ = 1"
    )
    tied = knapsack(need=(1, 2), value=(1, 1), room=2)  # either item is optimal; only one uses the complete capacity
    assert "room is not binding" in message(assert_binding, tied, "room")
    assert "no optimal answer" in message(assert_binding, knapsack(-1), "room")


def test_total_unimodularity():
    odd = LinearProgram("odd")
    x = odd.variables("x", 3)
    for k in range(3):
        odd.constrain(f"edge{k}", x[[k, (k + 1) % 3]].sum(), "<=", 1)
    assert message(assert_totally_unimodular, odd) == (
        "odd is not totally unimodular: "
        "rows edge0[0], edge1[0], edge2[0] and columns x[0], x[1], x[2] have determinant 2 but for its sign"
    )
    assert "x[0] = 0.5" in message(assert_integral, odd)
    empty = LinearProgram("empty")
    empty.variables("x", 2)
    assert_totally_unimodular(empty)


def test_integral():
    assert_integral(knapsack(need=(1, 1), room=1))
    assert_integral(knapsack(need=(2, 2), room=4), directions=5)
    assert message(assert_integral, knapsack()) == (
        "knapsack: the relaxation has the optimum 5 at x_A_ = 0.5, x_B_ = 1, with integers 4 at x_B_ = 1"
    )
    assert "integer" in message(assert_integral, knapsack(kind="Continuous"), on="x")


def test_equivalence_is_exact_on_small_integer_programs(small):
    assert_equivalent(small, knapsack(4.5))
    assert message(assert_equivalent, small, blocks(5)) == (
        "blocks allows x[A] = 1, x[B] = 1, knapsack does not: room: 2*x_A_ + 3*x_B_ = 5, expected at most 4"
    )


def test_equivalence_of_projections():
    wide = blocks()
    y = wide.variables("y", 1, upper=1.0)
    wide.constrain("half", wide.variable("x")[[0]] - y, "<=", 0.5)
    assert_equivalent(wide, blocks(), on=["x"])
    wide.constrain("none", y, "<=", 0.25)
    said = message(assert_equivalent, wide, blocks(), on="x")
    assert said == "blocks allows x[A] = 1, blocks does not: no values of the other columns of blocks complete it"
    with pytest.raises(AssertionError, match=r"blocks has no column y\[0\], which blocks has"):
        assert_equivalent(blocks(), wide)
    with pytest.raises(AssertionError, match=r"blocks has no column y\[0\], which blocks has"):
        assert_equivalent(wide, blocks())


def test_equivalence_by_directions_beyond():
    assert_equivalent(blocks(integer=False), knapsack(kind="Continuous"))
    said = message(assert_equivalent, blocks(integer=False), knapsack(room=4.5, kind="Continuous"))
    assert said.startswith("the largest ") and "knapsack allows" in said and "blocks does not: room" in said
    same_seed = message(assert_equivalent, blocks(integer=False), knapsack(room=4.5, kind="Continuous"))
    assert said == same_seed


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: assert_violates(p, {}, "rom"), "no row or column is named 'rom'; did you mean 'room'?"),
        (lambda p: assert_binding(p, "once[Z]"), r"no row is named 'once\[Z\]'; did you mean 'once'"),
        (lambda p: assert_feasible(p, {"qqq": 1}), "no column is named 'qqq'; known are x, x_A_, x_B_"),
        (lambda p: assert_infeasible(knapsack(-1), because={"romm"}), "did you mean 'room'"),
    ],
)
def test_a_misspelt_name_is_an_error_of_its_own(small, call, said):
    with pytest.raises(UnknownNameError, match=said) as caught:
        call(small)
    assert isinstance(caught.value, LookupError) and not isinstance(caught.value, AssertionError)


def test_names_that_pulp_makes_alike_must_be_spelled_out():
    problem = pulp.LpProblem("alike")
    for name in ("x_1", "x__1"):
        problem += problem.add_variable(name) <= 1, f"row {name}"
    with pytest.raises(UnknownNameError, match=r"'x\[1\]' may be any of the columns x_1, x__1; spell it out"):
        assert_feasible(problem, {"x[1]": 0})
    assert_feasible(problem, {"x_1": 0})


def test_sets_of_pulp_are_refused(small):
    if hasattr(small, "add_sos_group"):  # PuLP 4
        small.add_sos_group(pulp.core.lp_problem._rustcore.SosKind.Sos1, "one", {small.variables()[0]: 1})
    else:
        small.sos1["one"] = {small.variables()[0]: 1}
    with pytest.raises(TypeError, match="SOS constraints are not supported"):
        assert_optimum(small, 4)


QUADRATIC = "NAME q\nROWS\n N o\n G c\nCOLUMNS\n x o 1 c 1\nRHS\n R c 1\nQUADOBJ\n x x {}\nENDATA\n"
SEMICONTINUOUS = "Minimize\n y\nSubject To\n c: x + y = 1\nBounds\n 2 <= x <= 10\nSemi-continuous\n x\nEnd\n"


def test_what_is_beyond_linear_is_refused(tmp_path):
    path, held = tmp_path / "q.mps", highspy.Highs()
    path.write_text(QUADRATIC.format(2))
    held.setOptionValue("output_flag", False)
    held.readModel(str(path))
    for source in (path, held, held.getModel()):
        for check in (assert_infeasible, lambda model: assert_optimum(model, 0)):
            with pytest.raises((TypeError, ValueError), match="the objective is quadratic"):
                check(source)


def test_semi_continuous_columns_are_zero_or_within_their_bounds(tmp_path):
    path, held = tmp_path / "s.lp", highspy.Highs()
    path.write_text(SEMICONTINUOUS)
    held.setOptionValue("output_flag", False)
    held.readModel(str(path))
    for source in (path, held, held.getModel()):
        assert_optimum(source, 1)


def test_small_coefficients_count():
    problem = pulp.LpProblem("small_coefficients")
    x = problem.add_variable("x", 0, 1e11)
    problem += 1e-10 * x
    problem += 1e-10 * x >= 1, "least"
    assert_optimum(problem, 1)
    problem += 1e-13 * x <= 1, "most"
    with pytest.raises(EngineError, match=r"up to 1e-12 \(row most, column x\); scale the row"):
        assert_optimum(problem, 1)


def test_a_column_that_vanished_makes_programs_different(small):
    other = knapsack(need=(2, 3, 4), value=(2, 4, 1))
    with pytest.raises(AssertionError, match="knapsack has no column x_C_, which knapsack has"):
        assert_equivalent(small, other)
    with pytest.raises(AssertionError, match="knapsack has no column x_C_, which knapsack has"):
        assert_equivalent(other, small)
    with pytest.raises(AssertionError, match="knapsack has no column x_C_"):
        assert_equivalent(other, small, on="x")
    with pytest.raises(UnknownNameError, match="no column is named 'z'"):
        assert_equivalent(other, small, on="z")
