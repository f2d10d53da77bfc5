"""The shipped collectors and processors, run as an agent runs them."""

import contextlib
import importlib
import io
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from flowlex.systems.telemetry.collectors.collector_command import COMMANDS
from flowlex.systems.telemetry.command_runner import NOT_ALLOWED, SHIPPED, Run, allowed_programs, run_command


def apart(*command: str, given: Any = None, **environment: str) -> Any:
    """Run a program in a separate process, as an agent does."""
    return run_command(command, [SHIPPED], timeout_s=10, stdin=json.dumps(given).encode(), environment=environment)


def run(*command: str, given: Any = None, **environment: str) -> Run:
    """Run the same program in this process, which is faster and measured by coverage."""
    path, output, complaints, code = SHIPPED / "dispatch", io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", [str(path), *command]),
        mock.patch.object(sys, "stdin", io.StringIO(json.dumps(given))),
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(complaints),
    ):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            code = int(end.code or 0)
    return Run(None if code else json.loads(output.getvalue()), code, complaints.getvalue().strip())


def test_as_an_agent_runs_them(tmp_path: Path) -> None:
    """One program of each module runs without this process's path and environment, and fails with its exit code."""
    (tmp_path / "item").touch()
    assert apart("cpu_cores").value > 0
    assert apart("items", str(tmp_path)).value == 1
    given = {"last": {"cpu_free": {"value": 0.2}}, "history": {}}
    assert apart("cpu_performance", "0.5", given=given) == run("cpu_performance", "0.5", given=given)
    refused = ("hdfs_blocks", "ftp://x", "/data")
    assert apart(*refused) == run(*refused) and apart(*refused).exit_code == 64


def test_every_shipped_command_is_allowed_and_nothing_else() -> None:
    assert allowed_programs([SHIPPED]) == sorted(COMMANDS)
    assert len(COMMANDS) == 16
    for name, module in COMMANDS.items():
        assert callable(getattr(importlib.import_module(f"flowlex.systems.telemetry.collectors.{module}"), name))
    for refused in ("dispatch", "none", "main"):
        assert apart(refused).exit_code == NOT_ALLOWED


def test_cpu() -> None:
    assert 0 <= run("cpu_free", "0.2").value <= 1
    cores = run("cpu_cores").value
    assert 0 < cores <= len(os.sched_getaffinity(0))
    assert run("cpu_free", "0").exit_code == 64


def test_memory() -> None:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    free = run("memory_free").value
    assert isinstance(free, int) and 0 <= free <= pages


def test_network_and_disk() -> None:
    network = run("network_throughput", "0.05").value
    assert set(network) == {"received_bytes_per_s", "sent_bytes_per_s"} and min(network.values()) >= 0
    disk = run("disk_throughput", "0.05").value
    assert set(disk) == {"read_bytes_per_s", "write_bytes_per_s"} and min(disk.values()) >= 0


def test_gpu_memory_without_and_with_the_tool(tmp_path: Path) -> None:
    empty = run("gpu_memory", PATH=f"{tmp_path}:{Path(os.__file__).parents[2] / 'bin'}:/usr/bin:/bin")
    if empty.exit_code:
        assert (empty.exit_code, empty.error) == (69, "this node has no nvidia-smi")
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, 24576, 1024'\necho '1, 24576, 0'\n")
    tool.chmod(0o755)
    answer = run("gpu_memory", PATH=f"{tmp_path}:/usr/local/bin:/usr/bin:/bin")
    assert answer.value[0] == {"gpu": 0, "total_mb": 24576, "used_mb": 1024} and len(answer.value) == 2


def of(**values: object) -> dict[str, Any]:
    return {"last": {name: {"value": value} for name, value in values.items()}, "history": {}}


RUNS = [{"exit_code": 0, "value": {"items": n, "seconds": s}} for n, s in ((100, 4), (50, 1))]
NODES = {
    "a": of(network_bandwidth=100.0, disk_read_speed=50.0),
    "b": of(network_bandwidth=10.0),
    "c": of(disk_read_speed=1.0),
}
SPEEDS = {"a": of(speed=2), "b": of(speed=8), "c": of(speed="bad")}


