"""Arrivals of the openb protocol, and lists with fewer columns, on hand-sized files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app
from flowlex.instances.base import InstanceError
from flowlex.instances.generators import generate
from flowlex.instances.importers.openb import UnknownModelWarning, read_openb

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,65536,2,T4\nn1,32000,65536,2,P100\n"
FIVE = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,1024,1,500\np1,1000,1024,0,0\np2,1000,1024,1,1000\n"
SPEC = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,1000,1024,1,500,T4|A10\np1,1000,1024,1,500,V100M32|A10\n"
)


def lists(folder: Path, pods: str = FIVE) -> dict[str, Any]:
    (folder / "nodes.csv").write_text(NODES)
    (folder / "pods.csv").write_text(pods)
    return {"nodes": folder / "nodes.csv", "pods": folder / "pods.csv"}


@pytest.mark.parametrize("load", [0.1, 0.5, 1.3, 3.0])
def test_requests_reach_the_load_with_the_last_pod(tmp_path: Path, load: float) -> None:
    made: Any = generate("openb-arrivals", seed=7, load=load, **lists(tmp_path))
    asked = [pod.gpu_share * pod.gpu_cards if pod.wants_gpu else 0.0 for pod in made.pods]
    assert sum(asked[:-1]) < 4 * load <= sum(asked)
    assert generate("openb-arrivals", seed=7, load=load, **lists(tmp_path)) == made
    assert len({pod.name for pod in made.pods}) == len(made.pods)
    first = {pod.name.partition("-")[2] for pod in made.pods[:3]}
    assert len(first) == min(3, len(made.pods))  # each once before any is copied


def test_pods_without_gpus_reach_no_load(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="no pod asks for a GPU"):
        generate("openb-arrivals", **lists(tmp_path, "\n".join([*FIVE.split("\n")[:1], "p,1,1,0,0"])))


def test_lists_with_five_columns_are_read(tmp_path: Path) -> None:
    made = read_openb(**lists(tmp_path))
    assert [pod.gpu_share for pod in made.pods] == [0.5, 0.0, 1.0] and {pod.priority for pod in made.pods} == {0}
    with pytest.raises(InstanceError, match="it has no creation_time, so nothing is known of a time; leave at_s out"):
        read_openb(**lists(tmp_path), at_s=3.0)


def test_compressed_lists_are_the_same(tmp_path: Path) -> None:
    plain = lists(tmp_path)
    for path in plain.values():
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    packed = {name: path.with_name(path.name + ".gz") for name, path in plain.items()}
    assert read_openb(**packed) == read_openb(**plain)


def test_models_that_no_node_has_are_reported(tmp_path: Path) -> None:
    with pytest.warns(UnknownModelWarning, match=r"model A10, V100M32; 1 pods thereby fit nowhere"):
        read_openb(**lists(tmp_path, SPEC))
    names = [str(path) for path in lists(tmp_path, SPEC).values()]
    told = CliRunner().invoke(app, ["import", "openb", *names, "-o", str(tmp_path / "i.json")])
    assert told.exit_code == 0 and "1 pods thereby fit nowhere" in told.output.replace("\n", " ")


def test_the_command_takes_its_files_after_the_name(tmp_path: Path) -> None:
    names = [str(path) for path in lists(tmp_path).values()]
    run, out = CliRunner(), str(tmp_path / "a.json")
    assert run.invoke(app, ["generate", "openb-arrivals", *names, "--set", "load=0.5", "-o", out]).exit_code == 0
    assert "too much" in run.invoke(app, ["generate", "openb-arrivals", *names, "x", "-o", "-"]).output
    assert "too much" in run.invoke(app, ["generate", "kubeflow-testbed", names[0], "-o", "-"]).output
    with pytest.raises(InstanceError, match="it needs pods; on the command line, after the name"):
        generate("openb-arrivals", nodes=names[0])
