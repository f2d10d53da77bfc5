"""Processes of their own on this machine: one server, four agents, real collectors, and kill -9 at random."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flowlex.telemetry.client import TelemetryClient
from flowlex.telemetry.journal import Journal
from flowlex.telemetry.schemas import Registration, Sample
from flowlex.telemetry.store import Store
from flowlex.telemetry.tables import SAMPLE, SOURCE

NODES = [f"worker-{i}" for i in range(1, 5)]
Eventually = Callable[[Callable[[], bool], float], None]


def start_agent(processes: Any, port: int, node: str, *more: str) -> Any:
    return processes.start(
        *("agent", "--node", node, "--server", f"http://127.0.0.1:{port}", "--heartbeat-s", "0.3", *more)
    )


def test_a_partition_from_live_values(
    processes: Any, port: int, tmp_path: Path, eventually: Eventually, capfd: pytest.CaptureFixture[str]
) -> None:
    from flowlex.instances.importers.telemetry import from_telemetry
    from flowlex.models.load.model import LoadPartition

    processes.serve(f"sqlite:///{tmp_path}/s.db", port)
    secrets = json.loads((tmp_path / "flowlex-telemetry-tokens.json").read_text())
    assert (tmp_path / "flowlex-telemetry-tokens.json").stat().st_mode & 0o077 == 0
    url = f"http://127.0.0.1:{port}"
    database = ("--database", f"sqlite:///{tmp_path}/s.db")
    for node in [*NODES, "gone"]:
        secrets[node] = _new_token(tmp_path, "--node", node, *database)
    secrets["program"] = _new_token(tmp_path, "--any-node", *database)
    for node in NODES:
        (tmp_path / f"{node}.token").write_text(secrets[node])
        start_agent(processes, port, node, "--token-file", f"{node}.token")
    with (
        TelemetryClient(url, secrets["admin"]) as admin,
        TelemetryClient(url, secrets["program"]) as writer,
        TelemetryClient(url, secrets["reader"]) as reader,
    ):
        for name, program, more in (
            ("cpu_free", "cpu_free", {}),
            ("cpu_cores", "cpu_cores", {}),
            ("cpu_performance", "cpu_performance", {"kind": "processor", "inputs": ["cpu_free"]}),
            (
                "processing_speed",
                "processing_speed",
                {"kind": "processor", "inputs": ["run_history"], "window_s": 600.0},
            ),
        ):
            admin.add(Registration(name=name, program=program, interval_s=5.0, timeout_s=60.0, **more))
        now = time.time()
        for i, node in enumerate(NODES):  # what the inference program writes: its runs, and the items it holds
            runs = [Sample(name="run_history", time=now, value={"items": 10 * (i + 1), "seconds": 2.0})]
            writer.write(node, [*runs, Sample(name="items", time=now, value=100)])
        writer.write("gone", [Sample(name="items", time=now - 9_000, value=50)])
        writer.write("gone", [Sample(name="cpu_cores", time=now - 9_000, value=2)])
        names = ["cpu_free", "cpu_cores", "cpu_performance", "processing_speed"]
        eventually(lambda: _good(reader, names) == {(name, node) for name in names for node in NODES}, 120)
        speeds = reader.read(["processing_speed"], NODES).readings
        assert [reading.value for reading in speeds] == [5.0, 10.0, 15.0, 20.0]

        instance = from_telemetry(url, token=secrets["reader"], max_age_s=3_600)
        assert [node.name for node in instance.nodes] == NODES
        assert "gone" in instance.comment
        solution = LoadPartition(instance, capacity="history").solve()
        assert solution.targets == {"worker-1": 40, "worker-2": 80, "worker-3": 120, "worker-4": 160}
        record = _solve_command(url, secrets["reader"])
        assert record["status"] == "optimal" and record["objective"] == pytest.approx(solution.objective)
    for process in list(processes.running):
        assert processes.stop(process) in (0, -signal.SIGTERM)
    log = processes.text() + str(capfd.readouterr())
    assert not any(secret in log for secret in secrets.values())


def _new_token(folder: Path, *more: str) -> str:
    code = "from flowlex.cli.telemetry import app; app()"
    command = [sys.executable, "-c", code, "token", "create", "--role", "agent", *more]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def _solve_command(url: str, token: str) -> Any:
    command = ["solve", "--from-telemetry", url, "--max-age", "3600", "--set", "capacity=history", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", "from flowlex.cli import main; main()", *command],
        env={**os.environ, "FLOWLEX_TELEMETRY_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "gone (cpu_cores is " in done.stderr
    return json.loads(done.stdout)


def _good(reader: TelemetryClient, names: list[str]) -> set[tuple[str, str]]:
    return {(r.name, r.node) for r in reader.read(names, NODES).readings if r.last_exit_code == 0}


def _soak(
    processes: Any, url: str, port: int, folder: Path, seconds: float, seed: int, least_kills: int = 4
) -> dict[str, int]:
    """Kill and restart server and agents at random; return for each count what must hold."""
    rng = random.Random(seed)
    commands = folder / "commands"
    commands.mkdir()
    (commands / "tick").write_text("#!/bin/sh\necho 1\n")
    (commands / "tick").chmod(0o755)
    serve = ("--no-auth", "--alive-s", "2")
    running: dict[str, Any] = {"server": processes.serve(url, port, *serve)}
    allow = ("--no-shipped", "--commands", str(commands))
    for node in NODES:
        running[node] = start_agent(processes, port, node, *allow)
    acknowledged: set[int] = set()
    kills = 0
    with TelemetryClient(f"http://127.0.0.1:{port}", timeout_s=3.0) as client:
        client.add(Registration(name="tick", program="tick", interval_s=0.1, timeout_s=5.0))
        until = time.monotonic() + seconds
        next_kill, number = time.monotonic() + 3.0, 0
        # On a busy machine it goes on until there is something to count.
        while time.monotonic() < until or (kills < least_kills and time.monotonic() < until + 60):
            number += 1
            try:
                client.write("direct", [Sample(name="d", time=time.time(), value=number, seq=number)], "direct")
                acknowledged.add(number)
            except Exception:
                time.sleep(0.05)
            if time.monotonic() > next_kill:
                name = rng.choice(["server", "server", "lock", *NODES])
                if name == "lock":
                    _lock_for_a_while(url, rng.uniform(0.5, 4.0))
                    continue
                processes.kill(running[name])
                kills += 1
                time.sleep(rng.uniform(0, 0.5))
                if name == "server":
                    running[name] = processes.serve(url, port, *serve)
                else:
                    _restore_now_and_then(folder / f"flowlex-agent-{name}.db", rng)
                    running[name] = start_agent(processes, port, name, *allow)
                next_kill = time.monotonic() + rng.uniform(0.2, 1.5)
    _settle(processes, running, folder)
    return {"kills": kills, **_count_losses(url, folder, acknowledged)}


def _lock_for_a_while(url: str, seconds: float) -> None:
    """Hold a SQLite database's lock, as a backup or a person does."""
    if not url.startswith("sqlite"):
        return
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)
    connection.execute("BEGIN IMMEDIATE")
    time.sleep(seconds)
    connection.execute("ROLLBACK")
    connection.close()


