"""The shipped collectors and processors, run as an agent runs them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from flowlex.telemetry.runner import SHIPPED, allowed_programs, run_command


def run(*command: str, given: Any = None, **environment: str) -> Any:
    return run_command(command, [SHIPPED], timeout_s=10, stdin=json.dumps(given).encode(), environment=environment)


def test_every_shipped_file_is_allowed() -> None:
    shipped = sorted(path.name for path in SHIPPED.iterdir() if path.name != "__pycache__")
    assert allowed_programs([SHIPPED]) == shipped
    assert len(shipped) == 8


def test_cpu() -> None:
    assert 0 <= run("cpu_free", "0.2").value <= 1
    assert run("cpu_cores").value == os.cpu_count()


def test_memory() -> None:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    assert 0 < run("memory_free").value <= pages


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


@pytest.mark.parametrize(("free", "required", "performance"), [(0.2, "0.5", 0.4), (0.9, "0.5", 1.0), (0.0, "0.5", 0.0)])
def test_cpu_performance(free: float, required: str, performance: float) -> None:
    given = {"last": {"cpu_free": {"value": free}}, "history": {}}
    assert run("cpu_performance", required, given=given).value == performance


def test_cpu_performance_without_input() -> None:
    answer = run("cpu_performance", given={"last": {}, "history": {}})
    assert (answer.exit_code, answer.error) == (66, "no idle fraction is stored yet")
    assert "CpuReq" in run("cpu_performance", "0", given={"last": {}}).error


def test_processing_speed() -> None:
    runs = [{"exit_code": 0, "value": {"items": n, "seconds": s}} for n, s in ((100, 4), (50, 1))]
    runs.append({"exit_code": 1, "value": None})
    assert run("processing_speed", given={"last": {}, "history": {"runs": runs}}).value == 30
    last = {"last": {"runs": {"value": {"items": 9, "seconds": 3}}}, "history": {"runs": []}}
    assert run("processing_speed", given=last).value == 3
    assert run("processing_speed", given={"last": {}, "history": {}}).exit_code == 66


def test_without_the_extra_the_command_says_how_to_install_it(monkeypatch):
    import importlib
    import sys

    from typer.testing import CliRunner

    from flowlex.cli.app import app as whole

    monkeypatch.delitem(sys.modules, "flowlex.cli.telemetry", raising=False)
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "uvicorn" else found(name, *rest)
    )
    result = CliRunner().invoke(whole, ["telemetry", "serve"])
    assert result.exit_code == 2
    assert "'telemetry' needs uvicorn; install it with: pip install 'flowlex[telemetry]'" in result.output
