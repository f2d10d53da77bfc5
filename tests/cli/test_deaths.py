"""Killed processes of a real Dask cluster: every file has exactly one line, and a resumed run finishes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
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
#: The network of a worker (even seeds) or of the scheduler (odd seeds) is cut; every second cut lasts three seconds.
PARTS = ("worker", "nanny", "scheduler", "client", "network")
#: Parts that are killed: each alone and every pair, with two seeds: thirty runs.
DEATHS = [tuple(dead) for dead in (*combinations(PARTS, 1), *combinations(PARTS, 2))]
SLOW = [pytest.param(dead, seed, marks=pytest.mark.slow) for seed in range(2) for dead in DEATHS]


class Namespace:
    """A network namespace, joined to this machine by a pair of virtual interfaces that can be taken down."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        number = os.getpid() % 200 + 1
        self.name, link = f"flowlex-{number}", f"flowlex{number}"
        self.outside, self.inside = f"10.77.{number}.1", f"10.77.{number}.2"
        if shutil.which("ip") is None or not self._ip("netns", "add", self.name):
            pytest.skip("needs the right to make network namespaces (`ip netns add`)")
        stack.callback(self._ip, "netns", "del", self.name)
        assert self._ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        stack.callback(self._ip, "link", "del", link)  # immediately, as the namespace is deleted some time later
        assert self._ip("addr", "add", f"{self.outside}/24", "dev", link) and self._ip("link", "set", link, "up")
        assert self._ip("-n", self.name, "addr", "add", f"{self.inside}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            assert self._ip("-n", self.name, "link", "set", device, "up")

    def _ip(self, *words: str) -> bool:
        return subprocess.run(["ip", *words], stderr=subprocess.DEVNULL, check=False).returncode == 0

    def cut(self, seconds: float | None) -> None:
        """Take the network down for a number of seconds, or permanently (None)."""
        assert self._ip("-n", self.name, "link", "set", "eth0", "down")
        if seconds is not None:
            time.sleep(seconds)
            assert self._ip("-n", self.name, "link", "set", "eth0", "up")


@pytest.fixture
def cluster(tmp_path: Path, wait_for: Callable[..., Any]) -> Iterator[Callable[..., dict[str, Any]]]:
    """Start a scheduler and two nannies with a worker each, as processes; return its address and their ids.

    ``far``: the process in a separate network namespace, ``scheduler`` or ``nanny``.
    """
    with contextlib.ExitStack() as stack:

        def dask(name: str, *words: object, inside: Namespace | None = None) -> int:
            command = [sys.executable, "-P", "-m", f"distributed.cli.dask_{name}", *map(str, words), "--no-dashboard"]
            if inside is not None:
                command = ["ip", "netns", "exec", inside.name, *command]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
            process = stack.enter_context(subprocess.Popen(command, **quiet))
            stack.callback(process.kill)
            return process.pid

        def launch(far: str = "") -> dict[str, Any]:
            file = tmp_path / f"scheduler-{len(list(tmp_path.iterdir()))}.json"
            network = Namespace(stack) if far else None
            of_scheduler, of_nanny = (network if far == part else None for part in ("scheduler", "nanny"))
            host = ("--host", network.inside if of_scheduler else network.outside) if network else ()
            scheduler = dask("scheduler", "--port", 0, "--scheduler-file", file, *host, inside=of_scheduler)
            wait_for(lambda: file.exists() and file.read_text().endswith("}"))
            address = json.loads(file.read_text())["address"]
            nannies = [dask("worker", address, "--nthreads", 1, inside=inside) for inside in (of_nanny, None)]
            return {
                "address": address,
                "scheduler": scheduler,
                "nanny": nannies[0],
                "other": nannies[1],
                "network": network,
            }

        yield launch


@pytest.mark.parametrize(("dead", "seed"), [(("scheduler",), 0), (("nanny", "client"), 0), *SLOW])
def test_every_file_has_one_line_whoever_dies(cluster, start, write, wait_for, read_results, tmp_path, dead, seed):
    for number in range(MANY):
        write(f"in/{number}.json", units=1 + number % 4)
    choose, results = random.Random(f"{dead} {seed}"), tmp_path / "out" / "results.jsonl"
    far = ("nanny", "scheduler")[seed % 2] if "network" in dead else ""
    about = cluster(far)
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
        if part == "network":
            about["network"].cut(choose.choice([3.0, None]))
            continue
        with contextlib.suppress(ProcessLookupError):  # it may have ended for the death before
            os.kill(_worker_of(about["other"]) if part == "worker" else about[part], signal.SIGKILL)
    _, stderr = process.communicate(timeout=200)
    if "client" not in dead:
        lost = f"Error: the scheduler {about['address']} is lost; start it and go on with --resume"
        assert (process.returncode, lost in stderr) in [(0, False)] + [(2, True)] * ("scheduler" in (*dead, far)), (
            stderr
        )
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