def _restore_now_and_then(journal: Path, rng: random.Random) -> None:
    """Copy a dead agent's journal after a checkpoint, or put an older copy back, whose samples are delivered then.

    What an older copy lacks was collected and is gone with the newer file: so it is put back only when that has
    nothing that waits.
    """
    copy = journal.with_suffix(".copy")
    with contextlib.closing(sqlite3.connect(journal, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (waiting,) = connection.execute("SELECT count(*) FROM pending").fetchone()
    if copy.exists() and not waiting and rng.random() < 0.7:
        shutil.copy(copy, journal)
        for left in journal.parent.glob(f"{journal.name}-*"):
            left.unlink()
    else:
        shutil.copy(journal, copy)


def _settle(processes: Any, running: dict[str, Any], folder: Path) -> None:
    """Agents deliver what they have, then everything ends in order."""
    time.sleep(4.0)
    for node in NODES:
        assert processes.stop(running[node]) == 0
    assert processes.stop(running["server"]) in (0, -signal.SIGTERM)


def _count_losses(url: str, folder: Path, acknowledged: set[int]) -> dict[str, int]:
    store = Store(url)
    lost, delivered, waiting = len(acknowledged - store.sequence_numbers("direct")), 0, 0
    missing = doubled = 0
    for node in NODES:
        journal = Journal(folder / f"flowlex-agent-{node}.db", node)
        # A restored journal uses numbers again, under another source: counted by source, then.
        stored = store.sequence_numbers(journal.identity)
        pending = {sample.seq for sample in journal.oldest(100_000, 10**9)[1]}
        last = max(stored | {number or 0 for number in pending}, default=0)
        missing += len(set(range(1, last + 1)) - stored - pending)
        delivered, waiting = delivered + len(stored), waiting + len(pending)
    with store._read() as connection:
        # One run has one time: stored twice, under whatever number, it is doubled.
        pairs = sa.select(SAMPLE.c.series, SAMPLE.c.time).group_by(SAMPLE.c.series, SAMPLE.c.time)
        doubled = len(connection.execute(pairs.having(sa.func.count() > 1)).all())
        sources = sa.select(SOURCE.c.source, sa.func.count()).join(SAMPLE, SAMPLE.c.source == SOURCE.c.id)
        by_source = dict(connection.execute(sources.group_by(SOURCE.c.source)).tuples().all())
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


def test_kill_and_restart_loses_nothing(processes: Any, port: int, tmp_path: Path) -> None:
    result = _soak(processes, f"sqlite:///{tmp_path}/s.db", port, tmp_path, seconds=8.0, seed=1)
    assert result["kills"] >= 3 and result["acknowledged"] > 5 and result["delivered"] + result["waiting"] > 5
    assert (result["lost"], result["missing"], result["doubled"]) == (0, 0, 0), result


@pytest.mark.slow
def test_kill_and_restart_for_a_while(processes: Any, port: int, tmp_path: Path, database_url: str) -> None:
    seconds = float(os.environ.get("FLOWLEX_SOAK_S", "120"))
    result = _soak(processes, database_url, port, tmp_path, seconds=seconds, seed=2)
    print(result)
    assert (result["lost"], result["missing"], result["doubled"]) == (0, 0, 0), result
