"""``flowlex telemetry demo``: a service, three agents, a partition from their values, run, timed, partitioned again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from flowlex.cli.telemetry.common import explained

__all__ = ["demo"]

NODES = ("node-1", "node-2", "node-3")
#: Blocks of 20 items on each node; every third has a replica on the next node.
BLOCKS = (9, 2, 1)
#: The made-up program needs so many milliseconds per item: the nodes are not alike, and nothing measures that before.
MILLISECONDS = {"node-1": 4, "node-2": 8, "node-3": 16}
REGISTRATIONS: tuple[dict[str, Any], ...] = (
    {"name": "items", "program": "items", "arguments": ["{folder}/{node}.items.json"]},
    {"name": "cpu_cores", "program": "cpu_cores", "unit": "cores"},
    {"name": "cpu_free", "program": "cpu_free", "unit": "fraction"},
    {"name": "network_bandwidth", "program": "network_bandwidth", "arguments": ["1.25e8"], "unit": "bytes/s"},
    # Evaluations exchange under one name: here by configuration, on one node for all.
    {
        "name": "node_performance",
        "program": "normalised_performance",
        "kind": "processor",
        "inputs": ["cpu_cores"],
        "scope": "all",
        "replicas": 1,
        "interval_s": 3.0,
    },
    {
        "name": "access_cost",
        "program": "access_cost",
        "arguments": ["1e6"],
        "kind": "processor",
        "inputs": ["network_bandwidth"],
        "scope": "all",
        "interval_s": 3.0,
        "unit": "s/item",
    },
    {
        "name": "processing_speed",
        "program": "processing_speed",
        "kind": "processor",
        "inputs": ["run_history"],
        "window_s": 600.0,
        "interval_s": 3.0,
        "unit": "items/s",
    },
)
#: Seconds that each thing may take on a busy machine.
PATIENCE_S = 60.0


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for database, tokens, journals and logs.")],
) -> None:
    """From nothing to a partition: service, three agents, collectors, solve, run, and again with measured speeds."""
    with explained(), contextlib.ExitStack() as stack:
        if output.exists() and any(output.iterdir()):
            raise ValueError(f"{output} is not empty; name another folder, or remove it")
        output.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        scene = _Scene(output.resolve(), stack)
        scene.serve()
        scene.start_agents()
        scene.register()
        scene.wait_for("items", "cpu_cores", "access_cost")
        scene.wait_for("node_performance", nodes=1)
        scene.flowlex("solve", "--from-telemetry", scene.url, "--set", "capacity=performance", "-o", "solution")
        typer.echo(f"From nothing to a partition: {time.monotonic() - began:.1f} s")
        program = f"import os, time; time.sleep({MILLISECONDS}[os.environ['FLOWLEX_NODE']] * "
        program += "int(os.environ['FLOWLEX_ITEMS']) / 1000)"
        for capacity in ("performance", "history"):
            options = ("--from-telemetry", scene.url, "--capacity", capacity, "-o", f"run-by-{capacity}")
            scene.flowlex("run-partition", *options, "--", sys.executable, "-c", program)
            scene.wait_for("processing_speed")
        typer.echo(f"All: {time.monotonic() - began:.1f} s; everything is in {output}")


class _Scene:
    """The processes of the demonstration; they end with the stack."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.folder = folder
        self.url = ""
        self._stack = stack
        self._tokens: dict[str, str] = {}

    def serve(self) -> None:
        """Start the service on a free port."""
        self._start("service", "telemetry", "serve", "--port", "0", "--alive-s", "10")
        for line in self._lines("service"):
            if line.startswith("Serving "):
                self.url = line.split()[1]
                break
        self._tokens = json.loads((self.folder / "flowlex-telemetry-tokens.json").read_text())

    def start_agents(self) -> None:
        """Give each node its token and items, start its agent, and register what is collected."""
        blocks = iter(range(sum(BLOCKS)))
        for n, (node, count) in enumerate(zip(NODES, BLOCKS, strict=True)):
            found = [
                {"name": f"block-{b}", "items": 20, "holders": [node, *([NODES[(n + 1) % 3]] if b % 3 == 0 else [])]}
                for b in (next(blocks) for _ in range(count))
            ]
            (self.folder / f"{node}.items.json").write_text(json.dumps(found))
            token = self._say("telemetry", "token", "create", "--role", "agent", "--node", node, "--days", "1")
            path = self.folder / f"{node}.token"
            path.touch(mode=0o600)
            path.write_text(token)
            options = ("--server", self.url, "--token-file", path.name, "--heartbeat-s", "0.5")
            self._start(node, "telemetry", "agent", "--node", node, *options)
        self._tokens["writer"] = self._say("telemetry", "token", "create", "--role", "agent", "--any-node")

    def register(self) -> None:
        """Register what is to be collected and computed."""
        from flowlex.telemetry.client import TelemetryClient
        from flowlex.telemetry.schemas import Registration

        with TelemetryClient(self.url, self._tokens["admin"]) as client:
            for fields in REGISTRATIONS:
                arguments = [part.replace("{folder}", str(self.folder)) for part in fields.get("arguments", [])]
                document = {"timeout_s": 30.0, "interval_s": 10.0} | fields | {"arguments": arguments}
                client.add(Registration.model_validate(document))
        typer.echo(f"Registered {', '.join(fields['name'] for fields in REGISTRATIONS)}")

    def wait_for(self, *names: str, nodes: int = len(NODES)) -> None:
        """Wait until so many nodes have a value of every name."""
        from flowlex.telemetry.client import TelemetryClient

        until = time.monotonic() + PATIENCE_S
        with TelemetryClient(self.url, self._tokens["reader"]) as client:
            while True:
                have = Counter(reading.name for reading in client.read(names, NODES).readings)
                missing = [name for name in names if have[name] < nodes]
                if not missing:
                    return
                if time.monotonic() > until:
                    raise ValueError(f"{missing[0]} does not come; see the logs in {self.folder}")
                time.sleep(0.2)

    def flowlex(self, *arguments: str, role: str = "reader") -> None:
        """Run a command as a person would, and show it."""
        environment = {"FLOWLEX_TELEMETRY_TOKEN": self._tokens[role], "FLOWLEX_TELEMETRY_URL": self.url}
        environment["FLOWLEX_TELEMETRY_WRITER_TOKEN"] = self._tokens.get("writer", "")
        typer.echo(f"$ flowlex {' '.join(arguments)[:150]}")
        sys.stdout.flush()
        done = subprocess.run(
            [*_FLOWLEX, *arguments],
            cwd=self.folder,
            env=os.environ | environment,
            timeout=PATIENCE_S,
        )
        if done.returncode:
            raise ValueError(f"`flowlex {arguments[0]}` ended with code {done.returncode}")

    def _say(self, *arguments: str) -> str:
        done = subprocess.run(
            [*_FLOWLEX, *arguments], cwd=self.folder, check=True, timeout=PATIENCE_S, capture_output=True, text=True
        )
        return done.stdout.strip()

    def _start(self, name: str, *arguments: str) -> None:
        log = self._stack.enter_context((self.folder / f"{name}.log").open("wb"))
        process = subprocess.Popen([*_FLOWLEX, *arguments], cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)
        self._stack.callback(_stop, process)

    def _lines(self, name: str) -> Iterator[str]:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            yield from (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
            time.sleep(0.1)
        raise ValueError(f"{name} does not start; see {self.folder}/{name}.log")


_FLOWLEX = (sys.executable, "-m", "flowlex")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
