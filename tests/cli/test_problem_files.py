"""The command line on problem files and model files: alone, in a batch, resumed, verified."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flowlex as fx

Run = Callable[..., Any]
LP = """Maximize
 gain: 3 x + 2 y
Subject To
 room: x + y <= 4
 even: x - y >= -1
Bounds
 x <= 3
General
 x y
End
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """``a.lp`` and ``b.mps`` state one program with optimum 11; ``c`` has two objectives, ``d.lp`` no answer."""
    (tmp_path / "a.lp").write_text(LP)
    fx.read(tmp_path / "a.lp").write(tmp_path / "b.mps")
    p = fx.Problem("pair")
    x = p.variables("x", thing=["a", "b"], binary=True)
    p.constrain("one", x.sum() <= 1)
    p.maximize("number", x.sum())
    p.minimize("first", x.sel(thing="a"))
    p.write(tmp_path / "c.problem.json.gz")
    (tmp_path / "d.lp").write_text("Minimize\n x\nSubject To\n low: x >= 4\n high: x <= 3\nEnd\n")
    return tmp_path


def test_a_batch_solves_resumes_and_verifies(files: Path, run: Run, read_results: Any) -> None:
    (files / "e.lp").write_text("Minimize\n x +\nEnd\n")
    result = run("solve", files, "-o", "out", "--jobs", 2)
    assert result.exit_code == 1
    found = {Path(r["instance"]).name: r for r in read_results(files / "out")}
    assert {name: r["status"] for name, r in found.items()} == {
        "a.lp": "optimal", "b.mps": "optimal", "c.problem.json.gz": "optimal", "d.lp": "infeasible", "e.lp": "error",
    }  # fmt: skip
    assert [found[name]["objective"] for name in ("a.lp", "b.mps", "c.problem.json.gz")] == [11, 11, 1]
    assert {r["kind"] for r in found.values()} == {"problem"}
    assert found["c.problem.json.gz"]["metrics"] == {"number": 1, "first": 0}
    assert "line 3" in found["e.lp"]["message"] and "e.lp" in found["e.lp"]["message"]
    assert all(found[name]["certificate"]["claim"] == "optimal" for name in ("a.lp", "b.mps", "c.problem.json.gz"))
    assert "x >= 4" in found["d.lp"]["message"] or "low" in found["d.lp"]["message"]
    again = run("solve", files, "-o", "out", "--jobs", 2, "--resume")
    assert again.exit_code == 1 and "4 of 5 were done before" in again.output
    (files / "e.lp").unlink()
    hurried = run("verify", "out", files, "--time-limit", "1e-9")
    assert hurried.exit_code == 3 and "4 quoted" in hurried.output
    judged = run("verify", "out", files)
    assert judged.exit_code == 0, judged.output
    assert judged.output.count("for the problem as stated in") == 4


def test_a_forged_file_is_refused(files: Path, run: Run) -> None:
    assert run("solve", "c.problem.json.gz", "-o", "out").exit_code == 0
    path = files / "out" / "c.solution.json"
    document = json.loads(path.read_text())
    document["answer"] = {"x": {"a": 1}}
    path.write_text(json.dumps(document))
    result = run("verify", path, "c.problem.json.gz")
    assert result.exit_code == 1 and "refused" in result.output
    assert run("verify", path, "a.lp").exit_code == 1


def test_the_other_commands_take_these_files(files: Path, run: Run) -> None:
    for name in ("a.lp", "b.mps", "c.problem.json.gz"):
        shown = run("show", name)
        assert shown.exit_code == 0 and "objectives" in shown.output
        # Rows x + y and x - y have determinant -2.
        assert run("tu", name).exit_code == (0 if name.startswith("c") else 1)
        assert " of 2 integer declarations" in run("integers", name).output
        assert run("plot", name, "-o", f"{name}.png").exit_code == 0
        assert (files / f"{name}.png").stat().st_size > 1000
    assert run("export", "a.lp", "-o", "x.mps").exit_code == 0
    assert fx.solve(files / "x.mps").objective == 11
    assert run("export", "c.problem.json.gz", "-o", "y.lp").exit_code == 0
    assert [fx.solve(files / name).objective for name in ("y-1-number.lp", "y-2-first.lp")] == [1, 0]
    assert run("study", "a.lp", "c.problem.json.gz", "-o", "study").exit_code == 0
    assert (files / "study" / "study.csv").read_text().count("optimal") >= 2


def test_wrong_use_has_a_message(files: Path, run: Run) -> None:
    assert run("solve", "a.lp", "--set", "policy=FS").exit_code == 2
    assert "network" in run("solve", "a.lp", "--engine", "network").output
    assert run("show", "none.mps").exit_code == 2
    (files / "bad.mps").write_text("NAME\nROWS\n")
    result = run("show", "bad.mps")
    assert result.exit_code == 2 and "bad.mps" in result.output


def test_rules_of_ones_own_are_added_to_a_model_file(files: Path, run: Run) -> None:
    rule = {"change": "bounds", "variables": {"variable": "x", "where": {"column": "x"}}, "upper": 1}
    (files / "rule.json").write_text(json.dumps({"version": 1, "changes": [rule]}))
    assert run("solve", "a.lp", "--changes", "rule.json", "-o", "out").exit_code == 0
    document = json.loads((files / "out" / "a.solution.json").read_text())
    assert document["objective"] == 7  # x = 1, y = 2
    assert run("verify", "out/a.solution.json", "a.lp").exit_code == 0
    assert run("verify", "out/a.solution.json", "a.lp", "--changes", "rule.json").exit_code == 0
