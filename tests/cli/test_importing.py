"""``flowlex import openb`` and ``flowlex export`` of both phases of pod placement."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,393216,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,12000,16384,1,460,,LS,Running,0,100,0\n"
    "p1,8000,16384,2,1000,P100|T4,Burstable,Pending,50,90,\n"
    "p2,3152,5600,0,0,,BE,Failed,200,300,201\n"
)


@pytest.fixture
def files(run: Any, tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv.gz").write_bytes(gzip.compress(PODS.encode()))
    return tmp_path / "nodes.csv", tmp_path / "pods.csv.gz"


def test_a_trace_becomes_an_instance_that_solves(run: Any, files: tuple[Path, Path]) -> None:
    assert run("import", "openb", *files, "-o", "trace.json").exit_code == 0
    document = json.loads(Path("trace.json").read_text())
    assert document["kind"] == "pod-placement" and [pod["name"] for pod in document["pods"]] == ["p0", "p1", "p2"]
    result = run("solve", "trace.json", "--engine", "highs", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout.splitlines()[0])["status"] == "optimal"


def test_parts_of_a_trace(run: Any, files: tuple[Path, Path]) -> None:
    assert (
        run("import", "openb", *files, "-o", "one.json.gz", "--at", "60", "--pods", "1", "--nodes", "1").exit_code == 0
    )
    document = json.loads(gzip.decompress(Path("one.json.gz").read_bytes()))
    assert [pod["name"] for pod in document["pods"]] == ["p0"] and len(document["nodes"]) == 1
    result = run("import", "openb", *files, "-o", "-", "--at", "250")
    assert [pod["name"] for pod in json.loads(result.stdout)["pods"]] == ["p2"]


@pytest.mark.parametrize(
    ("which", "text", "message"),
    [
        (0, "a,b\n1,2\n", "line 1: the header lacks sn"),
        (0, NODES + "n3,64000\n", "line 4: 2 fields, the header has 5"),
        (0, NODES + "n3,x,1,0,\n", "line 4: cpu_milli is 'x'"),
    ],
)
def test_damaged_files_name_the_line(run: Any, files: tuple[Path, Path], which: int, text: str, message: str) -> None:
    files[which].write_text(text)
    result = run("import", "openb", *files, "-o", "x.json")
    assert result.exit_code == 2 and message in " ".join(result.output.split())
    assert not Path("x.json").exists()


def test_a_missing_file_is_named(run: Any, files: tuple[Path, Path]) -> None:
    result = run("import", "openb", "absent.csv", files[1], "-o", "x.json")
    assert result.exit_code == 2 and "absent.csv" in result.output


def test_either_phase_is_exported(run: Any, files: tuple[Path, Path]) -> None:
    assert run("import", "openb", *files, "-o", "trace.json").exit_code == 0
    assert run("export", "trace.json", "--to", "lp", "-o", "one.lp").exit_code == 0
    assert run("export", "trace.json", "--to", "lp", "-o", "two.lp", "--set", "phase=balance").exit_code == 0
    one, two = Path("one.lp").read_text(), Path("two.lp").read_text()
    assert "tangent" not in one and "tangent" in two and "admitted" in two
    result = run("export", "trace.json", "--to", "lp", "-o", "x.lp", "--set", "phase=third")
    assert result.exit_code == 2 and "phase" in result.output
