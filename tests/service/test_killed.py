"""kill -9 at any moment: what was acknowledged is there after the next start."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest


def launch(folder, *arguments):
    command = [
        sys.executable,
        "-c",
        "from flowlex.cli import main; main()",
        "serve",
        "scheduler",
        "--state",
        str(folder),
    ]
    # Its own file: a pipe that nobody reads could stop it.
    log = folder.with_suffix(f".{time.monotonic_ns()}.log")
    with log.open("wb") as stream:
        process = subprocess.Popen([*command, "--no-auth", "--port", "0", *arguments], stdout=stream, stderr=stream)
    until = time.monotonic() + 120
    while (found := re.search(r"Serving (http://\S+)", log.read_text())) is None:
        assert process.poll() is None and time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    return process, found[1]


class Client(threading.Thread):
    """Submits jobs and withdraws some, and remembers what was acknowledged."""

    def __init__(self, url, name):
        super().__init__(daemon=True)
        self.url, self.label, self.here, self.unsure = url, name, set(), set()

    def run(self):
        with httpx.Client(base_url=self.url, trust_env=False, timeout=30) as http:
            for count in range(100_000):
                task = f"{self.label}-{count}"
                event = {"event": "submit", "job": {"name": task, "tasks": [{"name": task}]}}
                if count % 5 == 0:  # a gang that waits, or runs alone
                    size = "large" if count % 2 else "small"
                    tasks = [task] if size == "small" else [task, *(f"{task}+{k}" for k in range(50))]
                    event["job"]["tasks"] = [{"name": name} for name in tasks]
                    event["gangs"] = [{"name": task, "jobs": [task]}]
                if count % 3 == 2 and self.here:
                    task = min(self.here)
                    event = {"event": "cancel", "task": task}
                self.unsure.add(task)
                try:
                    answer = http.post("/v1/events", json={"events": [event]})
                except httpx.HTTPError:
                    return
                assert answer.status_code == 200, answer.text
                self.unsure.discard(task)
                (self.here.add if event["event"] == "submit" else self.here.discard)(task)


@pytest.mark.timeout(400)
def test_nothing_acknowledged_is_lost(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    here, unsure, decided = set(), set(), 0
    for life in range(3):
        process, url = launch(folder, "--every-ms", "20", "--snapshot-every", "40")
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
            if life == 0:
                machines = [{"event": "add_machine", "machine": {"name": f"m{k}", "slots": 8}} for k in range(6)]
                assert http.post("/v1/events", json={"events": machines}).status_code == 200
            places = http.get("/v1/placements").json()
            assert places["number"] >= decided
            for task in sorted(here - unsure):
                assert http.get("/v1/task", params={"name": task}).status_code == 200, f"{task} was acknowledged"
            gone = [task for task in places["places"] if task not in here | unsure]
            assert gone == []
            clients = [Client(url, f"{life}{letter}") for letter in ("abc" if life < 2 else "")]  # then only looked at
            for client in clients:
                client.start()
            while clients and sum(len(client.here) for client in clients) < 30 + 10 * life:
                time.sleep(0.01)
            decided = http.get("/v1/placements").json()["number"]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        for client in clients:
            client.join(60)
            here |= client.here
            unsure |= client.unsure
    assert len(here) > 60 and decided > 3
