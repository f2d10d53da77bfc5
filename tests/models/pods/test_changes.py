"""Changes of pod placement: cases by hand (at random: `tests/models/test_random_changes.py`)."""

import copy
import json

import pytest

from flowlex.instances.group_rules import PodGang, PodQueue, PodResource, PodSpread
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.pods.model import PodPlacement
from flowlex.models.solution import ModelError
from flowlex.validation.certificates import verify


def two_racks(**more):
    """Two nodes with two cards of 8 GB each, in two racks; four pods of 4 GB, one of them important."""
    nodes = [
        PodNode(name=f"n{k}", cpu_cores=4, memory_gb=8, cards=2, card_gb=8, labels={"rack": f"r{k}"}) for k in (0, 1)
    ]
    pods = [Pod(name=f"p{k}", cpu_cores=1, memory_gb=1, gpu_memory_gb=4, priority=int(k == 0)) for k in range(4)]
    return PodInstance(name="racks", nodes=tuple(nodes), pods=tuple(pods), **more)


def model_of(instance=None, **options):
    return PodPlacement(instance or two_racks(), **{"balance": "max_load", **options})


def test_labels():
    model = model_of()
    x, y = model.variables["x"], model.variables["y"]
    assert x.index.names == ["pod", "node", "priority", "queue", "gang", "resource", "card_model", "rack"]
    assert list(x.sel(pod="p0").index) == [
        ("p0", "n0", 1, "", "", "gpu", "", "r0"),
        ("p0", "n1", 1, "", "", "gpu", "", "r1"),
    ]
    assert len(y.sel(rack="r1", card=1)) == 4
    assert model.constraints["card"].block.index.texts() == ["n0,0", "n0,1", "n1,0", "n1,1"]


def test_changes_by_hand():
    model = model_of()
    x, y = model.variables["x"], model.variables["y"]
    solution = model.with_constraint("few", x.sel(rack="r1").sum() <= 1).solve()
    assert solution.stages == {"admission 1": 1, "admission 0": 3, "balance": solution.objective}
    assert sorted(solution.node.tolist()) == [0, 0, 0, 1] and solution.certificate.claim == "optimal"
    assert model.with_constraint("two", x.sum(by="rack") <= 1).solve().stages["admission 0"] == 1
    apart = model.with_constraint("never_together", x.sel(pod=["p0", "p1"]).sum(by="node") <= 1).solve()
    assert apart.node[0] != apart.node[1]
    assert model.with_fixed(x.sel(pod="p0", rack="r1"), 1).solve().node[0] == 1
    card = model.with_fixed(y.sel(pod="p0", node="n0", card=1), 1).solve()
    assert card.cluster.used_cards[0].tolist() == [1]
    assert model.with_bounds(x.sel(pod="p3"), upper=0).solve().queue == ("p3",)
    priced = model.with_cost(x.sel(pod="p1", rack="r0").sum() * 5, stage="balance").solve()
    assert priced.node[1] == 1
    unlimited = model.without("card").without("cpu").without("memory")
    packed = unlimited.with_constraint("one_rack", x.sel(rack="r1").sum() <= 0).solve()
    assert packed.stages["admission 0"] == 3


def test_values_from_another_solver_and_relaxed_values():
    model = model_of()
    x = model.variables["x"]
    changed = model.with_constraint("few", x.sel(rack="r1").sum() <= 1)
    values = changed.solve().stated.values
    assert changed.interpret(values).node.tolist() == changed.solve().node.tolist()
    half = model.with_constraint("half", x.sum(by="pod") <= 0.5).relaxed().solve()
    assert half.stages["admission 0"] == 1.5
    assert "4 pods run in parts, such as p0" in half.message and set(half.queue) == {"p0", "p1", "p2", "p3"}


