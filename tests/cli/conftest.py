"""Small instance files, and fixtures that run the command line in this process or in a separate one."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


def network(name: str, units: int = 4, room: int | None = None) -> dict[str, Any]:
    """Network with two paths from node 0 to 2: over node 1 (capacity 3, cost 2) and direct (``room``, cost 5)."""
    return {
        "kind": "min-cost-flow",
        "name": name,
        "supply": [units, 0, -units],
        "tail": [0, 0, 1],
        "head": [1, 2, 2],
        "lower": [0, 0, 0],
        "upper": [3, room, None],
        "cost": [1, 5, 1],
        "node_names": ["left", "mid dle", "right"],
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a network: 4 units cost 11, 3 units cost 6, 99 units with ``room=2`` are infeasible."""

    def make(name: str, units: int = 4, room: int | None = None) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(network(path.name.split(".")[0], units, room)))
        return path

    return make


@pytest.fixture
def silent_pipe(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Make a named pipe whose writer writes nothing: reading it never ends."""
    writers: list[int] = []

    def make(name: str) -> Path:
        os.mkfifo(tmp_path / name)
        writers.append(os.open(tmp_path / name, os.O_RDWR))
        return tmp_path / name

    yield make
    for writer in writers:
        os.close(writer)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command line in a separate process; kill processes that still run at the end."""
    started: list[subprocess.Popen[str]] = []

    def launch(*arguments: object) -> subprocess.Popen[str]:
        code = "from flowlex.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, *map(str, arguments)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A test run in the background ignores Ctrl-C, and its children would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield launch
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def wait_for() -> Callable[..., Any]:
    """Wait until something is true (at most two minutes if not said otherwise), and return it."""

    def wait(condition: Callable[[], Any], seconds: float = 120) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError(f"waited {seconds} s in vain")

    return wait


@pytest.fixture
def children() -> Callable[[int], list[int]]:
    """Processes that a process has started."""

    def of(pid: int) -> list[int]:
        found = list[int]()
        for thread in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, thread.read_text().split())
        return found

    return of


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """Whether a process runs (a zombie does not)."""

    def check(pid: int) -> bool:
        try:
            os.kill(pid, 0)
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except (ProcessLookupError, FileNotFoundError):
            return False

    return check


@pytest.fixture
def read_results() -> Callable[[Path], list[dict[str, Any]]]:
    """Records of a folder of results."""

    def read(folder: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]

    return read
