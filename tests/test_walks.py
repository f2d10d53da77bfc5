"""A researcher in Jupyter: in this environment, and (slow) from a wheel in a fresh one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_packaging import checkout, fresh_environment, install, make_wheel

pytestmark = pytest.mark.rare

#: A graph of transfers is solved, changed, drawn and checked; names can be completed.
RESEARCHER = """
import pandas as pd
import flowlex

machines = pd.DataFrame({"name": ["a", "b", "c"], "out_mbps": 100, "in_mbps": 100})
computations = pd.DataFrame({"job": "etl", "name": ["read", "sort", "join"], "seconds": [2, 3, 4]})
transfers = pd.DataFrame(
    {
        "job": "etl", "name": ["t1", "t2"], "size_mb": [50, 100],
        "sender": ["a", "b"], "receiver": ["b", "c"], "feeds": ["sort", "join"],
    }
)
jobs = pd.DataFrame({"name": ["etl"]})
tables = {"machines": machines, "jobs": jobs, "computations": computations, "transfers": transfers}
instance = flowlex.read({"kind": "jit-bandwidth", **tables})
model = flowlex.model_for(instance)
solution = model.solve()
assert solution.certificate.ok and "optimal, proven" in solution.certificate.summary
variables, duals = model.variables, solution.duals
rate = variables["rate"]
changed = model.with_constraint("gentle", rate.sel(transfer="etl/t1").sum() <= 1000).solve()
assert changed.status == "optimal" and changed.certificate.ok
axes = solution.plot()
axes.figure.savefig("plan.png")
saved = solution.save("plan.solution.json", force=True)
flowlex.instances.write_instance(instance, "plan.json")
assert flowlex.verify(saved, "plan.json").verdict == "proven"
page = solution.to_html()
assert all("<" in shown._repr_html_() for shown in (instance, model, solution, solution.certificate))
assert flowlex.check(model).is_tu in (True, False, None)
"""
COMPLETED = """
from pathlib import Path
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell(Path("researcher.py").read_text()).raise_error()
for typed, expected in (
    ("flowlex.impl", "implied_integers"), ("solution.certif", "certificate"), ("variables['ra", "rate"),
    ("duals['egr", "egress"), ("flowlex.JitBandwidth(instance, shar", "share"),
):
    with provisionalcompleter():
        found = [each.text for each in shell.Completer.completions(typed, len(typed))]
    assert any(expected in name for name in found), (typed, found)
print("done")
"""
#: Words of Python's standard error that a user must not see.
NOISE = ("SyntaxWarning", "DeprecationWarning", "FutureWarning", "UserWarning", "Traceback")


@pytest.fixture(scope="module", params=["here", pytest.param("wheel", marks=pytest.mark.slow)])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python with flowlex: this one, or one in a fresh environment with only the wheel."""
    if request.param == "here":
        return Path(sys.executable)
    folder = tmp_path_factory.mktemp("walks")
    found = fresh_environment(folder / "venv")
    install(found, make_wheel(checkout(folder), folder / "wheel"))
    return found


def run(python: Path, folder: Path, *arguments: object, code: int = 0, **options: str) -> str:
    """Return the output of a process; it must exit with ``code`` and without warnings about flowlex."""
    fresh = python != Path(sys.executable)
    clean = {key: value for key, value in os.environ.items() if not (fresh and key.startswith("PYTHON"))}
    environment = clean | {"MPLBACKEND": "Agg", "IPYTHONDIR": str(folder), "COLUMNS": "150"} | options
    command = [python, "-W", "default", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    noise = [line for line in done.stderr.splitlines() if any(word in line for word in NOISE)]
    assert [line for line in noise if "LpVariable" not in line] == []  # PuLP warns users of its version 3
    return done.stdout


def test_a_researcher_in_jupyter(python, tmp_path):
    (tmp_path / "researcher.py").write_text(RESEARCHER)
    assert run(python, tmp_path, "researcher.py") == ""
    assert (tmp_path / "plan.png").stat().st_size > 5000
    assert "proven" in run(python, tmp_path, "-m", "flowlex", "verify", "plan.solution.json", "plan.json")
    (tmp_path / "jupyter.py").write_text(COMPLETED)
    assert run(python, tmp_path, "jupyter.py").splitlines()[-1] == "done"
