"""Processes of their own on this machine: one server, two agents, real collectors."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowlex.telemetry.client import TelemetryClient
from flowlex.telemetry.schemas import Registration, Sample
from flowlex.telemetry.security import Role, new_token
from flowlex.telemetry.store import Store

NODES = [f"worker-{i}" for i in range(1, 3)]
Eventually = Callable[..., None]


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
    with contextlib.closing(Store(f"sqlite:///{tmp_path}/s.db")) as store:
        secrets |= {node: new_token(store, Role.AGENT, node=node) for node in NODES}
        secrets["program"] = new_token(store, Role.AGENT, any_node=True)
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
        assert [reading.value for reading in speeds] == [5.0, 10.0]

        instance = from_telemetry(url, token=secrets["reader"], max_age_s=3_600)
        assert [node.name for node in instance.nodes] == NODES
        assert "gone" in instance.comment
        solution = LoadPartition(instance, capacity="history").solve()
        assert solution.targets == {"worker-1": 67, "worker-2": 133}
        record = _solve_command(url, secrets["reader"])
        assert record["status"] == "optimal" and record["objective"] == pytest.approx(solution.objective)
    for process in list(processes.running):
        assert processes.stop(process) in (0, -signal.SIGTERM)
    log = processes.text() + str(capfd.readouterr())
    assert not any(secret in log for secret in secrets.values())


def _solve_command(url: str, token: str) -> Any:
    command = ["solve", "--from-telemetry", url, "--max-age", "3600", "--set", "capacity=history", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", "from flowlex.cli import main; main()", *command],
        env={**os.environ, "FLOWLEX_TELEMETRY_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "gone (cpu_cores is " in done.stderr
    return json.loads(done.stdout)


def _good(reader: TelemetryClient, names: list[str]) -> set[tuple[str, str]]:
    return {(r.name, r.node) for r in reader.read(names, NODES).readings if r.last_exit_code == 0}
