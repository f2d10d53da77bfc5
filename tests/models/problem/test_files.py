"""Problems read, written and converted: the same names and optimum, whatever the way."""

import datetime
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pandas as pd
import pytest

import flowlex as fx
from flowlex.formulations.engines.highs import pass_model, quiet
from flowlex.formulations.program_files import ProgramFileError, read_program
from flowlex.models.solution import ModelError
from tests.pulp_solver import solver_of_pulp

#: A ranged row, an equation, a free column, an integer column, a constant: 2 a + b is smallest at a = 1, b = 2.
MPS = """NAME mixed
ROWS
 N cost
 L most
 G least
 E same
COLUMNS
    M1 'MARKER' 'INTORG'
    a cost 2 most 1
    a least 1 same 1
    M2 'MARKER' 'INTEND'
    b cost 1 most 1
    b least 1
    c same -1
RHS
    RHS cost -10 most 8
    RHS least 3
RANGES
    RNG most 6
BOUNDS
 LI BND a 1
 FR BND c
ENDATA
"""


def shifts() -> fx.Problem:
    """Two workers, three shifts, no two in a row: ann mon and wed, bob tue; 10 + 12 + 10."""
    p = fx.Problem("shifts")
    x = p.variables("x", worker=["ann", "bob"], shift=["mon", "tue day", "wed"], binary=True)
    demand = pd.Series({"mon": 1, "tue day": 1, "wed": 1}).rename_axis("shift")
    p.constrain("cover", x.sum(by="shift") >= demand)
    p.constrain("rest", x + x.shift(shift=1) <= 1)
    p.minimize("wages", (x * pd.Series({"ann": 10, "bob": 12}).rename_axis("worker")).sum())
    return p


def by_highs(path: Path) -> float:
    """The optimum that HiGHS finds for a file by itself."""
    solver = quiet()
    assert solver.readModel(str(path)) == highspy.HighsStatus.kOk
    solver.run()
    return float(solver.getInfo().objective_function_value)


def test_a_model_file_becomes_one_block_of_variables_and_a_block_of_rows_for_each_relation(tmp_path: Path) -> None:
    (tmp_path / "m.mps").write_text(MPS)
    p = fx.read(tmp_path / "m.mps")
    assert isinstance(p, fx.Problem)
    assert p["x"].index.labels("column") == ["a", "b", "c"]
    assert {name: rows.index.labels("row") for name, rows in p.rows.items()} == {
        "at_least": ["least"], "equal": ["same"], "range_lower": ["most"], "range_upper": ["most"],
    }  # fmt: skip
    assert p.blocks["x"].integer.tolist() == [True, False, False]
    assert p.blocks["x"].lower.tolist() == [1, 0, -np.inf]
    s = p.solve()
    assert (s.status, s.objective, s.certificate.claim) == ("optimal", 14, "optimal")
    assert s["x"].to_dict() == {"a": 1, "b": 2, "c": 1}


@pytest.mark.parametrize("ending", [".mps", ".mps.gz", ".lp", ".lp.gz", ".problem.json", ".problem.json.gz"])
@pytest.mark.parametrize("make", [shifts, None], ids=["labels", "file"])
def test_what_is_written_reads_back_with_names_and_optimum(
    make: Callable[[], fx.Problem] | None, ending: str, tmp_path: Path
) -> None:
    (tmp_path / "m.mps").write_text(MPS)
    p = fx.read(tmp_path / "m.mps") if make is None else make()
    path = tmp_path / f"again{ending}"
    assert p.write(path) == [path]
    q = fx.read(path)
    assert q.solve().objective == p.solve().objective
    if ".json" in ending:
        assert q.column_names() == p.column_names() and q.row_names() == p.row_names()
        assert q.solve().source.fingerprint == p.solve().source.fingerprint
    else:
        twice = tmp_path / f"twice{ending}"
        q.write(twice)
        unpack = gzip.decompress if ending.endswith(".gz") else bytes
        assert unpack(twice.read_bytes()) == unpack(path.read_bytes())
        plain = tmp_path / f"plain{ending.removesuffix('.gz')}"
        plain.write_bytes(unpack(path.read_bytes()))
        assert by_highs(plain) == pytest.approx(float(p.solve().objective))
    with pytest.raises(FileExistsError):
        p.write(path)