def test_running_pods_stops_and_moves():
    nodes = (PodNode(name="a", cpu_cores=2, memory_gb=2), PodNode(name="b", cpu_cores=2, memory_gb=2))
    runs = Pod(name="runs", cpu_cores=1, node="a", move_cost=3)
    stops = Pod(name="stops", cpu_cores=1, node="a", preempt_cost=2, priority=1)
    new = Pod(name="new", cpu_cores=2, priority=2, node_labels={})
    model = model_of(PodInstance(name="runs", nodes=nodes, pods=(runs, stops, new)), move_budget=3, moves="least")
    x = model.variables["x"]
    assert model.solve().node.tolist() == [0, 0, 1]
    on_a = model.with_fixed(x.sel(pod="new", node="a"), 1).solve()
    assert on_a.node.tolist() == [1, -1, 0]
    assert on_a.stages["moves"] == 3 and on_a.stages["admission 1 running"] == 0
    kept = model.with_fixed(x.sel(pod="stops"), 1).with_fixed(x.sel(pod="new", node="a"), 1).solve()
    assert kept.status.value == "infeasible" and kept.certificate.claim == "infeasible"


def test_refusals_name_the_remedy():
    model = model_of()
    x = model.variables["x"]
    for name in ("pod", "card_link", "largest"):
        with pytest.raises(ModelError, match=f"rows '{name}' cannot be dropped"):
            model.without(name)
    with pytest.raises(ModelError, match="no objective 'admission'; did you mean 'admission"):
        model.with_cost(x, stage="admission")
    with pytest.raises(ModelError, match="no rack 'r9'"):
        x.sel(rack="r9")
    tight = PodNode(name="a", cpu_cores=1, memory_gb=1, cards=1, card_gb=8)
    runs = Pod(name="runs", cpu_cores=1, gpu_share=0.5, gpu_cards=2, node="a")
    with pytest.raises(ModelError, match="pod 'runs' must go on running, but does not fit any node it may use"):
        _ = model_of(PodInstance(nodes=(tight,), pods=(runs,))).variables
    fine = PodNode(name="a", cpu_cores=1 + 2**-50, memory_gb=1 / 3)
    with pytest.raises(ModelError, match="no common unit that is exact"):
        _ = model_of(PodInstance(name="fine", nodes=(fine,), pods=(Pod(name="p", cpu_cores=0.1),))).variables


@pytest.mark.parametrize(("balance", "wanted"), [("max_load", 0.375), ("mean_absolute", 0.0625), ("deviation", 0.0625)])
def test_equal_pods_need_no_tree_over_their_order(balance, wanted):
    nodes = tuple(PodNode(name=f"n{k}", cpu_cores=8, memory_gb=16) for k in range(4))
    pods = tuple(Pod(name=f"p{k}", cpu_cores=1.5, memory_gb=1) for k in range(10))
    model = model_of(PodInstance(name="equal", nodes=nodes, pods=pods), balance=balance)
    solution = model.with_constraint("few", model.variables["x"].sel(node="n0").sum() <= 2).solve()
    assert solution.certificate.claim == "optimal" and solution.objective == pytest.approx(wanted, rel=1e-6)


def random_instance(rng):
    racks = [f"r{k}" for k in rng.integers(0, 2, 3)]
    nodes = tuple(
        PodNode(
            name=f"n{k}",
            cpu_cores=float(rng.choice([2, 3.5])),
            memory_gb=8,
            cards=int(k != 2) * int(rng.integers(1, 3)),
            card_gb=8 if k != 2 else 0,
            labels={"rack": racks[k]},
            resources={"fpga": int(rng.integers(0, 4))},
        )
        for k in range(int(rng.integers(2, 4)))
    )
    pods = []
    for k in range(int(rng.integers(3, 6))):
        gpu = {"gpu_memory_gb": float(rng.choice([2.5, 4, 8]))} if rng.random() < 0.6 else {}
        tags = {"gang": "g"} if rng.random() < 0.3 else {}
        tags |= {"spreads": ("s",)} if rng.random() < 0.4 else {}
        tags |= {"queue": "q"} if rng.random() < 0.4 else {}
        tags |= {"resources": {"fpga": int(rng.integers(1, 3))}} if rng.random() < 0.4 else {}
        size = {"cpu_cores": float(rng.choice([0.5, 1, 1.5])), "memory_gb": float(rng.choice([1, 3.3]))}
        pods.append(Pod(name=f"p{k}", priority=int(rng.integers(0, 2)), **size, **gpu, **tags))
    gangs = (PodGang(name="g", within=rng.choice([None, "rack", "node"])),)
    spreads = (PodSpread(name="s", over=str(rng.choice(["node", "rack"])), most=1),)
    queues = (PodQueue(name="q", pods=2, cpu_cores=2.2),)
    rules = {"gangs": gangs, "spreads": spreads, "queues": queues, "resources": (PodResource(name="fpga"),)}
    return PodInstance(name="random", nodes=nodes, pods=tuple(pods), **rules)