@pytest.mark.parametrize(
    ("command", "given", "expected"),
    [
        ("cpu_performance 0.5", of(cpu_free=0.2), 0.4),
        ("cpu_performance 0.5", of(cpu_free=0.9), 1.0),
        ("cpu_performance 0.5", of(cpu_free=0.0), 0.0),
        ("cpu_performance", of(), (66, "no idle fraction is stored yet")),
        ("cpu_performance 0", of(), (64, "CpuReq")),
        ("processing_speed", {"last": {}, "history": {"runs": [*RUNS, {"exit_code": 1, "value": None}]}}, 30),
        ("processing_speed", of(runs={"items": 9, "seconds": 3}), 3),
        ("processing_speed", of(), (66, "no run is stored yet")),
        ("access_cost 100", {"node": "a", "nodes": NODES}, {"b": 12.0}),  # 100/50 from the disk, 100/10 over the wire
        ("access_cost 100", {"node": "b", "nodes": NODES}, {"a": 10.0}),
        ("access_cost 100", {"node": "c", "nodes": NODES}, (66, "no network_bandwidth of this node")),
        ("access_cost 0", {"node": "a", "nodes": NODES}, (64, "no length of an item")),
        ("normalised_performance", {"nodes": SPEEDS}, {"a": 0.25, "b": 1.0}),
        ("normalised_performance", {"nodes": {}}, (66, "no node has a positive value")),
    ],
)
def test_processors(command: str, given: Any, expected: Any) -> None:
    answer = run(*command.split(), given=given)
    if isinstance(expected, tuple):
        assert answer.exit_code == expected[0] and expected[1] in answer.error
    else:
        assert (answer.value, answer.exit_code) == (expected, 0)


def test_without_the_extra_the_command_says_how_to_install_it(monkeypatch, forget_modules, tmp_path):
    import sys

    from typer.testing import CliRunner

    from flowlex.cli.app import app as whole

    forget_modules("flowlex.systems.telemetry.command_line")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(whole, ["telemetry", "serve"])
    assert result.exit_code == 2
    assert "'telemetry' needs uvicorn; install it with: pip install 'flowlex[telemetry]'" in result.output


# Control groups, as files in a folder instead of the kernel's.


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from flowlex.systems.telemetry.collectors import machine_metrics

    folder = tmp_path / "cgroup"
    (folder / "pod" / "task").mkdir(parents=True)
    monkeypatch.setattr(machine_metrics, "GROUPS", folder)
    listing = tmp_path / "listing"
    listing.write_text("0::/pod/task\n")
    read = Path.read_text

    def redirected(path: Path, *rest: Any, **more: Any) -> str:
        return read(listing if str(path) == "/proc/self/cgroup" else path, *rest, **more)

    monkeypatch.setattr(Path, "read_text", redirected)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    return folder


def test_cores_of_a_quota_on_any_level(groups: Path) -> None:
    from flowlex.systems.telemetry.collectors.machine_metrics import cpu_cores

    assert cpu_cores() == 8
    (groups / "pod" / "task" / "cpu.max").write_text("max 100000\n")
    (groups / "pod" / "cpu.max").write_text("150000 100000\n")
    assert cpu_cores() == 1.5
    (groups / "pod" / "cpu.max").write_text("1600000 100000\n")
    assert cpu_cores() == 8


