"""Killed processes of a real Dask cluster: every file has exactly one line, and a resumed run finishes."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.rare

pytest.importorskip("distributed", reason="extra distributed is not installed")

MANY = 30
PARTS = ("worker", "nanny", "scheduler", "client")
#: Parts that are killed: each alone and every pair, with two seeds: twenty runs.
DEATHS = [tuple(dead) for dead in (*combinations(PARTS, 1), *combinations(PARTS, 2))]
SLOW = [pytest.param(dead, seed, marks=pytest.mark.slow) for seed in range(2) for dead in DEATHS]


@pytest.fixture
def cluster(tmp_path: Path, wait_for: Callable[..., Any]) -> Iterator[Callable[..., dict[str, Any]]]:
    """Start a scheduler and two nannies with a worker each, as processes; return its address and their ids."""
    with contextlib.ExitStack() as stack:

        def dask(name: str, *words: object) -> int:
            command = [sys.executable, "-P", "-m", f"distributed.cli.dask_{name}", *map(str, words), "--no-dashboard"]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
            process = stack.enter_context(subprocess.Popen(command, **quiet))
            stack.callback(process.kill)
            return process.pid

        def launch() -> dict[str, Any]:
            file = tmp_path / f"scheduler-{len(list(tmp_path.iterdir()))}.json"
            scheduler = dask("scheduler", "--port", 0, "--scheduler-file", file)
            wait_for(lambda: file.exists() and file.read_text().endswith("}"))
            address = json.loads(file.read_text())["address"]
            nanny, other = (dask("worker", address, "--nthreads", 1) for _ in range(2))
            return {"address": address, "scheduler": scheduler, "nanny": nanny, "other": other}

        yield launch


@pytest.mark.parametrize(("dead", "seed"), [(("scheduler",), 0), (("nanny", "client"), 0), *SLOW])
def test_every_file_has_one_line_whoever_dies(cluster, start, write, wait_for, read_results, tmp_path, dead, seed):
    for number in range(MANY):
        write(f"in/{number}.json", units=1 + number % 4)
    choose, results = random.Random(f"{dead} {seed}"), tmp_path / "out" / "results.jsonl"
    about = cluster()
    command = ("solve", "in", "--engine", "highs", "-o", "out", "--scheduler")
    process = start(*command, about["address"])
    about["client"] = process.pid
    for part in dead:
        until = choose.randrange(1, MANY // 2)
        wait_for(
            lambda until=until: (
                process.poll() is not None or (results.exists() and results.read_bytes().count(b"\n") >= until)
            )
        )
        with contextlib.suppress(ProcessLookupError):  # it may have ended for the death before
            os.kill(_worker_of(about["other"]) if part == "worker" else about[part], signal.SIGKILL)
    _, stderr = process.communicate(timeout=200)
    if "client" not in dead:
        lost = f"Error: the scheduler {about['address']} is lost; start it and go on with --resume"
        assert (process.returncode, lost in stderr) in [(0, False)] + [(2, True)] * ("scheduler" in dead), stderr
    assert "Traceback" not in stderr and "Error:" not in stderr.replace("Error: the scheduler tcp", "")
    again = start(*command, cluster()["address"], "--resume")
    _, stderr = again.communicate(timeout=200)
    assert again.returncode == 0, stderr
    names = sorted(record["name"] for record in read_results(tmp_path / "out"))
    assert names == sorted(map(str, range(MANY)))


def _worker_of(nanny: int) -> int:
    """The worker process that a thread of a nanny started; its other child tracks resources."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for thread in Path(f"/proc/{nanny}/task").iterdir():
            for child in (thread / "children").read_text().split():
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        time.sleep(0.1)  # it starts one at this moment
    raise AssertionError(f"nanny {nanny} has no worker")
