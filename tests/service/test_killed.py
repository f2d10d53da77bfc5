"""kill -9, torn records, a full or read-only disk: by the clients' records nothing is lost or duplicated."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import httpx
import pytest

from flowlex.service.write_ahead_log import record_of

SERVE = [sys.executable, "-c", "from flowlex.cli import main; main()", "serve", "scheduler", "--no-auth", "--port", "0"]


def launch(folder, *arguments, logs=None, command=SERVE):
    """Start a service in a separate process with output to a file, as an unread pipe could block it."""
    log = (logs or folder.parent) / f"{time.monotonic_ns()}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen([*command, "--state", str(folder), *arguments], stdout=stream, stderr=stream)
    until = time.monotonic() + 120
    while (found := re.search(r"Serving (http://\S+)", log.read_text())) is None:
        assert process.poll() is None and time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    return process, found[1]


def connect(url):
    return httpx.Client(base_url=url, trust_env=False, timeout=120)


class Writer:
    """A client that submits and cancels jobs, and records sent and acknowledged requests."""

    def __init__(self, name):
        self.name, self.count, self.acknowledged = name, 0, 0
        self.here = set()
        self.open = None  # a request whose answer is not known

    def request(self):
        """The next request: its key and event."""
        self.count += 1
        task = f"{self.name}-{self.count}"
        if self.count % 3 == 0 and self.here:
            return f"{task}-key", {"event": "cancel", "task": min(self.here)}
        event = {"event": "submit", "job": {"name": task, "tasks": [{"name": task}]}}
        if self.count % 5 == 0:  # a gang that waits
            event["job"]["tasks"] = [{"name": name} for name in (task, *(f"{task}+{k}" for k in range(60)))]
            event["gangs"] = [{"name": task, "jobs": [task]}]
        return f"{task}-key", event

    def send(self, http):
        """Send the open request again, or the next; returns the status, or None without an answer."""
        self.open = self.open or self.request()
        key, event = self.open
        try:
            answer = http.post("/v1/events", json={"events": [event]}, headers={"Idempotency-Key": key})
        except httpx.HTTPError:
            return None
        if answer.status_code == 200:
            self.open, self.acknowledged = None, self.acknowledged + 1
            if event["event"] == "submit":
                self.here |= {task["name"] for task in event["job"]["tasks"]}
            else:
                self.here.discard(event["task"])
        else:
            assert answer.status_code == 503, answer.text  # 409 would say that a request was taken twice or lost
        return answer.status_code

    def run(self, url, stop):
        """Send requests until the service stops answering."""
        with connect(url) as http:
            while not stop.is_set():
                if self.send(http) is None:
                    return


def read(http, path, **params):
    """Ask as clients do: again after "busy", as a loaded machine may be slow to start the readers."""
    until = time.monotonic() + 300
    while (answer := http.get(path, params=params)).headers.get("Retry-After"):
        assert time.monotonic() < until, answer.text
        time.sleep(0.1)
    assert answer.status_code == 200, answer.text
    return answer.json()


def check(http, writers, folder):
    """Compare the service's tasks with the clients' records."""
    for writer in writers:
        while writer.open is not None:
            assert writer.send(http) == 200
    here = set().union(*(writer.here for writer in writers))
    figures = http.get("/metrics").text
    counted = [float(re.search(rf'what="tasks_{kind}"}} (\S+)', figures)[1]) for kind in ("running", "waiting")]
    assert sum(counted) == len(here)
    for task in random.Random(len(here)).sample(sorted(here), min(50, len(here))):
        assert read(http, "/v1/task", name=task)["task"] == task
    http.post("/v1/step")
    assert read(http, "/v1/placements")["places"].keys() <= here
    lines = [line for path in sorted(folder.glob("log-*")) for line in path.read_bytes().split(b"\n")]
    records = [record for record in map(record_of, lines) if record is not None]
    keys = Counter(record["key"] for record in records if "key" in record)
    assert not keys or max(keys.values()) == 1


def tear(folder):
    """Append half a record to the last log, like a kill during a write."""
    newest = max(folder.glob("log-*"))
    with newest.open("ab") as stream:
        stream.write(b'0123abcd {"at_s":1.0,"events":[{"event":"subm')


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kills", [pytest.param(2, marks=pytest.mark.rare), pytest.param(200, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost_or_doubled(tmp_path, kills):
    folder, rng = tmp_path / "state", random.Random(kills)
    folder.mkdir()
    writers = [Writer(name) for name in "abc"]
    for life in range(kills + 1):
        process, url = launch(folder, "--every-ms", "20", "--snapshot-every", str(rng.choice([25, 200])))
        with connect(url) as http:
            if life == 0:
                machines = [{"event": "add_machine", "machine": {"name": f"m{k}", "slots": 8}} for k in range(6)]
                assert http.post("/v1/events", json={"events": machines}).status_code == 200
                second = subprocess.run([*SERVE, "--state", str(folder)], capture_output=True, text=True, timeout=120)
                assert second.returncode and "in use by another service" in second.stderr
            if life % 10 == 0 or life == kills:
                check(http, writers, folder)
        before = sum(writer.acknowledged for writer in writers)
        stop, threads = threading.Event(), []
        if life < kills:
            threads = [threading.Thread(target=each.run, args=(url, stop), daemon=True) for each in writers]
            for thread in threads:
                thread.start()
            until, wanted = time.monotonic() + 60, before + rng.randint(1, 80)
            while sum(writer.acknowledged for writer in writers) < wanted:
                assert time.monotonic() < until
                time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        stop.set()
        for thread in threads:
            thread.join(120)
        if rng.random() < 0.3:
            tear(folder)
    assert sum(writer.acknowledged for writer in writers) >= kills


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.timeout(600)
def test_a_full_and_a_read_only_disk_lose_nothing(small_disk, tmp_path):
    folder, writer, ballast = small_disk / "state", Writer("a"), small_disk / "ballast"
    folder.mkdir()
    arguments = ["--every-ms", "20", "--snapshot-every", "15"]
    process, url = launch(folder, *arguments, logs=tmp_path)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: process.kill())
        http = stack.enter_context(connect(url))
        for trouble in ("full", "no writes"):
            for _ in range(20):
                assert writer.send(http) == 200
            if trouble == "full":
                with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as stream:
                    while True:
                        stream.write(bytes(512))
            else:
                allowed = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
            until = time.monotonic() + 60
            while writer.send(http) == 200:  # events that fit into the last block are accepted
                assert trouble == "full" and time.monotonic() < until
            assert writer.send(http) == 503
            assert http.get("/v1/placements").status_code == 200
            if trouble == "full":
                ballast.unlink()
            else:
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, allowed)
            assert writer.send(http) == 200
        process.kill()
        process.wait()
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        refused = subprocess.run([*SERVE, "--state", str(folder)], capture_output=True, text=True, timeout=120)
        assert refused.returncode and "Read-only" in refused.stderr and "Traceback" not in refused.stderr
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
        process, url = launch(folder, *arguments, logs=tmp_path)
        check(stack.enter_context(connect(url)), [writer], folder)