def test_a_row_with_two_sides_is_one_row_again_and_rows_of_ones_own_follow(tmp_path: Path) -> None:
    (tmp_path / "m.mps").write_text(MPS)
    p = fx.read(tmp_path / "m.mps")
    p.with_constraint("most", p["x"].sel(column="a") >= 3).write(tmp_path / "n.mps")
    program = read_program(tmp_path / "n.mps")
    assert program.row_names == ["most", "least", "same", "most_2"]
    assert program.arrays.row_lower.tolist() == [2, 3, 0, 3]
    assert program.arrays.row_upper.tolist()[0] == 8
    assert program.objective_name == "cost"


def test_problems_come_from_pulp_highs_arrays_and_flat_programs() -> None:
    p = shifts()
    problem = p.to_pulp()
    solver = quiet()
    pass_model(solver, p.arrays())
    for source in (problem, solver, p.arrays(), fx.formulations.LinearProgram("empty")):
        q = fx.Problem.of(source, "other")
        if q.column_count:
            assert (q.solve().objective, q.column_count, q.row_count) == (32, 6, 9)
    for wrong in (3, "m.mps", {"x": 1}, [[1, 2]]):
        with pytest.raises(fx.StatementError, match=r"cannot make a problem of"):
            fx.Problem.of(wrong)


def test_a_solved_pulp_problem_is_interpreted_by_its_names() -> None:
    p = shifts()
    problem = p.to_pulp()
    with pytest.raises(fx.StatementError, match="no value"):
        p.interpret(problem)
    problem.solve(solver_of_pulp())
    s = p.interpret(problem)
    assert (s.objective, s.status, s.certificate.claim) == (32, "feasible", "feasible")
    assert s["x"].sum() == 3
    assert p.solve(start=problem).objective == 32


def test_solution_files_of_solvers_are_read_for_the_names_that_were_written(tmp_path: Path) -> None:
    p = shifts()
    for name in ("m.mps", "m.lp"):
        p.write(tmp_path / name)
        for problem in (p, fx.read(tmp_path / name)):
            solver = quiet()
            solver.readModel(str(tmp_path / name))
            solver.run()
            solver.writeSolution(str(tmp_path / "m.sol"), 0)
            s = problem.interpret(tmp_path / "m.sol")
            assert (s.objective, s.certificate.ok) == (32, True)
    (tmp_path / "no.sol").write_text("solution status: infeasible\nno solution available\n")
    with pytest.raises(fx.StatementError, match="holds no answer"):
        p.interpret(tmp_path / "no.sol")


@pytest.mark.parametrize(
    "values",
    [
        {"x": {("ann", "mon"): 1, ("ann", "wed"): 1, ("bob", "tue day"): 1}},
        {"x": {"ann,mon": 1, "ann,wed": 1, 'bob,"tue day"': 1}},
        {"x[ann,mon]": 1, "x[ann,wed]": 1, 'x[bob,"tue day"]': 1},
        {"x[ann,mon]": 1, "x[ann,wed]": 1, 'x[bob,"tue_day"]': 1},
    ],
)
def test_values_are_given_by_label_or_by_name(values: Any) -> None:
    p = shifts()
    assert p.interpret(values).objective == 32
    assert p.solve(start=values).objective == 32


def test_values_that_break_a_row_are_no_answer() -> None:
    s = shifts().interpret({"x": {("ann", "mon"): 1}})
    assert (s.status, s.certificate.ok) == ("error", False) and 'every row holds (cover["tue day"]' in s.message
    with pytest.raises(ModelError):
        s.values("x")


def test_a_later_objective_is_written_with_the_ones_before_as_rows(tmp_path: Path) -> None:
    p = shifts()
    p.maximize("bob", p["x"].sel(worker="bob").sum())
    s = p.solve()
    assert [stage.value for stage in s.stages.values()] == [32, 1]
    with pytest.raises(fx.StatementError, match="holds one objective"):
        p.write(tmp_path / "two.mps")
    p.stage("bob", s).write(tmp_path / "bob.lp")
    assert by_highs(tmp_path / "bob.lp") == pytest.approx(1)
    assert fx.read(tmp_path / "bob.lp").solve().objective == 1


@pytest.mark.parametrize("text", ["", "Minimize\n x +\nEnd\n", "NAME a\nROWS\n N c\n", "\0", "max: x;\n"])
def test_a_file_that_states_no_program_is_an_error_with_its_name(text: str, tmp_path: Path) -> None:
    for name in ("bad.mps", "bad.lp"):
        (tmp_path / name).write_text(text)
        with pytest.raises(fx.FlowlexError, match=name):
            fx.read(tmp_path / name)
        with pytest.raises(fx.FlowlexError, match=name):
            fx.solve(tmp_path / name)