def test_idle_fraction_of_a_quota(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flowlex.systems.telemetry.collectors import machine_metrics

    (groups / "pod" / "task" / "cpu.max").write_text("200000 100000\n")
    used = iter([10.0, 10.25])  # half a core of two, over half a second
    monkeypatch.setattr(machine_metrics, "_used_s", lambda group: next(used))
    monkeypatch.setattr(machine_metrics.psutil, "cpu_percent", lambda seconds: 10.0)
    times = iter([100.0, 100.5])
    monkeypatch.setattr(machine_metrics.time, "monotonic", lambda: next(times))
    assert machine_metrics.cpu_free("0.5") == 0.75


def test_memory_of_a_limit(groups: Path) -> None:
    from flowlex.systems.telemetry.collectors.machine_metrics import memory_free

    task = groups / "pod" / "task"
    for name, text in (("max", 64 * 2**20), ("current", 40 * 2**20), ("stat", f"inactive_file {8 * 2**20}")):
        (task / f"memory.{name}").write_text(f"{text}\n")
    assert memory_free() == 32


def test_items_and_run_history(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.jpg").touch()
    assert run("items", str(tmp_path)).value == 3
    manifest = tmp_path / "manifest.json"
    manifest.write_text('[{"name": "x", "items": 3, "holders": ["a"]}]')
    assert run("items", str(manifest)).value[0]["items"] == 3
    assert "neither a folder of items nor a manifest" in run("items", str(tmp_path / "none")).error
    runs = tmp_path / "runs.jsonl"
    assert "is not there yet" in run("run_history", str(runs)).error
    runs.write_text('{"items": 1, "seconds": 2}\n{"items": 9, "seconds": 3.5}\n{"items": 7, "sec')
    assert run("run_history", str(runs)).value == {"items": 9.0, "seconds": 3.5}
    runs.write_text('{"items": 1, "seconds": 0}\n')
    assert "no positive number" in run("run_history", str(runs)).error


@pytest.fixture
def web(request: pytest.FixtureRequest) -> Any:
    """A server on loopback that answers by path and query."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    pages: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in pages else 404)
            self.end_headers()
            self.wfile.write(pages.get(self.path, b""))

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", pages
    server.shutdown()
    server.server_close()


def test_scraping_prometheus(web: Any) -> None:
    url, pages = web
    pages["/metrics"] = b"""# TYPE node_load1 gauge
node_load1 0.75
# TYPE node_cpu_seconds_total counter
node_cpu_seconds_total{cpu="0",mode="idle"} 10
node_cpu_seconds_total{cpu="1",mode="idle"} 30
node_cpu_seconds_total{cpu="0",mode="user"} 5
"""
    idle = 'node_cpu_seconds_total{mode="idle"}'
    assert run("scrape", f"{url}/metrics", "node_load1", idle).value == {"node_load1": 0.75, idle: 40.0}
    assert "has no finite sample nothing" in run("scrape", f"{url}/metrics", "nothing").error
    assert "name at least one sample" in run("scrape", f"{url}/metrics").error
    assert "HTTP Error 404" in run("scrape", f"{url}/other", "x").error
    assert "is no address" in run("scrape", "file:///etc/passwd", "x").error


def test_hdfs_blocks_of_this_node(web: Any) -> None:
    url, pages = web
    files = [{"type": "FILE", "pathSuffix": "part-0"}, {"type": "DIRECTORY", "pathSuffix": "d"}]
    pages["/webhdfs/v1/data?op=LISTSTATUS"] = json.dumps({"FileStatuses": {"FileStatus": files}}).encode()
    blocks = [
        {"offset": 0, "length": 1000, "hosts": ["w1", "w2"]},
        {"offset": 1000, "length": 250, "hosts": ["w3", "w1"]},
        {"offset": 1250, "length": 10, "hosts": ["w3"]},
    ]
    located = {"BlockLocations": {"BlockLocation": blocks}}
    pages["/webhdfs/v1/data/part-0?op=GETFILEBLOCKLOCATIONS"] = json.dumps(located).encode()
    answer = run("hdfs_blocks", url, "/data", "100", FLOWLEX_NODE="w1")
    assert answer.value == [
        {"name": "/data/part-0@0", "items": 10, "holders": ["w1", "w2"]},
        {"name": "/data/part-0@1000", "items": 3, "holders": ["w3", "w1"]},
    ]
    assert run("hdfs_blocks", url, "/data", FLOWLEX_NODE="w9").value == []


def test_bandwidth_and_disk(tmp_path: Path) -> None:
    assert run("network_bandwidth", "1.25e8").value == 125_000_000
    assert run("network_bandwidth", "-1").exit_code == 64
    (tmp_path / "data").write_bytes(b"x" * 3_000_000)
    assert run("disk_read_speed", str(tmp_path / "data"), "2").value > 0
    assert "name a file of some MB" in run("disk_read_speed", os.devnull).error
