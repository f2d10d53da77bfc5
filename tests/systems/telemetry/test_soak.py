"""Soak test: a service, four agents and a reader with random failures, then a count of lost samples.

Killed with SIGKILL: the service, agents, PostgreSQL. The wall clocks of service and agents jump by up to an hour. The
database is locked or full for seconds, an agent's disk is full. Journals are replaced by older copies.
"""

import contextlib
import os
import random
import resource
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flowlex.systems.telemetry.agent_buffer import Journal
from flowlex.systems.telemetry.database_tables import SAMPLE, SOURCE
from flowlex.systems.telemetry.http_client import Refused, TelemetryClient, Unreachable
from flowlex.systems.telemetry.request_documents import Registration, Sample
from flowlex.systems.telemetry.store import Store
from tests.systems.telemetry.stored import sequence_numbers

pytestmark = pytest.mark.rare

NODES = [f"worker-{i}" for i in range(1, 5)]
SERVE = ("--no-auth", "--alive-s", "2")
#: Allowed error of a reported age, in seconds: the time between sending and arrival of a sample does not count.
TOLERANCE_S = 0.05


class Soak:
    """One run; `counts` has the number of failures of each kind."""

    def __init__(
        self,
        processes: Any,
        url: str,
        port: int,
        folder: Path,
        seed: int,
        postgres: Any = None,
        nodes: Sequence[str] = NODES,
    ) -> None:
        self.nodes = nodes
        self.processes, self.url, self.port, self.folder, self.postgres = processes, url, port, folder, postgres
        self.random = random.Random(seed)
        self.counts = dict.fromkeys(("server", "agent", "postgres", "lock", "step", "full", "reads", "refused"), 0)
        self.acknowledged: set[int] = set()
        self.sent: dict[int, float] = {}
        self.flattered: list[str] = []
        self.step = folder / "step"
        self.step.write_text("0")
        commands = folder / "commands"
        commands.mkdir()
        (commands / "tick").write_text("#!/bin/sh\necho 1\n")
        (commands / "tick").chmod(0o755)
        self.running: dict[str, Any] = {"server": self.serve()}
        for node in nodes:
            self.running[node] = self.agent(node)

    def serve(self) -> Any:
        return self.processes.serve(self.url, self.port, *SERVE, environment={"FLOWLEX_TEST_STEP": str(self.step)})

    def agent(self, node: str) -> Any:
        options = ("--server", f"http://127.0.0.1:{self.port}", "--heartbeat-s", "0.3", "--no-shipped")
        more = ("--commands", str(self.folder / "commands"))
        return self.processes.start(
            "agent", "--node", node, *options, *more, environment={"FLOWLEX_TEST_STEP": str(self.step)}
        )

    def run(self, seconds: float, least: int = 4) -> dict[str, int]:
        """Write and read during failures, longer on a busy machine until enough failures have happened."""
        until = time.monotonic() + seconds
        number = 0
        with TelemetryClient(f"http://127.0.0.1:{self.port}", timeout_s=3.0) as client:
            client.add(Registration(name="tick", program="tick", interval_s=0.25, timeout_s=5.0))
            over = threading.Event()
            with ThreadPoolExecutor(1) as beside:
                breaking = beside.submit(self.break_things, over)
                while time.monotonic() < until or (self.events() < least and time.monotonic() < until + 60):
                    number += 1
                    self.write_and_read(client, number)
                    if breaking.done():
                        break
                over.set()
                breaking.result()
        self.settle()
        return {**self.counts, **_count_losses(self.url, self.folder, self.nodes, self.acknowledged)}

    def break_things(self, over: threading.Event) -> None:
        """Cause one failure after the other until ``over`` is set."""
        wait = 3.0
        while not over.wait(wait):
            self.break_something()
            wait = self.random.uniform(0.2, 1.5)

    def events(self) -> int:
        return self.counts["server"] + self.counts["agent"] + self.counts["postgres"]

    def write_and_read(self, client: TelemetryClient, number: int) -> None:
        """Write a sample with its number as value, and check the age of the reading."""
        try:
            self.sent[number] = time.monotonic()
            client.write("direct", [Sample(name="d", time=time.time(), value=number, age_s=0.0, seq=number)], "direct")
            self.acknowledged.add(number)
            for reading in client.read(["d"], ["direct"]).readings:
                passed = time.monotonic() - self.sent[int(str(reading.value))]
                self.counts["reads"] += 1
                # The reported age was true at a time between the request and the answer.
                if reading.age_s < -TOLERANCE_S or reading.age_s > passed + TOLERANCE_S:
                    self.flattered.append(f"value {reading.value}: age {reading.age_s}, {passed} s since it was sent")
        except (Refused, Unreachable):
            self.counts["refused"] += 1
        time.sleep(0.05)

    def break_something(self) -> None:
        sqlite = self.postgres is None
        name = self.random.choice(["server", "lock" if sqlite else "postgres", "step", "full", "stale", *self.nodes])
        if name == "lock":
            _lock_for_a_while(self.url, self.random.uniform(0.5, 4.0))
        elif name == "postgres":
            self.postgres.kill()
            time.sleep(self.random.uniform(0, 2))
            self.postgres.start()
        elif name == "step":
            self.step.write_text(str(self.random.choice([-3600, -60, 0, 60, 3600])))
        elif name == "full":
            self.fill_disk(self.random.choice(["server", *self.nodes] if sqlite else self.nodes))
        elif name == "stale":
            self.look_at_a_dead_node()
        else:
            self.processes.kill(self.running[name])
            time.sleep(self.random.uniform(0, 0.5))
            if name == "server":
                self.running[name] = self.serve()
            else:
                _restore_now_and_then(self.folder / f"flowlex-agent-{name}.db", self.random)
                self.running[name] = self.agent(name)
        kind = "agent" if name in self.nodes else name
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def fill_disk(self, name: str) -> None:
        """Limit the file size of a process for a while, like a full disk."""
        process = self.running[name].pid
        _, most = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (4096, most))
        time.sleep(self.random.uniform(0.5, 2.0))
        resource.prlimit(process, resource.RLIMIT_FSIZE, (most, most))

    def look_at_a_dead_node(self) -> None:
        """Samples of a killed agent age in real time, independently of wall clocks."""
        name = self.random.choice(self.nodes)
        self.processes.kill(self.running[name])
        killed = time.monotonic()
        self.step.write_text(str(self.random.choice([-3600, 3600])))
        time.sleep(2.5)
        with (
            contextlib.suppress(Refused, Unreachable),
            TelemetryClient(f"http://127.0.0.1:{self.port}", timeout_s=3.0) as client,
        ):
            asked = time.monotonic()
            answer = client.read(["tick"], [name], max_age=1.5)
            for reading in answer.readings:
                self.counts["reads"] += 1
                if reading.age_s < asked - killed - TOLERANCE_S or not reading.stale:
                    self.flattered.append(f"{name} died {asked - killed} s ago: age {reading.age_s}, {reading.stale}")
        self.running[name] = self.agent(name)

    def settle(self) -> None:
        """Let agents deliver their samples, then stop all processes regularly."""
        time.sleep(2.0)
        for node in self.nodes:
            assert self.processes.stop(self.running[node]) in (0, -signal.SIGTERM)  # it may have just been started
        assert self.processes.stop(self.running["server"]) in (0, -signal.SIGTERM)


