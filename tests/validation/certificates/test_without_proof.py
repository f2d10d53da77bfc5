"""A file without its proof is never proven: `flowlex verify` does not exit with 0, for any kind."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from flowlex.cli.app import app
from flowlex.instances import generate, write_instance
from flowlex.instances.instance_base import Instance
from flowlex.instances.pods import Pod, PodInstance, PodNode
from tests.made_once import MadeOnce, solved

PODS = PodInstance(
    name="pods",
    nodes=tuple(PodNode(name=f"n{k}", cpu_cores=4, memory_gb=8) for k in range(6)),
    pods=tuple(Pod(name=f"p{k}", cpu_cores=3, memory_gb=1) for k in range(14)),
)
INSTANCES: dict[str, Instance] = {
    "gpu": generate("gpu-random", seed=5),
    "load": generate("inference-cluster", seed=1, processors="mixed"),
    "flow": generate("flow-random", seed=1),
    "network": generate("network-random", nodes=12, arcs=40),
    "jit": generate("jit-figure4"),
    "allocation": generate("gavel-like", seed=1),
    "pods": PODS,
}
EXACT = ("gpu", "load", "flow", "network")
TRUE = MadeOnce(INSTANCES, lambda name: solved(INSTANCES[name], "network" if name in EXACT else "highs"))


def _without(document: dict[str, Any]) -> None:
    document["proof"] = {}


def _nothing(document: dict[str, Any]) -> None:
    document |= {"proof": {}, "certificate": None}


def _no_duals(document: dict[str, Any]) -> None:
    document |= {"proof": {}, "certificate": None, "duals": {}}


def verified(*words: object) -> Result:
    return CliRunner().invoke(app, ["verify", *map(str, words)])


@pytest.mark.parametrize("change", [_without, _nothing, _no_duals])
def test_a_folder_of_all_kinds_without_proofs_is_quoted(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    for name, true in TRUE.items():
        document = copy.deepcopy(true) | {"file": f"{name}.json"}
        write_instance(INSTANCES[name], tmp_path / f"{name}.json")
        for folder in ("true", "out"):
            if folder == "out":
                change(document)
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{name}.solution.json").write_text(json.dumps(document))
    assert verified(tmp_path / "true", tmp_path).exit_code == 0
    done = verified(tmp_path / "out", tmp_path, "--json")
    verdicts = {Path(r["solution"]).name: r["verdict"] for r in map(json.loads, done.stdout.splitlines())}
    assert done.exit_code == 3 and set(verdicts.values()) == {"quoted"}, done.stdout
    assert len(verdicts) == len(INSTANCES)
