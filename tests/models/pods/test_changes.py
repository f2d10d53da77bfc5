"""Changes of pod placement: comparison with enumeration, cases by hand, and seeded faults."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction

import numpy as np
import pytest

from flowlex.formulations.solver_outcome import SolveOptions
from flowlex.instances.group_rules import PodGang, PodQueue, PodResource, PodSpread
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.pods.model import PodPlacement
from flowlex.models.solution import ModelError
from flowlex.validation.certificates import verify
from tests.seeds import seeds


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


# All placements, tried one by one


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


def on_cards(needs, free):
    """Whether GPU pods of these sizes fit on cards with this free memory."""
    if not needs:
        return True
    ways = {k: left for k, left in enumerate(free) if left >= needs[0]}
    return any(on_cards(needs[1:], [*free[:k], left - needs[0], *free[k + 1 :]]) for k, left in ways.items())


def placements(instance, dropped):
    """Yield all placements (node of each pod, None: waits) that satisfy the rows that are not dropped."""
    nodes, pods = instance.nodes, instance.pods
    for where in itertools.product((None, *range(len(nodes))), repeat=len(pods)):
        alone = all(n is None or not p.gpu_memory_gb or nodes[n].cards for p, n in zip(pods, where, strict=True))
        if alone and all(fits(nodes[n], [p for p, at in zip(pods, where, strict=True) if at == n], dropped)
                         for n in range(len(nodes))) and rules_hold(instance, where, dropped):  # fmt: skip
            yield where


def fits(node, here, dropped):
    cpu = "cpu" in dropped or sum(Fraction(str(p.cpu_cores)) for p in here) <= Fraction(str(node.cpu_cores))
    memory = "memory" in dropped or sum(Fraction(str(p.memory_gb)) for p in here) <= Fraction(str(node.memory_gb))
    has = node.resources.get("fpga", 0)
    fpga = "resource" in dropped or sum(p.resources.get("fpga", 0) for p in here) <= has
    gpu = "card" in dropped or on_cards([p.gpu_memory_gb for p in here if p.gpu_memory_gb], [node.card_gb] * node.cards)
    return cpu and memory and gpu and fpga


def rules_hold(instance, where, dropped):
    pods, nodes = instance.pods, instance.nodes
    gang, of = [n for p, n in zip(pods, where, strict=True) if p.gang], instance.gangs[0].within
    key = {None: lambda n: 0, "node": lambda n: n, "rack": lambda n: nodes[n].labels["rack"]}
    placed = [n for n in gang if n is not None]
    if placed and (len(placed) < len(gang) or len({key[of](n) for n in placed}) > 1):
        return False
    spread = [key[instance.spreads[0].over](n) for p, n in zip(pods, where, strict=True) if p.spreads and n is not None]
    if "spread" not in dropped and len(spread) > len(set(spread)):
        return False
    queue = [p for p, n in zip(pods, where, strict=True) if p.queue and n is not None]
    return "quota" in dropped or (len(queue) <= 2 and sum(p.cpu_cores for p in queue) <= 2.2)


def loads_of(instance, where):
    nodes = instance.nodes
    has = [(n.cards * n.card_gb, n.cpu_cores, n.memory_gb) for n in nodes]
    total = [sum(column) for column in zip(*has, strict=True)]
    loads = [0.0] * len(nodes)
    for pod, n in zip(instance.pods, where, strict=True):
        if n is not None:
            weight = [h / t if t else 0 for h, t in zip(has[n], total, strict=True)]
            used = (pod.gpu_memory_gb, pod.cpu_cores, pod.memory_gb)
            each = [w * u / h for w, u, h in zip(weight, used, has[n], strict=True) if h]
            loads[n] += sum(each) / sum(weight)
    return loads


def random_changes(rng, model):
    """Return a changed model, and functions of a placement for its rules and its added costs."""
    instance, must, dropped, costs = model.instance, [], set(), {}
    x, pods, nodes = model.variables["x"], instance.pods, instance.nodes
    racks = sorted({n.labels["rack"] for n in nodes})

    def count(where, chosen=None, rack=None, node=None):
        return sum(
            n is not None and (chosen is None or p.name in chosen)
            and rack in (None, nodes[n].labels["rack"]) and node in (None, nodes[n].name)
            for p, n in zip(pods, where, strict=True)
        )  # fmt: skip

    for k in range(int(rng.integers(1, 4))):
        kind = rng.choice(["cap", "by", "drop", "fix", "bound", "cost", "least"])
        some = [p.name for p in pods if rng.random() < 0.5] or [pods[0].name]
        here = {label[0] for label in x.index}
        some = [name for name in some if name in here]
        if not some:
            continue
        rack, side = str(rng.choice(racks)), int(rng.integers(0, 3))
        found = [label for label in x.index if label[0] in some and label[-1] == rack]
        if kind == "cap" and found:
            model = model.with_constraint(f"own{k}", x.sel(pod=some, rack=rack).sum() <= side)
            must.append(lambda w, s=some, r=rack, side=side: count(w, s, r) <= side)
        elif kind == "least":
            model = model.with_constraint(f"own{k}", 2 * x.sel(pod=some).sum() >= 1)
            must.append(lambda w, s=some: count(w, s) >= 1)
        elif kind == "by":
            model = model.with_constraint(f"own{k}", x.sel(pod=some).sum(by="node") <= 1)
            must.append(lambda w, s=some: all(count(w, s, node=n.name) <= 1 for n in nodes))
        elif kind == "drop":
            name = str(rng.choice(["cpu", "memory", "card", "spread", "quota", "resource"]))
            if name in model.constraints:
                model, dropped = model.without(name), dropped | {name}
        elif kind == "fix" and found:
            model = model.with_fixed(x.sel(pod=found[0][0], node=found[0][1]), 1)
            must.append(lambda w, f=found[0]: count(w, [f[0]], node=f[1]) == 1)
        elif kind == "bound" and found:
            try:
                model = model.with_bounds(x.sel(pod=some, rack=rack), upper=0)
            except ModelError as error:
                assert "above its upper" in str(error)
                continue
            must.append(lambda w, s=some, r=rack: count(w, s, r) == 0)
        elif kind == "cost":
            stage, price = str(rng.choice([o.name for o in model.problem.objectives])), float(rng.choice([0.25, -1, 2]))
            model = model.with_cost(x.sel(pod=some) * price, stage=stage)
            costs.setdefault(stage, []).append(lambda w, s=some, price=price: price * count(w, s))
    return model, must, dropped, costs


EVEN = {
    "max_load": np.max,
    "mean_absolute": lambda loads: np.abs(loads - loads.mean()).mean(),
    "deviation": lambda loads: (100 * loads).var(),
}


def best(instance, measure, must, dropped, costs):
    """Return the values of all stages by enumeration; None if infeasible."""
    names = [f"admission {k}" for k in sorted({p.priority for p in instance.pods}, reverse=True)]
    values = []
    for where in placements(instance, dropped):
        if all(holds(where) for holds in must):
            extra = {name: sum(cost(where) for cost in costs.get(name, ())) for name in (*names, "balance")}
            runs = [f"admission {p.priority}" for p, n in zip(instance.pods, where, strict=True) if n is not None]
            level = [runs.count(name) + extra[name] for name in names]
            loads = np.array(loads_of(instance, where))
            even = EVEN[measure](loads)
            values.append((*(-v for v in level), round(float(even + extra["balance"]), 7)))
    if not values:
        return None
    *level, balance = min(values)
    return {**{name: -v for name, v in zip(names, level, strict=True)}, "balance": balance}


@pytest.mark.parametrize("batch", seeds(2, 4))
def test_random_changes_against_enumeration(batch):
    rng = np.random.default_rng(batch)
    answered = 0
    for _ in range(25):
        measure = str(rng.choice([*EVEN]))
        try:
            model, *rest = random_changes(rng, model_of(random_instance(rng), balance=measure))
        except ModelError as error:
            assert "outside its bounds" in str(error)
            continue
        wanted = best(model.instance, measure, *rest)
        solution = model._read(model._run_statement("highs", SolveOptions(), None, True))
        assert (wanted is None) == (solution.status.value == "infeasible")
        document = json.loads(json.dumps(solution.to_dict()))
        certificate = verify(document, model.instance)
        assert certificate.ok, [c for c in certificate.checks if not c.ok]
        assert certificate.claim == solution.status.value
        if wanted is not None:
            answered += 1
            assert {k: pytest.approx(v, abs=2e-6, rel=1e-6) for k, v in wanted.items()} == solution.stages
    assert answered > 10


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


@pytest.mark.rare
def test_the_unchanged_statement_has_the_optimum_of_the_method():
    rng = np.random.default_rng(7)
    for _ in range(6):
        instance, measure = random_instance(rng), str(rng.choice(["max_load", "mean_absolute"]))
        model = model_of(instance, balance=measure, cards=bool(rng.random() < 0.8))
        quick = model.solve(certify=False)
        stated = model._read(model._run_statement("highs", SolveOptions(), None, True))
        assert stated.objective == pytest.approx(quick.objective, abs=2e-6)
        assert [v[0] for v in stated.admitted.values()] == [v[0] for v in quick.admitted.values()]


@pytest.mark.parametrize(
    "measure",
    [
        pytest.param("deviation", marks=pytest.mark.rare),
        "max_load",
        pytest.param("mean_absolute", marks=pytest.mark.rare),
    ],
)
def test_an_idle_rule_changes_neither_value_nor_claim(measure):
    for seed in range(4):
        draw = np.random.default_rng(seed)
        nodes = [
            PodNode(
                name=f"n{k}", cpu_cores=draw.choice([8, 12, 16]), memory_gb=draw.choice([16, 48]), cards=2, card_gb=16
            )
            for k in range(3)
        ]
        pods = [
            Pod(
                name=f"p{k}",
                cpu_cores=draw.integers(1, 5),
                memory_gb=draw.integers(1, 9),
                gpu_memory_gb=draw.choice([0, 3, 7]),
            )
            for k in range(6)
        ]
        model = model_of(PodInstance(nodes=tuple(nodes), pods=tuple(pods)), balance=measure)
        plain, idle = model.solve(), model.with_constraint("idle", model.variables["x"].sum() <= 100).solve()
        assert idle.objective == pytest.approx(plain.objective, rel=1e-9), seed
        assert idle.certificate.claim == plain.certificate.claim == "optimal", seed


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
