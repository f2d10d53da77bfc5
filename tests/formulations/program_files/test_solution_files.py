"""Solution files of solvers: written here by HiGHS and CBC, and samples of the others' formats."""

import subprocess
from pathlib import Path

import highspy
import numpy as np
import pulp
import pytest

from flowlex import generate, model_for
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_files import ProgramFileError, parse_solution, read_solution, write_program
from flowlex.formulations.program_files.read_and_write import Format
from flowlex.models.solution import ModelError

LABELS = ["a", "b 1", "c[2]", "d"]


def program(least: float = 1.0) -> LinearProgram:
    """Its optimum is 6, at 1, 2, 0, 3."""
    lp = LinearProgram("small")
    x = lp.variables("x", 4, upper=[9, 9, 9, 3], labels=LABELS, integer=True)
    lp.constrain("least", x, ">=", [least, 2, 0, 3], labels=LABELS)
    lp.minimize((x * [1, 1, 5, 1]).sum())
    return lp


@pytest.mark.parametrize("kind", ["mps", "lp"])
@pytest.mark.parametrize("style", [0, 1])
def test_files_of_highs(kind: Format, style: int, tmp_path: Path) -> None:
    named = program().named()
    write_program(named, tmp_path / f"x.{kind}")
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.readModel(str(tmp_path / f"x.{kind}"))
    solver.run()
    solver.writeSolution(str(tmp_path / "x.sol"), style)
    if style == 1:  # a table for people
        with pytest.raises(ProgramFileError, match="not a solution file of HiGHS"):
            read_solution(tmp_path / "x.sol", named.column_names)
        return
    found = read_solution(tmp_path / "x.sol", named.column_names)
    assert (found.solver, found.status, found.objective) == ("HiGHS", "Optimal", 6)
    assert found.values is not None and found.values.tolist() == [1, 2, 0, 3]


def test_a_file_of_highs_without_an_answer_holds_none(tmp_path: Path) -> None:
    named = program(least=10).named()
    write_program(named, tmp_path / "x.mps")
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.readModel(str(tmp_path / "x.mps"))
    solver.run()
    solver.writeSolution(str(tmp_path / "x.sol"), 0)
    found = read_solution(tmp_path / "x.sol", named.column_names)
    assert (found.status, found.values) == ("Infeasible", None)


CBC = Path(getattr(pulp, "PULP_CBC_CMD", lambda **_: None)(msg=False).path) if hasattr(pulp, "PULP_CBC_CMD") else None


@pytest.mark.skipif(CBC is None or not CBC.exists(), reason="this PuLP bundles no CBC")
@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_files_of_cbc(kind: Format, tmp_path: Path) -> None:
    for least, status, values in ((1.0, "Optimal", [1, 2, 0, 3]), (10.0, "Infeasible", None)):
        named = program(least).named()
        write_program(named, tmp_path / f"x.{kind}")
        command = [str(CBC), f"x.{kind}", "-solve", "-solution", "x.sol"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
        found = read_solution(tmp_path / "x.sol", named.column_names)
        assert (found.solver, found.status) == ("CBC", status) or found.status == "Integer infeasible"
        assert (None if found.values is None else found.values.tolist()) == values
        assert values is None or found.objective == 6


SCIP = "solution status: optimal solution found\nobjective value:                                    6\n"
GUROBI = "# Solution for model small\n# Objective value = 6\n"


@pytest.mark.parametrize(
    ("text", "solver", "status"),
    [
        (
            SCIP + "x[a]    1 \t(obj:1)\nx[b_1]          2 \t(obj:1)\nx[d] 3 \t(obj:1)\n",
            "SCIP",
            "optimal solution found",
        ),
        (SCIP + "x(a) 1 (obj:1)\nx(b_1) 2 (obj:1)\nx(d) 3 (obj:1)\n", "SCIP", "optimal solution found"),
        (GUROBI + "x[a] 1\nx[b_1] 2\nx[c[2]] 0\nx[d] 3e+00\n", "Gurobi", ""),
        (GUROBI + "x(d) 3\nx(a) 1\nx(b_1) 2\nx(c(2)) 0\n", "Gurobi", ""),
        ("Optimal - objective value 6.00000000\n 0 x_a 1 1\n 1 x_b_1 2 1\n 3 x_d 3 1\n", "CBC", "Optimal"),
    ],
)
def test_samples_of_every_format_and_spelling(text: str, solver: str, status: str) -> None:
    found = parse_solution(text.encode(), program().column_names())
    assert (found.solver, found.status, found.objective) == (solver, status, 6)
    assert found.values is not None and found.values.tolist() == [1, 2, 0, 3]


@pytest.mark.parametrize(
    "text", ["solution status: infeasible\nno solution available\n", "Infeasible - objective value 0\n 0 x_a 1 1\n"]
)
def test_files_without_an_answer_hold_none(text: str) -> None:
    assert parse_solution(text.encode(), program().column_names()).values is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a solution file"),
        ("x_a 1\n", "not a solution file of HiGHS, SCIP, Gurobi or CBC"),
        (GUROBI + "x[a] 1\n", r"column 'x\[b 1\]' has no value"),
        (GUROBI + "x[a] 1\nx[z] 2\n", r"the model has no column 'x\[z\]'"),
        (GUROBI + "x[a] 1\nx[a] 2\n", r"line 4: a second value of 'x\[a\]'"),
        (GUROBI + "x[a] one\n", "line 3: 'one' is no finite number"),
        (GUROBI + "x[a] nan\n", "line 3: 'nan' is no finite number"),
        (SCIP + "x[a]\n", "line 3: expected a name and a value"),
        ("Optimal - objective value 6\n x_a 1\n", "line 2: expected index, name, value and reduced cost"),
        (
            "Model status\nOptimal\n\n# Primal solution values\nFeasible\nObjective 6\n# Columns 4\nx[a] 1\n",
            "4 columns",
        ),
    ],
)
def test_what_is_no_solution_is_refused(text: str, message: str) -> None:
    with pytest.raises(ProgramFileError, match=message):
        parse_solution(text.encode(), program().column_names())


def test_names_that_stand_for_different_columns_are_refused() -> None:
    names = ["x€y", "x y"]  # x€y and x_y in MPS files, x_y and x_y_2 in LP files
    with pytest.raises(ProgramFileError, match="names such as 'x_y' stand for different columns"):
        parse_solution((SCIP + "x_y 1\n").encode(), names)
    assert np.array_equal(parse_solution((SCIP + "x_y 1\nx_y_2 2\n").encode(), names).values, [1, 2])


@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_models_interpret_what_solvers_make_of_written_files(kind: Format, tmp_path: Path) -> None:
    model = model_for(generate("gpu-random", seed=1, nodes=3, tasks=6))
    changed = model.with_constraint("few", model.variables["x"].sum() <= 3)
    path = changed.write(tmp_path / f"few.{kind}")
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.readModel(str(path))
    solver.run()
    solver.writeSolution(str(tmp_path / "few.sol"), 0)
    answer = changed.interpret(tmp_path / "few.sol")
    first = changed.problem.objectives[0]
    assert float(answer.stages[first.name]) == pytest.approx(solver.getObjectiveValue())
    by_name = dict(zip(solver.getLp().col_names_, solver.getSolution().col_value, strict=True))
    assert changed.interpret(by_name).stages == answer.stages
    with pytest.raises(ModelError, match="nobody"):
        changed.interpret({"nobody": 1})
