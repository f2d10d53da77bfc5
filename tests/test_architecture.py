"""The packages keep to the architecture: import contracts, no circles, short files, a link per package."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import networkx as nx
import pytest

from flowlex.instances.gpu_policy import GpuPolicy
from tests.documents import ROOT, SOURCE

PACKAGES = (*("cli", "formulations", "instances", "models", "systems", "testing", "validation"),)
#: One import that each contract of pyproject.toml forbids.
FORBIDDEN = [
    ("instances/grid_rounding.py", "flowlex.models.model_base"),
    ("formulations/fair_shares.py", "flowlex.instances.instance_base"),
    ("formulations/engines/highs.py", "flowlex.models.model_base"),
    ("models/gpu/transfer_costs.py", "flowlex.validation.unimodularity.named_matrix"),
    ("models/load/node_speed.py", "flowlex.cli.result_record"),
    ("models/jit/transfer_slot_grid.py", "flowlex.models.pods.solution"),
    ("models/flow/network.py", "flowlex.systems.scheduler.live.task_ages"),
    ("validation/restated/load.py", "flowlex.models.model_base"),
    ("validation/restated/load.py", "flowlex.validation.claims.claim_interface"),
    ("systems/telemetry/request_limits.py", "flowlex.formulations.solver_outcome"),
    ("systems/scheduler/replica.py", "flowlex.systems.simulation.random_streams"),
    ("systems/telemetry/request_limits.py", "flowlex.systems.scheduler.core_protocol"),
    ("systems/simulation/random_streams.py", "flowlex.validation.claims.claim_interface"),
    ("systems/simulation/event_queue.py", "flowlex.systems.simulation.policy_registry"),
    ("systems/simulation/policy_registry.py", "flowlex.systems.simulation.experiments.statements_and_verdicts"),
    ("instances/grid_rounding.py", "flowlex.systems.telemetry.request_limits"),
    ("models/gpu/transfer_costs.py", "flowlex.testing.row_names"),
    ("cli/versions.py", "flowlex.systems.kubernetes.registration"),
    ("systems/kubernetes/selectors.py", "flowlex.systems.simulation.random_streams"),
    ("testing/row_names.py", "flowlex.validation.certificates.verifier_interface"),
]


@cache
def graph() -> grimp.ImportGraph:
    """Return the import graph of all modules, with lazy and typing imports."""
    return grimp.build_graph("flowlex", include_external_packages=True, cache_dir=None)


def files() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (SOURCE / package).rglob("*.py"))


def check_contracts(folder: Path) -> str:
    """Run import-linter on the package in a folder; return its output if a contract is broken, else nothing."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "COLUMNS": "500"}
    run = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    return "" if run.returncode == 0 else run.stdout + run.stderr


@pytest.mark.rare  # `make lint` checks the contracts themselves
def test_the_contracts_refuse_what_the_architecture_forbids(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for place, name in FORBIDDEN:
        with (tmp_path / "src" / "flowlex" / place).open("a") as stream:
            stream.write(f"\n\ndef _probe() -> None:\n    import {name}\n")
    said = check_contracts(tmp_path)
    for place, name in FORBIDDEN:
        importer = "flowlex." + place.removesuffix(".py").replace("/", ".")
        assert f"{importer} -> {name}" in said, f"no contract refuses {importer} -> {name}"


def test_there_are_no_circles_of_imports():
    imports = nx.DiGraph((a, b) for a in graph().modules for b in graph().find_modules_directly_imported_by(a))
    assert [set(part) for part in nx.strongly_connected_components(imports) if len(part) > 1] == []
    assert sum(name.startswith("flowlex.") for name in imports) > 150


def test_nothing_is_imported_as_a_package_of_its_own():
    assert graph().modules & set(PACKAGES) == set()


@pytest.mark.skipif(not (SOURCE / "models").is_symlink(), reason="no checkout: packages are folders here")
def test_every_package_has_its_relative_link():
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"benchmarks"}  # not part of the package
    assert folders == set(PACKAGES), "a new package needs a line in the architecture's table, a contract, and a link"
    linked = {link.name: link.readlink().as_posix() for link in SOURCE.iterdir() if link.is_symlink()}
    assert linked == {package: f"../../{package}" for package in PACKAGES}
    assert [path for path in files() if not (path.parent / "__init__.py").is_file()] == []


def test_a_policy_of_gpu_assignment_is_asked_for_its_properties():
    """Adding a policy must only change its object and its new rules, so no code compares policies by name."""
    told_apart = []
    for path in files():
        text = path.read_text(encoding="utf-8")
        if not any(name in text for name in GpuPolicy.__members__):
            continue
        compared = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Compare))
        for side in (side for node in compared for side in ast.walk(node)):
            named = side.value if isinstance(side, ast.Constant) else getattr(side, "attr", None)
            if named in GpuPolicy.__members__:
                told_apart.append(f"{path.relative_to(SOURCE)}:{side.lineno}")
    assert told_apart == []


def test_the_core_works_without_its_systems(tmp_path):
    """Without the folder, no command and no importer of a system is left, and the others are all there."""
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "systems")
    )
    code = (
        "from flowlex.cli.command_group import lazy_commands\n"
        "from flowlex.instances.importers import importers\n"
        "print(*lazy_commands(), *importers())"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert {"place", "bindings", "kubernetes"}.isdisjoint(run.stdout.split())
    assert {"import", "tu", "coflow", "openb"} <= set(run.stdout.split())
