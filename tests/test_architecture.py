"""No circles of imports, a link per package, and a core that works without its systems."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import networkx as nx
import pytest

from tests.documents import ROOT, SOURCE

PACKAGES = (*("cli", "formulations", "instances", "models", "systems", "testing", "validation"),)


@cache
def graph() -> grimp.ImportGraph:
    """Return the import graph of all modules, with lazy and typing imports."""
    return grimp.build_graph("flowlex", include_external_packages=True, cache_dir=None)


def files() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (SOURCE / package).rglob("*.py"))


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
    assert {"place", "bindings", "kubernetes", "coflow", "openb"}.isdisjoint(run.stdout.split())
    assert {"import", "tu"} <= set(run.stdout.split())
