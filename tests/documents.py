"""Console and Python blocks of a document, and a shell that runs them as a person would."""

import gzip
import os
import re
import runpy
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
#: The packages: links in a checkout, folders in a source distribution.
SOURCE = ROOT / "src" / "flowlex"
BLOCK = re.compile(r"^```\{?([\w-]+)\}?[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s+#\s.*")
#: Syntax that needs bash, and ``--version``, which tests the installed command.
NEEDS_A_PROCESS = re.compile(r"[|;<>$`*~]|--version")

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,393216,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,12000,16384,1,460,,LS,Running,0,100,0\n"
)


def blocks(part: str) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(part)]


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Run a line as a user would, in an empty folder; `flowlex`, `python` and `pip` are those of this environment.

    A plain `flowlex` command or script runs in this process, which has already imported everything, unless a
    distribution was installed before. Bash runs lines that need bash or separate processes.
    """
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
        "PIP_NO_BUILD_ISOLATION": "0",  # pip builds with the installed packages and downloads nothing
    }

    def apart(line: str) -> str:
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run(line: str) -> str:
        *before, last = COMMENT.sub("", line).split(" && ")
        if before:
            return "".join(run(part) for part in (*before, last))
        if site.exists() or NEEDS_A_PROCESS.search(last):
            return apart(last)
        match shlex.split(last):
            case ["flowlex", *words]:
                with monkeypatch.context() as patch:
                    patch.chdir(folder)
                    done = CliRunner().invoke(app, words)
                assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception!r}"
                return done.stdout
            case ["python", script]:
                with monkeypatch.context() as patch, redirect_stdout(StringIO()) as said:
                    patch.chdir(folder)
                    runpy.run_path(script)
                return said.getvalue()
        return apart(last)

    run.folder = folder
    return run


def lines(console: str) -> list[str]:
    """Commands of a block, without the dollar sign."""
    assert all(line.startswith("$ ") for line in console.splitlines()), console
    return [line.removeprefix("$ ") for line in console.splitlines()]


def public_traces(folder: Path) -> None:
    """Write small files under the names that the pages use for public traces."""
    for prefix in ("", "openb_"):
        (folder / f"{prefix}node{'_list' if prefix else 's'}.csv").write_text(NODES)
        (folder / f"{prefix}pod{'_list' if prefix else 's'}.csv").write_text(PODS)
    tables = {
        "machine_events": ["0,7,0,plat,0.5,0.25", "0,8,0,plat,1,1"],
        "task_events": ["600000000,,100,0,,0,user,3,9,0.1,0.1,0.0001,1"],
    }
    for table, rows in tables.items():
        place = folder / "clusterdata-2011" / table
        place.mkdir(parents=True)
        (place / "part-00000-of-00001.csv.gz").write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))
