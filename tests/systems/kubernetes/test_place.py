"""``flowlex place``: placement of waiting pods, from the objects to the script that applies it."""

import gzip
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from flowlex.cli.app import app

OWNER = [{"kind": "ReplicaSet", "name": "web", "controller": True}]


def node(name: str, *, gpus: int = 0, cpu: str = "4") -> dict[str, Any]:
    has = {"cpu": cpu, "memory": "16Gi", "pods": "10"} | ({"aliyun.com/gpu-mem": str(8 * gpus)} if gpus else {})
    labels = {"kubernetes.io/hostname": name} | ({"nvidia.com/gpu.count": str(gpus)} if gpus else {})
    meta = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": {"allocatable": has}}


def pod(
    name: str, cpu: str = "1", *, on: str = "", gb: int = 0, card: int | None = None, **spec: Any
) -> dict[str, Any]:
    asked = {"cpu": cpu, "memory": "1Gi"} | ({"aliyun.com/gpu-mem": str(gb)} if gb else {})
    meta: dict[str, Any] = {"name": name, "namespace": "s", "uid": f"uid-{name}", "resourceVersion": "7"}
    meta |= {"ownerReferences": OWNER, "labels": {"app": name[0]}}
    if card is not None:
        meta["annotations"] = {"ALIYUN_COM_GPU_MEM_IDX": str(card)}
    body = {"containers": [{"name": "m", "image": "i", "resources": {"limits": asked}}], **spec}
    if on:
        body["nodeName"] = on
    phase = {"phase": "Running" if on else "Pending"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body, "status": phase}


def run(folder: Path, items: list[dict[str, Any]], *arguments: str, code: int = 0) -> str:
    text = json.dumps({"kind": "List", "items": items})
    found = CliRunner().invoke(app, ["place", "-", *arguments], input=text)
    assert found.exit_code == code, found.output
    return found.stdout


#: Two nodes of 4 cores; 6 of 8 cores are in use; three pods wait for 1, 1 and 4 cores, and two of them fit.
CROWDED = [
    node("n1"),
    node("n2"),
    *(pod(f"r{k}", on=f"n{1 + k % 2}") for k in range(6)),
    *(pod(f"w{k}") for k in range(2)),
    pod("large", "4"),
]


def test_ten_lines_say_what_is_bound_and_what_waits(tmp_path: Path) -> None:
    lines = run(tmp_path, CROWDED).splitlines()
    assert lines[0] == "cluster: 2 nodes, 6 pods run, 3 wait"
    assert lines[1] == "bound: 2 of 3 waiting pods, proven to be the most"
    assert re.fullmatch(r"load: .* % of a node, deviation .* %, .* % before; at most 0 points above .*", lines[2])
    assert [line.split(maxsplit=3) for line in lines[4:6]] == [
        ["POD", "PRIORITY", "SINCE", "NODE OR REASON"],
        ["s/large", "0", "-", "0/2 nodes are available: 2 Insufficient cpu."],
    ]
    assert sorted(tuple(line.split()) for line in lines[6:]) == [("s/w0", "0", "-", "n1"), ("s/w1", "0", "-", "n2")]


def test_a_node_more_is_worth_what_it_takes(tmp_path: Path) -> None:
    items = [*CROWDED, *(pod(f"more{k}", "2") for k in range(3))]
    lines = run(tmp_path, items, "--what-if", "1 node of n1", "--what-if", "2 nodes of n1").splitlines()
    assert [line for line in lines if line.startswith("what if")] == [
        "what if 1 node of n1: 2 more pods are bound (proven), 2 for each node",
        "what if 2 nodes of n1: 3 more pods are bound (proven), 1.5 for each node",
    ]


def test_a_node_more_is_ready_whatever_state_its_model_is_in(tmp_path: Path) -> None:
    """A cordoned node also has a taint in its specification; an additional node modelled on it has neither."""
    cordoned = node("n1", cpu="8")
    cordoned["spec"] = {"unschedulable": True, "taints": [{"key": _CORDONED, "effect": "NoSchedule"}]}
    cordoned["spec"]["taints"].append({"key": "team", "value": "a", "effect": "NoSchedule"})
    tolerant = [{"key": "team", "operator": "Exists"}]
    items = [cordoned, node("n2"), pod("large", "6", tolerations=tolerant), pod("other", "6")]
    lines = run(tmp_path, items, "--what-if", "1 node of n1").splitlines()
    assert lines[1] == "bound: 0 of 2 waiting pods, proven to be the most"
    assert "what if 1 node of n1: 1 more pod is bound (proven), 1 for each node" in lines
    told = {line.split()[0]: line.split(maxsplit=3)[3] for line in lines if line.startswith("s/")}
    cordoned_only = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    assert told == {"s/large": cordoned_only, "s/other": cordoned_only}


