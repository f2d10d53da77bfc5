"""The public interface of ``flowlex``: names, lazy imports, and the time of imports and commands."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import highspy
import networkx as nx
import numpy as np
import pandas as pd
import pulp
import pytest
import scipy.sparse

import flowlex
from flowlex.formulations import LinearProgram
from flowlex.instances.files import read_json
from flowlex.instances.instance_base import InstanceError
from flowlex.models import ModelError
from flowlex.validation.certificates import SolutionError

#: Packages that `import flowlex` and `flowlex --help` must not import.
HEAVY = {"highspy", "matplotlib", "numba", "numpy", "pandas", "pulp", "pydantic", "rich", "scipy"}
#: Best of five fresh processes, in seconds of processor time; the aims are 0.1 and 0.3 s on an idle machine.
LIMITS = {"import flowlex": 1.0, "import sys; sys.argv[1:] = ['--help']; from flowlex.cli import main; main()": 3.0}


def fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def seconds(code: str) -> float:
    before = os.times()
    fresh(code)
    return sum(os.times()[2:4]) - sum(before[2:4])  # user and system time of ended children


def test_every_public_name_can_be_called():
    assert {"Problem", "check", "solve", "verify"} <= set(flowlex.__all__) <= set(dir(flowlex))
    assert all(callable(getattr(flowlex, name)) for name in flowlex.__all__)


def test_the_version_is_that_of_the_package():
    assert flowlex.__version__ == importlib.metadata.version("flowlex")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_python_m_flowlex_is_the_command(arguments):
    shown = subprocess.run([sys.executable, "-m", "flowlex", *arguments], check=True, capture_output=True, text=True)
    assert shown.stdout.startswith("flowlex ") if arguments == ["--version"] else "solve" in shown.stdout


@pytest.mark.parametrize("code", LIMITS, ids=["import", "help"])
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    report = "import atexit, json, sys; atexit.register(lambda: print(json.dumps(sorted(sys.modules))));"
    imported = set(json.loads(fresh(report + code).splitlines()[-1]))
    assert "flowlex" in imported
    assert imported & HEAVY == set()
    assert any(seconds(code) < LIMITS[code] for _ in range(5))


def _two_rows_in_pulp():
    problem = pulp.LpProblem("p")
    a, b = (problem.add_variable(name, 0, cat="Integer") for name in "ab")
    problem += a + b
    problem += a + b <= 1
    problem += a - b <= 1
    return problem


def _two_rows_stated():
    program = LinearProgram("p")
    a, b = (program.variables(name, 1, integer=True) for name in "ab")
    program.constrain("sum", a + b, "<=", 1)
    program.constrain("difference", a - b, "<=", 1)
    return program


def _two_rows_in_highs():
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.passModel(_two_rows_stated().to_highs())
    return solver


ROWS = [[1, 1], [1, -1]]
#: Inputs accepted as a matrix, and whether they are totally unimodular: ROWS has determinant -2.
MATRICES = {
    "lists": (lambda: ROWS, False),
    "NumPy": (lambda: np.array(ROWS), False),
    "object integers": (lambda: np.array(ROWS, dtype=object), False),
    "fractions": (lambda: [[Fraction(x) for x in row] for row in ROWS], False),
    "decimals": (lambda: [[Decimal(x) for x in row] for row in ROWS], False),
    "SciPy": (lambda: scipy.sparse.csr_matrix(ROWS), False),
    "frame": (lambda: pd.DataFrame(ROWS, ["c", "d"], ["a", "b"]), False),
    "PuLP": (_two_rows_in_pulp, False),
    "HiGHS": (_two_rows_in_highs, False),
    "HiGHS model": (lambda: _two_rows_stated().to_highs(), False),
    "no rows": (lambda: pulp.LpProblem("empty"), True),
    "no entries": (lambda: np.zeros((0, 3)), True),
    "directed graph": (lambda: nx.DiGraph([("a", "b"), ("b", "c")]), True),
    "odd cycle": (lambda: nx.cycle_graph(3), False),
    "program": (_two_rows_stated, False),
    "network": (lambda: flowlex.model_for(flowlex.generate("network-random")).formulation, True),
    "instance": (lambda: flowlex.generate("gpu-figure1"), True),
    "model": (lambda: flowlex.model_for(flowlex.generate("gpu-figure1")), True),
}


@pytest.mark.parametrize("name", MATRICES)
def test_one_line_checks_whatever_holds_a_matrix(name):
    make, unimodular = MATRICES[name]
    source = make()
    verdict = flowlex.check(source)
    assert verdict.is_tu is unimodular and verdict.verify(source)
    found = flowlex.implied_integers(source)
    assert found.error(source) == "" and len(found.dropped) <= found.declared


def test_files_of_every_kind_are_checked_by_their_path(tmp_path):
    problem = _two_rows_in_pulp()
    problem.writeLP(str(tmp_path / "a.lp"))
    problem.writeMPS(str(tmp_path / "a.mps"))
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.csr_matrix(ROWS))
    (tmp_path / "a.txt").write_text("2 2\n1 1\n1 -1\n")
    for place in tmp_path.iterdir():
        assert flowlex.check(place).witness.determinant in (2, -2), place
    assert "_C1" in str(flowlex.check(tmp_path / "a.lp").witness)
    flowlex.instances.write_instance(flowlex.generate("gpu-figure1"), tmp_path / "a.json")
    assert flowlex.check(tmp_path / "a.json").is_tu


def test_a_path_tables_and_an_instance_are_solved_alike(tmp_path):
    instance = flowlex.generate("gpu-figure1")
    place = tmp_path / "a.json"
    flowlex.instances.write_instance(instance, place)
    tables = {"kind": instance.kind, **instance.to_frames()}
    answers = [flowlex.solve(each) for each in (instance, place, str(place), tables, instance.model_dump(mode="json"))]
    assert len({answer.objective for answer in answers}) == 1
    with pytest.raises(InstanceError, match=r"got DataFrame; give \{'kind'"):
        flowlex.solve(tables["tasks"])
    with pytest.raises(InstanceError, match="tables need their kind"):
        flowlex.read({"tasks": tables["tasks"]})


def test_a_solution_is_saved_and_shown(tmp_path, monkeypatch):
    instance = flowlex.generate("gpu-figure1")
    solution = flowlex.solve(instance)
    saved = solution.save(tmp_path / "a.solution.json.gz")
    assert flowlex.verify(read_json(saved), instance).ok
    with pytest.raises(FileExistsError, match=r"is there already; use force=True to overwrite it: '.*a\.solution"):
        solution.save(saved)
    assert solution.save(saved, force=True) == saved
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(ModelError, match=r"notes\.txt: expected a name that ends in \.json or \.json\.gz"):
        solution.save(notes, force=True)
    assert notes.read_text() == "mine"
    program = flowlex.model_for(instance).write(tmp_path / "a.lp")
    with pytest.raises(FileExistsError, match="use force=True"):
        flowlex.model_for(instance).write(program)
    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    page = solution.open()
    assert shown == [f"file://{page}"] and page.parent == tmp_path and "<svg" in page.read_text()
    with pytest.raises(OSError, match="cannot be written"):
        solution.save(saved / "a.json")  # a file is no folder


def test_duals_name_the_nearest():
    solution = flowlex.solve(flowlex.generate("gpu-figure1"))
    with pytest.raises(KeyError, match=r"no duals of 'shares'; did you mean 'share'[?]; there are: gpu_out, share"):
        solution.duals["shares"]
    with pytest.raises(KeyError, match=r"no dual for 'jbo1'; did you mean 'job1'[?]; there are: job1, job2"):
        solution.duals["share"]["jbo1"]
    assert "shares" not in solution.duals and solution.duals.get("shares") is None
    with pytest.raises(KeyError, match="this solution has none"):
        solution.without_claims("no proof").duals["share"]


def test_solutions_documents_and_files_are_verified(tmp_path):
    instance = flowlex.generate("gpu-figure1")
    place = tmp_path / "figure1.json"
    flowlex.instances.write_instance(instance, place)
    solution = flowlex.solve(instance)
    saved = solution.save(tmp_path / "a.solution.json")
    for claimed in (solution, solution.to_dict(), saved, str(saved)):
        assert [flowlex.verify(claimed, each).verdict for each in (instance, place, str(place))] == ["proven"] * 3
    forged = solution.to_dict() | {"objective": solution.objective + 1}
    assert flowlex.verify(forged, instance).verdict == "refused"
    assert flowlex.verify(solution, flowlex.generate("gpu-figure4")).verdict == "refused"
    with pytest.raises(SolutionError, match=r"figure1\.json: this is an instance of kind 'gpu-assignment'"):
        flowlex.verify(place, saved)
    with pytest.raises(InstanceError, match=r"no\.json: cannot be read"):
        flowlex.verify(tmp_path / "no.json", instance)
    with pytest.raises(SolutionError):
        flowlex.verify(3, instance)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: flowlex.slove, "flowlex has no name 'slove'; did you mean 'solve'?"),
        (lambda: flowlex.check([[1, 0], [1]]), "rows of one length are expected: row 0 has 2 entries, row 1 has 1"),
        (lambda: flowlex.check(None), "cannot take a matrix from NoneType"),
        (lambda: flowlex.read("two.lp"), "two.lp: cannot be read: No such file or directory"),
        (lambda: flowlex.read(pd.DataFrame()), "give {'kind': 'gpu-assignment', 'nodes': frame, ...}"),
        (lambda: flowlex.solve(nx.MultiDiGraph()), "got MultiDiGraph; give {'kind': 'min-cost-flow'"),
        (lambda: flowlex.solve(pulp.LpProblem()), "got LpProblem; a model or program has its own solve()"),
        (lambda: flowlex.solve(flowlex.generate("gpu-figure1"), polcy="FS"), "no option 'polcy'"),
        (lambda: flowlex.solve(flowlex.generate("gpu-figure1"), time_limit_s="3"), "must be a number, got '3'"),
        (lambda: flowlex.generate("gpu-figure1", seed="a"), "the seed must be an integer, got 'a'"),
        (lambda: flowlex.FlowScheduler(flowlex.generate("gpu-figure1")), "takes a flow-scheduling instance, got"),
        (lambda: flowlex.solve(flowlex.generate("gpu-figure1")).plot("x"), "expected axes of matplotlib, got 'x'"),
    ],
)
def test_an_odd_call_says_what_was_expected(call, says):
    with pytest.raises((AttributeError, ValueError, RuntimeError), match=re.escape(says)):
        call()
