"""Pyright finds the types of the package and refuses a wrong script; `make lint` gives it a right one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Per cent of public symbols with a known type, including functions compiled by numba.
COMPLETE = 95.0


def pyright(*words: str) -> subprocess.CompletedProcess[str]:
    """Run pyright with the Python that runs the tests."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",  # asks no registry for a newer pyright
    }
    command = [sys.executable, "-m", "pyright", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.rare
def test_a_wrong_script_is_refused(tmp_path):
    (tmp_path / "wrong.py").write_text("from flowlex import nonsense, generate\nx: int = generate('gpu-testbed')\n")
    run = pyright("--pythonpath", sys.executable, str(tmp_path / "wrong.py"))
    assert run.returncode == 1
    assert '"nonsense" is unknown import symbol' in run.stdout and "reportAssignmentType" in run.stdout


@pytest.mark.slow
def test_the_types_of_the_package_are_complete():
    run = pyright("--verifytypes", "flowlex", "--ignoreexternal", "--outputjson")
    completeness = json.loads(run.stdout)["typeCompleteness"]
    assert completeness["completenessScore"] * 100 >= COMPLETE, "see `pyright --verifytypes flowlex --ignoreexternal`"
