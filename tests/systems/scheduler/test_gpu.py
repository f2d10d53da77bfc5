"""Rounds of GPU assignment as a service: two stages, reasons, estimated bandwidths, restarts."""

import json

import numpy as np
import pytest

from flowlex.instances import generate
from flowlex.instances.gpu_policy import GpuPolicy
from flowlex.models.gpu.model import GpuAssignment
from flowlex.systems.scheduler.documents import RefusedEvent
from flowlex.systems.scheduler.gpu_core import GpuCore
from flowlex.systems.scheduler.measured_bandwidth import Bandwidths
from tests.systems.scheduler.conftest import wait_until

RATES = {"disk": 500.0, "rack": 125.0, "between_racks": 125.0}


def core(**options):
    return GpuCore(GpuPolicy.FSP, Bandwidths(RATES), **options)


def node(name, *gpus, rack="r1"):
    return {"event": "node", "node": {"name": name, "rack": rack, "gpus": [{"name": g, "memory_gb": 10} for g in gpus]}}


def part(name, *tasks, memory=8, on=()):
    shards = [{"size_mb": 100, "replicas": list(on)}] if on else []
    made = [{"name": task, "memory_gb": memory, "shards": shards} for task in tasks]
    return {"event": "job", "job": {"name": name, "tasks": made}}


def tell(made, *events):
    for event in events:
        made.take(event, 1.0)
    return made


def test_a_round_places_what_the_model_of_the_merged_instance_does():
    instance = generate("gpu-figure4", seed=2)
    given = {"disk": instance.disk_mb_per_s, "rack": instance.rack_mb_per_s}
    made = GpuCore(GpuPolicy.FSP, Bandwidths(given | {"between_racks": instance.between_racks_mb_per_s}))
    document = json.loads(instance.model_dump_json())
    tell(made, *({"event": "node", "node": each} for each in document["nodes"]))
    tell(made, *({"event": "job", "job": each} for each in document["jobs"]))
    decision = made.decide(2.0)
    solution = GpuAssignment(instance).solve("network")
    assert decision["transfer_s"] == pytest.approx(float(solution.objective))
    assert len(decision["placed"]) == int((solution.gpu >= 0).sum())
    assert len(decision["placed"]) + len(decision["waiting"]) == len(list(instance.tasks))
    assert made.decide(3.0)["placed"] == []  # all keep running where they are


def test_every_refusal_has_its_reason():
    made = tell(core(most_jobs=3), part("early", "e1"))
    assert made.decide(1.0)["waiting"] == [["e1", "no node reports a GPU"]]
    tell(made, node("n1", "g1"), part("large", "l1", memory=12), part("far", "f1", on=["gone"]), part("more", "m1"))
    reasons = dict(made.decide(2.0)["waiting"])
    assert reasons["l1"] == "it needs 12 GB; the largest GPU has 10 GB"
    assert reasons["f1"] == "no node is there that holds its shard 0"
    assert reasons["m1"] == "its job queues: 3 jobs share the cluster at a time"
    assert made.task("e1")["gpu"] == "g1" and made.task("m1")["reason"] == reasons["m1"]
    tell(made, part("next", "x1"))
    assert made.task("x1")["reason"] == "no round since it came"


@pytest.mark.parametrize("seed", range(4))
def test_decisions_after_a_recovery_are_those_of_an_uninterrupted_run(seed):
    """``twin`` is loaded at a random place, and repeats the next decision before it makes its own."""
    rng, made, twin, redone = np.random.default_rng(seed), core(), None, False
    cut = int(rng.integers(0, 12))
    for turn in range(16):
        events = [
            part(f"j{turn}", *(f"t{turn}-{k}" for k in range(int(rng.integers(1, 4)))), memory=int(rng.integers(2, 11)))
        ]
        events += [node(f"n{k}", f"g{k}a", f"g{k}b", rack=f"r{k % 2}") for k in range(4) if rng.random() < 0.3]
        events += [
            {"event": "task_end", "task": str(t), "failed": bool(rng.random() < 0.3)} for t in list(made.running)[:2]
        ]
        tell(made, *events)
        if twin is not None:
            tell(twin, *events)
        if turn == cut:
            twin = core().load(made.save())
        decision = made.decide(turn + 2.0)
        if twin is not None and not redone:
            redone = not twin.redo(decision, turn + 2.0)
        elif twin is not None:
            assert twin.decide(turn + 2.0) == decision
    assert redone


