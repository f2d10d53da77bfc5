"""The public surface: what ``flowlex`` offers, that it is found when asked for, and that asking costs little."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys

import pytest

import flowlex

PUBLIC = [
    "Allocation",
    "FlowScheduler",
    "FlowScheduling",
    "GpuAssignment",
    "JitBandwidth",
    "JitScheduler",
    "LoadPartition",
    "MinCostFlow",
    "PodPlacement",
    "check",
    "generate",
    "implied_integers",
    "model_for",
    "read_instance",
    "simulate_cluster",
    "solve",
    "study",
]
#: What a person pays for when nothing is solved yet.
HEAVY = {"highspy", "matplotlib", "numba", "numpy", "pandas", "pulp", "pydantic", "rich", "scipy"}
#: Best of five fresh processes, in seconds of processor time; the aims are 0.1 and 0.3 s on an idle machine.
LIMITS = {"import flowlex": 1.0, "import sys; sys.argv[1:] = ['--help']; from flowlex.cli import main; main()": 3.0}


def fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_the_public_names_are_these_and_no_others():
    assert sorted(flowlex.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(flowlex))
    for name in PUBLIC:
        assert callable(getattr(flowlex, name))


def test_the_version_is_that_of_the_package():
    assert flowlex.__version__ == importlib.metadata.version("flowlex")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = flowlex.nonsense


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
    seconds = []
    for _ in range(5):
        before = os.times()
        fresh(code)
        after = os.times()
        seconds.append(sum(after[2:4]) - sum(before[2:4]))  # user and system time of ended children
    assert min(seconds) < LIMITS[code]