def test_every_error_on_purpose_has_one_base() -> None:
    from flowlex.formulations import EngineError
    from flowlex.instances import InstanceError
    from flowlex.validation.certificates import CertificateError, SolutionError
    from flowlex.validation.unimodularity.named_matrix import MatrixError

    kinds = (InstanceError, ModelError, EngineError, SolutionError, CertificateError, MatrixError, ProgramFileError)
    for kind in (*kinds, fx.StatementError):
        assert issubclass(kind, fx.FlowlexError)
    assert issubclass(InstanceError, ValueError) and issubclass(EngineError, RuntimeError)


@pytest.mark.parametrize(
    "call",
    [
        lambda p, x: x["J2"],
        lambda p, x: p["y"],
        lambda p, x: p[3],
        lambda p, x: p.with_cost(3),
        lambda p, x: p.with_cost("wages", 3),
        lambda p, x: p.with_cost("wages", x),
        lambda p, x: p.with_fixed(sum, 1),
        lambda p, x: p.with_fixed(x, "one"),
        lambda p, x: p.with_bounds(3, lower=1),
        lambda p, x: p.with_bounds(x, lower="low"),
        lambda p, x: p.with_constraint("more", 3),
        lambda p, x: p.with_constraint(3, x <= 1),
        lambda p, x: p.without(3),
        lambda p, x: p.without("cover", shift=[[]]),
        lambda p, x: p.relaxed(3),
        lambda p, x: p.with_variable(3),
        lambda p, x: p.softened(3),
        lambda p, x: p.softened("cover", weight="x"),
        lambda p, x: p.stage(3),
        lambda p, x: p.row(3),
        lambda p, x: p.row("cover", shift=[]),
        lambda p, x: p.solve(start={"y": 3}),
        lambda p, x: p.solve(start={3: 3}),
        lambda p, x: p.solve(start={"x": 3}),
        lambda p, x: p.solve(start={"x": {"nobody": 1}}),
        lambda p, x: p.solve(start={"x": {("ann", "mon"): "one"}}),
        lambda p, x: p.solve(start=3),
        lambda p, x: p.solve(start=fx.solve(fx.generate("gpu-figure1"))),
        lambda p, x: p.solve(engine="cplex"),
        lambda p, x: p.solve(engine=3),
        lambda p, x: p.solve(tolerance=3),
        lambda p, x: p.interpret(None),
        lambda p, x: p.interpret({"x[ann,mon]": None}),
        lambda p, x: p.interpret(np.zeros(3)),
        lambda p, x: p.write(3),
        lambda p, x: p.write("p.txt"),
        lambda p, x: fx.solve(p, policy="FS"),
        lambda p, x: p.solve()["y"],
        lambda p, x: p.solve()[3],
        lambda p, x: p.solve().duals["none"],
        lambda p, x: p.solve().stages["none"],
        lambda p, x: p.solve().stages[7],
        lambda p, x: p.solve().to_frame("none"),
        lambda p, x: p.solve().slack[3],
    ],
)
def test_odd_calls_say_what_was_expected(call: Callable[[fx.Problem, Any], Any]) -> None:
    p = shifts()
    with pytest.raises(fx.FlowlexError) as caught:
        call(p, p["x"])
    assert len(str(caught.value)) > 10


def test_a_problem_with_selected_dates_is_written_and_labels_of_another_type_are_named(tmp_path: Path) -> None:
    days = [datetime.date(2026, 11, 27), datetime.date(2026, 11, 28)]
    p = fx.Problem("fleet")
    x = p.variables("send", site=[("eu", 1), 7], day=days, upper=6, integer=True)
    p.constrain("need", x.sum(by="day") >= 4)
    p.minimize("first", x.sel(day=days[0], site=[("eu", 1)]).sum())
    p.write(tmp_path / "p.problem.json")
    again = fx.read(tmp_path / "p.problem.json")
    assert again.solve().objective == p.solve().objective == 0
    assert again.to_latex() == p.to_latex()
    assert fx.verify(p.solve().to_dict(), again).ok
    with pytest.raises(fx.FlowlexError, match=r"no site '7'; did you mean 7\?"):
        x.sel(site="7")
    with pytest.raises(fx.FlowlexError, match=r"did you mean datetime.date\(2026, 11, 28\)\?"):
        x.sel(day="2026-11-28")
