"""Processes of the service, and clients that write down what was acknowledged."""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from tests.systems.telemetry.conftest import STEPPED

SERVE = [sys.executable, "-c", f"{STEPPED}from flowlex.cli import main; main()", "serve", "scheduler", "--no-auth"]


class Process:
    """A service in a process of its own; ``prefix``: words before the command, such as those of a network namespace.

    ``clock``: a file with the seconds that its wall clock is ahead.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        prefix: tuple[str, ...] = (),
        command: Any = None,
        clock: Path | None = None,
    ) -> None:
        self.log = folder / f"{time.monotonic_ns()}.log"
        with self.log.open("wb") as stream:
            words = [*prefix, *(command or [*SERVE, *arguments])]
            more = {} if clock is None else {"FLOWLEX_TEST_STEP": str(clock)}
            self.process = subprocess.Popen(words, stdout=stream, stderr=stream, cwd=folder, env=os.environ | more)
        until = time.monotonic() + 180
        while (found := re.search(r"Serving (http://\S+)", self.log.read_text())) is None:
            assert self.process.poll() is None and time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)
        self.url = found[1]

    def ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/readyz", trust_env=False, timeout=1).status_code == 200
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Client(threading.Thread):
    """Submits and cancels jobs of its own, each request again until it is answered, and writes down what was.

    ``patience_s``: of an attempt; 3 as `flowlex.client` has it between several services. With more, it queries too.
    """

    def __init__(
        self, name: str, urls: list[str], stop: threading.Event, token: str = "", patience_s: float = 3.0
    ) -> None:
        super().__init__(daemon=True)
        self.client, self.urls, self.stop, self.patience_s = name, list(urls), stop, patience_s
        self.unanswered: list[tuple[float, float]] = []  # when requests began that had no answer within the patience
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.here: set[str] = set()
        self.times: list[tuple[float, float]] = []  # when a request was sent, and when it was acknowledged
        self.slowest = 0.0  # seconds of a request without any answer
        self.wrong = ""

    def run(self) -> None:
        count, pause = 0, 0.02
        limit = httpx.Timeout(self.patience_s, connect=1.0)
        with httpx.Client(trust_env=False, timeout=limit, headers=self.headers) as http:
            while not self.stop.is_set() and not self.wrong:
                count += 1
                task = f"{self.client}-{count}"
                event: dict[str, Any] = {"event": "submit", "job": {"name": task, "tasks": [{"name": task}]}}
                if self.here and (count % 3 == 0 or len(self.here) > 20):
                    event = {"event": "cancel", "task": min(self.here)}
                if not self._until_answered(http, task, event):
                    return
                time.sleep(pause)

    def _until_answered(self, http: httpx.Client, key: str, event: dict[str, Any]) -> bool:
        while not self.wrong:
            began, status, said = time.monotonic(), 0, ""
            for method, path, more in (
                ("POST", "/v1/events", {"json": {"events": [event]}, "headers": {"Idempotency-Key": key}}),
                *((("GET", "/metrics", {}), ("GET", "/v1/placements", {})) if self.patience_s > 3.0 else ()),
            ):
                asked, answer = time.monotonic(), None
                try:
                    answer = http.request(method, f"{self.urls[0]}{path}", **more)
                except httpx.ReadTimeout:
                    self.unanswered.append((asked, time.monotonic()))
                except httpx.HTTPError:
                    pass
                if answer is not None:
                    self.slowest = max(self.slowest, time.monotonic() - asked)
                    if method == "POST":
                        status, said = answer.status_code, answer.text
            if status == 200:
                self.times.append((began, time.monotonic()))
                if event["event"] == "submit":
                    self.here.add(event["job"]["name"])
                else:
                    self.here.discard(event["task"])
                return True
            if status not in (0, 503):  # 409: taken twice, or lost
                self.wrong = f"{status} {said[:300]}"
                return False
            self.urls.append(self.urls.pop(0))
            time.sleep(0.05)
        return False


def committed(url: str, after: int = 0) -> list[tuple[int, int, str]]:
    """Number, term and text of the records in a database's log after one."""
    engine = sa.create_engine(url if url.startswith("sqlite") else f"{url}?connect_timeout=2")
    wanted = "SELECT number, term, record FROM scheduler_log WHERE number > :after ORDER BY number"
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(sa.text(wanted), {"after": after}).all()]
    engine.dispose()
    return rows


def audit(rows: list[tuple[int, int, str]]) -> tuple[set[str], list[str]]:
    """Tasks by a log, and what is wrong with it: numbers, terms or times out of order, keys used twice."""
    wrong, here, keys = [], set[str](), Counter[str]()
    if [number for number, _, _ in rows] != list(range(1, len(rows) + 1)):
        wrong.append("numbers are missing")
    if [term for _, term, _ in rows] != sorted(term for _, term, _ in rows):
        wrong.append("a leader wrote after the next one")
    records = [json.loads(text) for _, _, text in rows]
    if [record["at_s"] for record in records] != sorted(record["at_s"] for record in records):
        wrong.append("time went back")
    for record in records:
        keys.update([":".join(record["key"][:2])] if "key" in record else [])
        for event in record.get("events", ()):
            if event["event"] == "submit":
                here.add(event["job"]["name"])
            elif event["event"] == "cancel":
                here.discard(event["task"])
    wrong += [f"{key} was taken {count} times" for key, count in keys.items() if count > 1]
    return here, wrong