def test_fair_shares_under_a_rule():
    """Two queues of unequal weight on two racks; running pods count for their queue."""
    runs = Pod(name="r", cpu_cores=1, queue="u", node="n0")
    pods = (
        runs,
        *(Pod(name=f"{q}{k}", cpu_cores=1, queue=q) for q in "uv" for k in range(4)),
        Pod(name="free", cpu_cores=1),
    )
    queues = (PodQueue(name="u"), PodQueue(name="v", weight=1.5))
    model = model_of(two_racks().model_copy(update={"pods": pods, "queues": queues}), admission="fair")
    x, by = model.variables["x"], ("admission fair 1", "admission fair 2", "admission rest")
    found = model.problem.solve()
    assert [found.stages[k].value for k in by] == [pytest.approx(8 / 3), pytest.approx(20 / 3), 0]
    few = model.with_constraint("few", x.sel(queue="v", rack="r1").sum() <= 0).with_fixed(x.sel(pod="u0"), 0)
    solution = few.solve()
    assert solution.certificate.claim == "optimal"
    assert [solution.stages[k] for k in by] == [2, 6, 1]
    document = json.loads(json.dumps(solution.to_dict()))
    document["stages"]["admission fair 1"] = 2.5
    assert not verify(document, model.instance).ok


def test_a_rule_may_move_the_centre_of_the_squares():
    """Loads of 50 and 0 %: half the squares around 10 % is (1600 + 100) / 2, around the mean 625."""
    nodes = tuple(PodNode(name=name, cpu_cores=2, memory_gb=2) for name in "ab")
    model = model_of(PodInstance(nodes=nodes, pods=(Pod(name="p", cpu_cores=2, node="a"),)), balance="deviation")
    centre = model.variables["centre"]
    for change, variance in ((centre.sum() <= 10, 850), (centre.sum() <= 40, 625)):
        found = model.with_constraint("centre", change).solve()
        assert found.stages["balance"] == pytest.approx(variance, rel=1e-6) and found.certificate.claim == "optimal"
    priced = model.with_cost(centre.sum() * 10, stage="balance").solve()  # at 20: (900 + 400) / 2 + 200
    assert priced.stages["balance"] == pytest.approx(850, rel=1e-6) and priced.certificate.claim == "optimal"


def test_squares_and_tangents_are_judged():
    model = PodPlacement(two_racks())
    document = json.loads(
        json.dumps(model.with_constraint("few", model.variables["x"].sel(rack="r1").sum() <= 1).solve().to_dict())
    )
    assert verify(document, model.instance).claim == "optimal"
    for spoil in ("square", "tangent"):
        changed = copy.deepcopy(document)
        if spoil == "square":
            changed["values"]["square"] = {node: 1.0 for node in changed["values"]["square"]}
            changed["objective"] = changed["bound"] = changed["stages"]["balance"] = 1.0
        else:
            rows = changed["proof"]["stages"]["balance"][0]["rows"]
            rows["tangent"] = {f"{label.split(',')[0]},90": y for label, y in rows["tangent"].items()}
        certificate = verify(changed, model.instance)
        assert not certificate.ok or certificate.claim != "optimal"
