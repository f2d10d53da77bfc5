"""The wheel, installed into a fresh virtual environment, works outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("instances", "formulations", "models", "validation", "telemetry", "cli")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without isolation so that nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    source = tmp_path_factory.mktemp("source") / "flowlex"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, files.decode().split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
        elif (ROOT / name).is_symlink():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).symlink_to((ROOT / name).readlink())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        source,
    ]
    subprocess.run(command, check=True)
    (built,) = folder.glob("flowlex-*.whl")
    return built


def test_wheel_holds_every_room_its_types_and_its_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for room in ROOMS:
        assert f"flowlex/{room}/__init__.py" in names
    assert {"flowlex/__init__.py", "flowlex/__init__.pyi", "flowlex/__main__.py", "flowlex/py.typed"} <= names
    assert any(name.startswith("flowlex/instances/library/") and name.endswith(".json") for name in names)
    assert not any(name.startswith("flowlex/tests") for name in names)


def test_wheel_runs_in_a_fresh_environment_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    # Dependencies come from this environment, flowlex itself from the wheel alone.
    (site,) = (environment / "lib").glob("python3*/site-packages")
    install = [sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(install, check=True)
    dependencies = [p for p in map(Path, sys.path) if p.name == "site-packages"]
    (site / "dependencies.pth").write_text("\n".join(map(str, dependencies)) + "\n")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    script = "import flowlex.models, flowlex.instances as i; print(flowlex.models.__file__); print(i.__file__)"
    for code in (script,):
        where = subprocess.run(
            [python, "-c", code], cwd=tmp_path, env=clean, check=True, capture_output=True, text=True
        )
        assert all(line.startswith(str(environment)) for line in where.stdout.split())
    command = [environment / "bin" / "flowlex", "--version"]
    shown = subprocess.run(command, cwd=tmp_path, env=clean, check=True, capture_output=True, text=True).stdout
    assert "flowlex" in shown
    assert "highspy" in shown.lower()
