"""Faults drawn at random anywhere in the code of models: no wrong answer is proven."""

import os
import subprocess
import sys

import pytest


@pytest.mark.rare
def test_no_random_fault_passes() -> None:
    command = [sys.executable, "-m", "tests.validation.faults.random_faults", "--seeds", "0", "16"]
    without_loops = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=without_loops)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("stopped") and done.stdout.count("harmless")
