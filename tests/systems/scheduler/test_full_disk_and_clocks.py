"""A full disk under the database, and wall clocks that jump by an hour."""

from __future__ import annotations

import contextlib
import subprocess
import time
from types import SimpleNamespace

import pytest

from flowlex.systems.scheduler import replica
from tests.systems.scheduler.conftest import wait_until
from tests.systems.scheduler.processes import audit


@pytest.fixture
def small_disk(tmp_path):
    """Mount 3 MB where the database will be."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def submit(api, name):
    event = {"event": "submit", "job": {"name": name, "tasks": [{"name": name}]}}
    return api.post("/v1/events", json={"events": [event]})


def test_a_full_disk_acknowledges_nothing_and_loses_nothing(small_disk, start, url):
    """Leader and follower share the disk; requests are refused while it is full, and taken again afterwards."""
    services = [start(), start(leads=False)]
    names = (f"t{k}" for k in range(10**6))
    taken = {name for name in (next(names) for _ in range(5)) if submit(services[0], name).status_code == 200}
    filler, statuses = small_disk / "filler", set()
    with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(4096))
    for _ in range(8):  # the log may still have room in pages that it holds already
        for api in services:
            name = next(names)
            status = submit(api, name).status_code
            statuses.add(status)
            taken |= {name} if status == 200 else set()
    assert 503 in statuses <= {200, 503}
    filler.unlink()
    wait_until(lambda: any(api.replica.term is not None and not api.replica.failing for api in services))
    leader = next(api for api in services if api.replica.term is not None)
    wait_until(lambda: submit(leader, name := next(names)).is_success and not taken.add(name))
    wait_until(lambda: len({api.replica._memory.number for api in services}) == 1)
    here, wrong = audit(url)
    assert not wrong and taken == here
    for api in services:
        assert set(api.replica._memory.core.scheduler.state.tasks) == here


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_wall_clocks_that_jump_change_no_lease_and_turn_no_time_back(start, monkeypatch, jump_s):
    api, follower = start(), start(leads=False)
    submit(api, "a")
    api.post("/v1/step")
    real = time.time
    monkeypatch.setattr(
        replica,
        "time",
        SimpleNamespace(monotonic=time.monotonic, perf_counter=time.perf_counter, time=lambda: real() + jump_s),
    )
    time.sleep(1.0)  # two leases
    assert api.replica.term == 1 and follower.replica.term is None
    api.post("/v1/step")
    api.__exit__()
    wait_until(lambda: follower.replica.term == 2)
    follower.post("/v1/step")
    first, second, third = (each["at_s"] for each in follower.replica.decisions)
    assert first <= second <= first + 60 and second <= third