_CORDONED = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize("wish", ["n1", "0 nodes of n1", "two nodes of n1", "1 node of n9", "-1 nodes of n1"])
def test_a_wish_that_makes_no_sense_is_refused(tmp_path: Path, wish: str) -> None:
    run(tmp_path, CROWDED, "--what-if", wish, code=2)


def test_moves_free_whole_cards(tmp_path: Path) -> None:
    """Four cards of 8 GB with one pod each (2, 2, 4, 5 GB): one move frees a card, two free two, not three."""
    sizes = enumerate((2, 2, 4, 5))
    items = [node("n1", gpus=2), node("n2", gpus=2)]
    items += [pod(f"g{k}", gb=gb, on=f"n{1 + k // 2}", card=k % 2) for k, gb in sizes]
    two = "free 2 whole cards"
    for moves, freed, said in ((1, 1, "frees 1 whole card"), (2, 2, two), (4, 2, two)):
        lines = run(tmp_path, items, "--defragment", str(moves)).splitlines()
        found = next(line for line in lines if line.startswith("defragment"))
        assert f"{said} (0 idle before, {freed} after; proven to be the most)" in found
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "s"},
        "spec": {"minAvailable": "100%", "selector": {"matchLabels": {"app": "g"}}},
    }
    assert "0 moves free 0 whole cards" in run(tmp_path, [*items, budget], "--defragment", "4")