def _lock_for_a_while(url: str, seconds: float) -> None:
    """Hold the lock of a SQLite database for a while, as a backup does."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)
    connection.execute("BEGIN IMMEDIATE")
    time.sleep(seconds)
    connection.execute("ROLLBACK")
    connection.close()


def _restore_now_and_then(journal: Path, rng: random.Random) -> None:
    """Copy a dead agent's journal after a checkpoint, or restore an older copy, whose samples are delivered again.

    Samples that only the newer journal has would be lost, so an older copy is restored only if the newer one has no
    pending samples.
    """
    copy = journal.with_suffix(".copy")
    with contextlib.closing(sqlite3.connect(journal, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'pending'").fetchone():
            return  # killed before it was made
        (waiting,) = connection.execute("SELECT count(*) FROM pending").fetchone()
    if copy.exists() and not waiting and rng.random() < 0.7:
        shutil.copy(copy, journal)
        for left in journal.parent.glob(f"{journal.name}-*"):
            left.unlink()
    else:
        shutil.copy(journal, copy)


def _count_losses(url: str, folder: Path, nodes: Sequence[str], acknowledged: set[int]) -> dict[str, int]:
    store = Store(url)
    lost, delivered, waiting = len(acknowledged - sequence_numbers(store, "direct")), 0, 0
    missing = doubled = 0
    for node in nodes:
        journal = Journal(folder / f"flowlex-agent-{node}.db", node)
        # A restored journal reuses numbers under another source, so samples are counted by source.
        stored = sequence_numbers(store, journal.identity)
        pending = {sample.seq for sample in journal.oldest(100_000, 10**9)[1]}
        last = max(stored | {number or 0 for number in pending}, default=0)
        missing += len(set(range(1, last + 1)) - stored - pending)
        delivered, waiting = delivered + len(stored), waiting + len(pending)
    with store.database.read() as connection:
        # A run has one time stamp: if it is stored twice under any numbers, it is duplicated.
        pairs = sa.select(SAMPLE.c.series, SAMPLE.c.time).group_by(SAMPLE.c.series, SAMPLE.c.time)
        doubled = len(connection.execute(pairs.having(sa.func.count() > 1)).all())
        sources = sa.select(SOURCE.c.source, sa.func.count()).join(SAMPLE, SAMPLE.c.source == SOURCE.c.id)
        by_source: dict[str, int] = dict(connection.execute(sources.group_by(SOURCE.c.source)).tuples().all())
    delivered = max(delivered, sum(count for source, count in by_source.items() if source != "direct"))
    store.close()
    return {
        "acknowledged": len(acknowledged),
        "lost": lost,
        "delivered": delivered,
        "waiting": waiting,
        "missing": missing,
        "doubled": doubled,
    }


def check(soak: Soak, result: dict[str, int]) -> None:
    print(result)
    assert (result["lost"], result["missing"], result["doubled"]) == (0, 0, 0), result
    assert soak.flattered == []
    assert result["reads"] > 5 and result["acknowledged"] > 5 and result["delivered"] + result["waiting"] > 5, result


def test_nothing_is_lost_and_nothing_stale_is_fresh(processes: Any, port: int, tmp_path: Path) -> None:
    soak = Soak(processes, f"sqlite:///{tmp_path}/s.db", port, tmp_path, seed=1, nodes=NODES[:2])
    check(soak, soak.run(6.0, least=2))


@pytest.mark.slow
def test_for_a_while_on_postgresql(processes: Any, port: int, tmp_path: Path, own_postgres: Any) -> None:
    soak = Soak(processes, own_postgres.url, port, tmp_path, seed=3, postgres=own_postgres)
    check(soak, soak.run(float(os.environ.get("FLOWLEX_SOAK_S", "120"))))