def test_nodes_fail_tasks_end_fail_and_parts_are_replaced():
    made = tell(core(), node("n1", "g1"), node("n2", "g2"), part("a", "a1", "a2"), part("b", "b1"))
    placed = {task: gpu for task, gpu, _ in made.decide(1.0)["placed"]}
    assert len(placed) == 2 and "b1" in placed  # fair: one each
    tell(made, part("a", "a3"))  # replaces a's waiting tasks, not its running ones
    waiting = {task for task in made.job_of if task not in made.running}
    assert waiting == {"a3"}
    gone = next(each.name for each in made.nodes.values() if each.gpus[0].name == placed["b1"])
    tell(made, {"event": "node_gone", "node": gone})
    assert "b1" not in made.running and made.task("b1")["reason"] == f"node {gone!r} has gone"
    runs = next(iter(made.running))
    tell(made, {"event": "task_end", "task": runs, "failed": True})
    assert made.task(runs)["reason"] == "it failed"
    assert len(made.decide(2.0)["placed"]) == 1
    runs = next(iter(made.running))
    tell(made, {"event": "task_end", "task": runs}, {"event": "withdrawn", "job": "a" if runs == "b1" else "b"})
    assert runs not in made.job_of


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"event": "node_gone", "node": "zz"}, "no node is named 'zz'"),
        ({"event": "task_end", "task": "a1"}, "'a1' does not run"),
        (node("n2", "g1"), "GPU 'g1' is on node 'n1' already"),
        (part("b", "a1"), "'a1' is here already"),
        (part("b"), "submits no task"),
        ({"event": "withdrawn", "job": "zz"}, "no job is named 'zz'"),
        ({"event": "transfer", "source": "n1", "target": "zz", "size_mb": 1, "seconds": 1}, "no node is named 'zz'"),
    ],
)
def test_an_event_that_does_not_fit_changes_nothing(event, said):
    made = tell(core(), node("n1", "g1"), part("a", "a1"))
    before = made.facts()
    with pytest.raises(RefusedEvent, match=said):
        tell(made, event)
    assert made.facts() == before and set(made.nodes) == {"n1"} and set(made.job_of) == {"a1"}


def test_bandwidths_are_those_of_the_last_transfers():
    made = tell(core(), node("n1", "g1"), node("n2", "g2"), node("n3", "g3", rack="r2"))

    def transfer(source, target, size, seconds):
        event = {"event": "transfer", "source": source, "target": target, "size_mb": size, "seconds": seconds}
        tell(made, event)

    for _ in range(4):
        transfer("n1", "n2", 100, 4.0)
    assert made.bandwidths.rates() == RATES  # too few yet
    transfer("n1", "n2", 600, 4.0)
    assert made.bandwidths.rates()["rack"] == 50.0  # 1000 MB in 20 s
    for _ in range(5):
        transfer("n3", "n1", 30, 2.0)
        transfer("n1", "n1", 30, 0.1)
    assert made.bandwidths.rates() == {"disk": 300.0, "rack": 50.0, "between_racks": 15.0}
    tell(made, part("a", "a1", on=["n3"]))
    made.nodes = {name: each for name, each in made.nodes.items() if name != "n2"}
    assert made.decide(1.0)["bandwidths"]["between_racks"] == 15.0


def test_the_service_answers_rounds_and_goes_on_after_a_restart(start):
    api = start("gpu", every_s=0.0)
    events = [node("n1", "g1"), node("n2", "g2", rack="r2"), part("a", "a1", "a2", "a3", on=["n1"])]
    assert api.post("/v1/events", json={"events": events}).json() == {"taken": 3}
    (decision,) = api.get("/v1/decisions", params={"wait_s": 30}).json()
    assert len(decision["placed"]) == 2 and len(decision["waiting"]) == 1
    waits = decision["waiting"][0][0]
    assert api.get("/v1/task", params={"name": waits}).json()["reason"] == decision["waiting"][0][1]
    assert api.get("/v1/bandwidths").json() == RATES
    assert api.post("/v1/events", json={"events": [{"event": "task_end", "task": waits}]}).status_code == 409
    places = api.get("/v1/placements").json()
    again = start("gpu", leads=False)
    api.__exit__()
    wait_until(lambda: again.replica.term == 2)
    assert again.get("/v1/placements").json() == places
    assert again.get("/v1/task", params={"name": waits}).json()["reason"] == decision["waiting"][0][1]
    assert "flowlex_scheduler_state" in again.get("/metrics").text