def test_only_so_many_pods_are_stopped_as_a_budget_lets_go(tmp_path: Path) -> None:
    """Two pods of 2 cores fill a node, their budget lets one go: one of two more important pods takes its place."""
    items = [node("n1"), pod("r1", "2", on="n1"), pod("r2", "2", on="n1")]
    items += [pod(name, "2", priority=9) for name in ("h1", "h2")]
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "r"}}}
    items.append({"kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "s"}, "spec": spec})
    path = tmp_path / "plan.json"
    lines = run(tmp_path, items, "--preempt-below", "5", "-o", str(path)).splitlines()
    assert lines[1:3] == [
        "bound: 1 of 2 waiting pods, proven to be the most",
        "stopped: 1 running pod for more important ones (s/r1)",
    ]
    assert any(line.endswith(" 0/1 nodes are available: 1 Insufficient cpu.") for line in lines)
    made = json.loads(path.read_text())["items"]
    assert [(item["kind"], item["metadata"]["name"]) for item in made] == [("Eviction", "r1"), ("Binding", "h1")]


def test_files_that_can_be_applied(tmp_path: Path) -> None:
    target = tmp_path / "b.yaml"
    items = [node("n1", gpus=2), pod("a", gb=3), pod("b", gb=6)]
    run(tmp_path, items, "-o", str(target))
    made = yaml.safe_load(target.read_text(encoding="utf-8"))["items"]
    assert [(item["kind"], item["metadata"]["uid"], item["metadata"]["resourceVersion"]) for item in made] == [
        ("Binding", "uid-a", "7"),
        ("Binding", "uid-b", "7"),
    ]
    notes = [item["metadata"]["annotations"] for item in made]
    assert {note["ALIYUN_COM_GPU_MEM_IDX"] for note in notes} == {"0", "1"}
    assert [note["ALIYUN_COM_GPU_MEM_POD"] for note in notes] == ["3", "6"]
    assert all(note["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "false" for note in notes)
    run(tmp_path, items, "-o", str(target), code=2)  # it is there already
    run(tmp_path, items, "-o", str(tmp_path / "b.txt"), code=2)
    script = tmp_path / "b.sh"
    busy = [node("n1"), pod("idle", "3", on="n1", priority=0), pod("urgent", "3", priority=9)]
    out = run(tmp_path, busy, "--preempt-below", "5", "-o", str(script))
    assert "stopped: 1 running pod for more important ones (s/idle)" in out
    text = script.read_text(encoding="utf-8")
    steps = [text.index(part) for part in ("\nevict idle s n1 ", "\ngone idle s n1 ", "\nbind urgent s n1 ")]
    assert steps == sorted(steps)


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "c.svg"
    run(tmp_path, [node("n1", gpus=2), node("n2"), pod("a", gb=3), pod("b", gb=6)], "--picture", str(path))
    text = path.read_text(encoding="utf-8")
    assert all(word in text for word in ("before: 2 nodes", "after: 2 nodes", "card 1", "memory", "n2"))


def test_a_gzip_file_and_yaml_are_read(tmp_path: Path) -> None:
    objects = {"kind": "List", "items": CROWDED}
    packed, plain = tmp_path / "c.json.gz", tmp_path / "c.yaml"
    packed.write_bytes(gzip.compress(json.dumps(objects).encode()))
    plain.write_text("---\n".join(yaml.safe_dump(item) for item in CROWDED), encoding="utf-8")
    for path in (packed, plain):
        found = CliRunner().invoke(app, ["place", str(path)])
        assert "bound: 2 of 3 waiting pods" in found.stdout, found.output


_KUBECTL = """#!/bin/sh
# A server that refuses what REFUSED names, and notes the rest.
case "$*" in
  *wait*|*annotate*|*patch*) echo "$*" >> "$LOG"; exit 0 ;;
esac
for refused in $REFUSED; do
  case "$3" in *"/$refused/"*) echo "Error from server (Conflict): $refused" >&2; exit 1 ;; esac
done
cat > /dev/null
echo "$3" >> "$LOG"
"""


def applied(folder: Path, script: Path, refused: str) -> tuple[int, str, str]:
    """Run a script with a kubectl that refuses some pods; return exit code, what it printed, what the server took."""
    tool, log = folder / "bin" / "kubectl", folder / "log"
    tool.parent.mkdir(exist_ok=True)
    tool.write_text(_KUBECTL, encoding="utf-8")
    tool.chmod(0o755)
    log.write_text("", encoding="utf-8")
    environment = {"PATH": f"{tool.parent}:{os.environ['PATH']}", "REFUSED": refused, "LOG": str(log)}
    done = subprocess.run(["sh", str(script)], env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr, log.read_text(encoding="utf-8")


def test_the_script_goes_on_after_a_conflict_and_says_what_was_not_bound(tmp_path: Path) -> None:
    script = tmp_path / "b.sh"
    run(tmp_path, [node("n1"), *(pod(name) for name in "abc"), pod("large", "9")], "-o", str(script))
    assert "# waits: s/large: 0/1 nodes are available: 1 Insufficient cpu." in script.read_text(encoding="utf-8")
    code, said, took = applied(tmp_path, script, "")
    assert (code, said) == (0, "") and all(f"pods/{name}/binding" in took for name in "abc")
    code, said, took = applied(tmp_path, script, "b")
    assert code == 1 and said.endswith("not done:\n  s/b to n1\n")
    assert [f"pods/{name}/binding" in took for name in "abc"] == [True, False, True]


def test_nothing_is_bound_in_the_place_of_a_pod_that_stays(tmp_path: Path) -> None:
    script = tmp_path / "b.sh"
    items = [node("n1"), node("n2"), pod("idle", "3", on="n1", priority=0), pod("busy", "3", on="n2", priority=8)]
    elsewhere = {"kubernetes.io/hostname": "n2"}
    items += [pod("urgent", "3", priority=9), pod("small", "1", priority=9, nodeSelector=elsewhere)]
    run(tmp_path, items, "--preempt-below", "5", "-o", str(script))
    code, said, took = applied(tmp_path, script, "idle")
    assert code == 1 and "s/idle was not evicted" in said and "s/urgent to n1: a pod there was not evicted" in said
    assert "pods/urgent" not in took and "pods/small/binding" in took


def test_what_the_server_said_is_passed_on(tmp_path: Path) -> None:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}
    status["message"] = 'nodes is forbidden: User "x" cannot list resource "nodes"'
    found = CliRunner().invoke(app, ["place", "-"], input=json.dumps(status))
    assert found.exit_code == 2
    assert 'the API server answered: nodes is forbidden: User "x" cannot list resource "nodes" (Forbidden)' in (
        " ".join(found.output.split())
    )


def test_every_pod_has_an_answer_in_all_formats(tmp_path: Path) -> None:
    items = [node("n1"), *(pod(f"w{k}") for k in range(50))]
    for k, each in enumerate(items[1:]):
        each["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{k:02d}Z"
    document = json.loads(run(tmp_path, items, "--json", "--compare"))
    assert [each["pod"] for each in document["pods"] if each["node"] == "n1"] == [f"s/w{k}" for k in range(4)]
    assert {each["reason"] for each in document["pods"][4:]} == {"0/1 nodes are available: 1 Insufficient cpu."}
    assert document["pods"][7]["since"] == "2026-01-01T00:00:07Z" and document["proven"]
    assert set(document["compare"]["this plan"].values()) == {4}
    lines = run(tmp_path, items).splitlines()
    assert lines[-1] == "and 20 more pods; --json and -o list all"
    out = tmp_path / "b.json"
    run(tmp_path, items, "-o", str(out))
    written = json.loads(out.read_text(encoding="utf-8"))
    assert written["answers"]["pods"] == document["pods"] and len(written["items"]) == 4
    run(tmp_path, items, "-o", str(tmp_path / "b.yaml"))
    text = (tmp_path / "b.yaml").read_text(encoding="utf-8")
    assert len(yaml.safe_load(text)["items"]) == 4 and "# - pod: s/w49" in text
