"""Console and Python blocks of a document, and a shell that runs them as a person would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```\{?([\w-]+)\}?[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(part: str) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(part)]


@pytest.fixture
def shell(tmp_path):
    """Run a line as a person would, in an empty folder; `flowlex`, `python` and `pip` are those of this environment."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, module in {"flowlex": "-m flowlex", "pip": "-m pip --quiet", "python": ""}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
        (tools / name).chmod(0o755)
    site, folder = tmp_path / "site", tmp_path / "here"
    folder.mkdir()
    # What people do is tried, not measured: programs begun here without coverage start in a third of the time.
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    environment = unmeasured | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}",
        "PIP_TARGET": str(site),
        "MPLBACKEND": "Agg",
    }

    def run(line: str) -> str:
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run.folder = folder
    return run


def lines(console: str) -> list[str]:
    """Commands of a block, without the dollar sign."""
    assert all(line.startswith("$ ") for line in console.splitlines()), console
    return [line.removeprefix("$ ") for line in console.splitlines()]
