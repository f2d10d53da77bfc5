"""Gangs, spreads and quotas: cases by hand, enumeration of tiny instances, and refused certificates."""

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from flowlex.formulations.solver_outcome import SolveOptions, Status
from flowlex.instances.group_rules import PodGang, PodQueue, PodResource, PodSpread
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.problem.group_rules import broken_rules
from flowlex.validation.certificates import verify
from flowlex.validation.restated.pods.instance_data import rules_of
from tests.models.pods.enumeration import hold
from tests.models.pods.oracles import BySearch, failing, solved

RACKS = tuple(
    PodNode(
        name=name,
        cpu_cores=cores,
        memory_gb=16,
        cards=cards,
        card_gb=8 if cards else 0,
        labels={"rack": rack} if rack else {},
    )
    for name, cores, cards, rack in (("a", 6, 1, "r1"), ("b", 4, 0, "r1"), ("c", 6, 1, "r2"), ("d", 8, 0, ""))
)


def pods_of(*asked: Any, **more: Any) -> tuple[Pod, ...]:
    """Pods p0, p1, ... of (cores, fields)."""
    return tuple(Pod(name=f"p{k}", cpu_cores=c, memory_gb=1, **(more | of)) for k, (c, of) in enumerate(asked))


def where(solution: Any) -> dict[str, str]:
    return dict(solution.to_dict()["answer"]["placement"])


def test_a_gang_comes_whole_or_not_at_all() -> None:
    gang = {"gangs": (PodGang(name="g"),)}
    three = pods_of((5, {"gang": "g"}), (5, {"gang": "g"}), (5, {"gang": "g"}))
    assert len(where(solved(PodInstance(nodes=RACKS, pods=three, **gang)))) == 3
    without = solved(PodInstance(nodes=RACKS[:3], pods=three, **gang))
    assert where(without) == {} and without.reasons()["p0"] == "gang 'g' does not fit whole"
    # The complete gang precedes less important pods.
    mixed = (*three, *(Pod(name=f"q{k}", cpu_cores=6, priority=-1) for k in range(2)))
    assert {"p0", "p1", "p2"} <= where(solved(PodInstance(nodes=RACKS, pods=mixed, **gang))).keys()


@pytest.mark.parametrize(("within", "placed"), [(None, 3), ("rack", 3), ("node", 0)])
def test_a_gang_stays_within_its_domain(within: Any, placed: int) -> None:
    pods = pods_of(*[(3, {"gang": "g"})] * 3)
    solution = solved(PodInstance(nodes=RACKS[:3], pods=pods, gangs=(PodGang(name="g", within=within),)))
    assert len(where(solution)) == placed
    if within == "rack":
        assert set(where(solution).values()) == {"a", "b"}


def test_anti_affinity_and_even_racks() -> None:
    apart = PodInstance(
        nodes=RACKS, pods=pods_of(*[(1, {"spreads": ("s",)})] * 4), spreads=(PodSpread(name="s", most=1),)
    )
    assert sorted(where(solved(apart)).values()) == ["a", "b", "c", "d"]
    racks = apart.model_copy(update={"spreads": (PodSpread(name="s", over="rack", most=1),)})
    solution = solved(racks)
    assert len(where(solution)) == 2 and "d" not in where(solution).values()  # d is in no rack
    assert solution.reasons()[solution.queue[0]] == "spread 's' has no room left"
    # Rack r2 holds two pods of three cores, so r1 may hold at most three although more would fit.
    five = pods_of(*[(3, {"spreads": ("s",)})] * 6)
    even = PodInstance(nodes=RACKS[:3], pods=five[:4], spreads=(PodSpread(name="s", over="rack", skew=1),))
    assert len(where(solved(even))) == 4


def test_quotas_of_a_queue() -> None:
    pods = (
        *pods_of(*[(1, {"queue": "u", "gpu_memory_gb": 4})] * 3),
        Pod(name="other", cpu_cores=1, gpu_memory_gb=8, queue="v"),
    )
    both = (PodQueue(name="u", gpus=0.5), PodQueue(name="v"))
    solution = solved(PodInstance(nodes=RACKS[:3], pods=pods, queues=both))
    assert len(where(solution)) == 2 and "other" in where(solution)
    assert solution.reasons()[solution.queue[0]] == "gpus of queue 'u' has no room left"
    for quota, many in (({"pods": 2}, 2), ({"cpu_cores": 1.5}, 1), ({"memory_gb": 0}, 0), ({}, 3)):
        queues = (PodQueue(name="u", **quota), PodQueue(name="v"))
        placed = where(solved(PodInstance(nodes=RACKS[:3], pods=pods, queues=queues)))
        assert len(placed.keys() - {"other"}) == many


def test_what_runs_may_exceed_a_rule_and_then_nothing_is_added() -> None:
    runs = tuple(Pod(name=f"r{k}", cpu_cores=1, node="a", spreads=("s",), queue="u") for k in range(2))
    fresh = pods_of((1, {"spreads": ("s",)}), (1, {"queue": "u"}))
    rules: dict[str, Any] = {"spreads": (PodSpread(name="s", most=1),), "queues": (PodQueue(name="u", pods=1),)}
    placed = where(solved(PodInstance(nodes=RACKS[:2], pods=(*runs, *fresh), **rules)))
    assert placed == {"r0": "a", "r1": "a", "p0": "b"}
    skew = {"spreads": (PodSpread(name="s", skew=1),), "queues": (PodQueue(name="u"),)}
    assert where(solved(PodInstance(nodes=RACKS[:2], pods=(*runs, *fresh), **skew)))["p0"] == "b"


def test_gangs_that_run_are_stopped_whole() -> None:
    runs = tuple(Pod(name=f"r{k}", cpu_cores=3, node="a", gang="g", preempt_cost=1) for k in range(2))
    top = Pod(name="top", cpu_cores=6, priority=1)
    solution = solved(PodInstance(nodes=RACKS[:1], pods=(*runs, top), gangs=(PodGang(name="g"),)))
    assert where(solution) == {"top": "a"}


pod_strategy = st.tuples(
    st.integers(1, 4),
    st.sampled_from([0, 0, 4, 8]),
    st.integers(0, 1),
    st.sampled_from([None, None, "g", "h"]),
    st.sampled_from([(), (), ("s",), ("t",), ("s", "t")]),
    st.sampled_from([None, "u", "v"]),
    st.sampled_from([0.0, 0.0, 0.5, 0.7]),
    st.sampled_from([0, 0, 1, 2]),
)
gang_strategy = st.sampled_from([None, "node", "rack"])
spread_strategy = st.tuples(
    st.sampled_from(["node", "rack"]), st.sampled_from([None, 1, 2]), st.sampled_from([None, 1])
)


def drawn(pods: Any, within: Any, spread: Any, quota: Any) -> PodInstance:
    made = [
        Pod(
            name=f"p{k}",
            cpu_cores=c,
            gpu_memory_gb=g,
            gpu_compute=compute if g else 0,
            priority=top,
            gang=gang,
            spreads=spreads,
            queue=queue,
            resources={"fpga": fpga} if fpga else {},
        )
        for k, (c, g, top, gang, spreads, queue, compute, fpga) in enumerate(pods)
    ]
    over, most, skew = spread
    return PodInstance(
        nodes=tuple(node.model_copy(update={"resources": {"fpga": k % 3}}) for k, node in enumerate(RACKS)),
        pods=tuple(made),
        resources=(PodResource(name="fpga"),),
        gangs=(PodGang(name="g", within=within), PodGang(name="h")),
        spreads=(PodSpread(name="s", over=over, most=most or 2, skew=skew), PodSpread(name="t", skew=1)),
        queues=(PodQueue(name="u", gpus=quota, cpu_cores=5.5), PodQueue(name="v", pods=1)),
    )


@settings(max_examples=12, deadline=None)
@given(st.lists(pod_strategy, max_size=5), gang_strategy, spread_strategy, st.sampled_from([0.5, 1.0]))
def test_the_most_of_all_placements_under_rules(pods: Any, within: Any, spread: Any, quota: Any) -> None:
    solved(drawn(pods, within, spread, quota))


@settings(max_examples=9, deadline=None)
@given(st.lists(pod_strategy, max_size=6), gang_strategy, spread_strategy)
def test_searches_obey_and_bounds_stay_valid(pods: Any, within: Any, spread: Any) -> None:
    instance = drawn(pods, within, spread, 1.0)
    found = BySearch(instance)._admit("highs", SolveOptions())
    exact = PodPlacement(instance)._admit("highs", SolveOptions())
    assert found.cluster is not None and hold(rules_of(instance), found.cluster.node.tolist())
    assert found.admitted <= exact.admitted
    if found.admitted:  # the bound of the first level is that of the relaxation
        assert found.most[0] >= exact.admitted[0]
    solution = BySearch(instance).solve("highs")
    assert solution.certificate is not None and solution.certificate.ok


@settings(max_examples=15, deadline=None)
@given(st.lists(pod_strategy, max_size=6), gang_strategy, spread_strategy, st.integers(0, 2**31))
def test_two_recounts_agree(pods: Any, within: Any, spread: Any, seed: int) -> None:
    instance, rng = drawn(pods, within, spread, 0.5), np.random.default_rng(seed)
    for _ in range(20):
        node = rng.integers(-1, len(RACKS), len(pods))
        assert hold(rules_of(instance), node.tolist()) == (not broken_rules(instance.arrays, node))


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"p1": None}, "gang_whole[p1,"),
        ({"p1": "c"}, "gang"),
        ({"p2": "a", "p3": "b"}, "spread[s,"),
        ({"p4": "a", "p5": "a"}, "quota[u,pods]"),
    ],
)
def test_a_certificate_refuses_broken_rules(change: dict[str, str | None], check: str) -> None:
    gang, apart, user = {"gang": "g"}, {"spreads": ("s",)}, {"queue": "u"}
    pods = pods_of((1, gang), (1, gang), (1, apart), (1, apart), (1, user), (1, user))
    instance = PodInstance(
        nodes=RACKS[:3],
        pods=pods,
        gangs=(PodGang(name="g", within="rack"),),
        spreads=(PodSpread(name="s", over="rack", most=1),),
        queues=(PodQueue(name="u", pods=1),),
    )

    def spoil(answer: Any) -> None:
        placement = answer["placement"] | {"p0": "a", "p1": "a"} | change
        answer["placement"] = {pod: node for pod, node in placement.items() if node}

    assert check in failing(instance, spoil)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pods": pods_of((1, {"gang": "g"}))}, "pod 'p0' is of gang 'g', which does not exist; the gangs are: none"),
        ({"pods": pods_of((1, {"spreads": ("s",)}))}, "pod 'p0' is of spread 's', which does not exist"),
        ({"pods": pods_of((1, {"queue": "q"}))}, "pod 'p0' is of queue 'q', which does not exist"),
        ({"gangs": (PodGang(name="g", within="row"),)}, "'g' names the label 'row', which no node has"),
        ({"gangs": (PodGang(name="g"), PodGang(name="g"))}, "two gangs are named 'g'"),
        (
            {"pods": pods_of((1, {"gang": "g", "node": "a"}), (1, {"gang": "g"})), "gangs": (PodGang(name="g"),)},
            "gang 'g': pod 'p0' runs and pod 'p1' waits; a gang runs or waits as a unit",
        ),
    ],
)
def test_what_is_refused(fields: Any, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        PodInstance(nodes=RACKS, **fields)
    assert message in str(error.value)
    with pytest.raises(ValidationError, match="gives neither most nor skew; give one of them"):
        PodSpread(name="s")


def test_a_larger_cluster_under_rules_is_certified() -> None:
    nodes = tuple(
        PodNode(name=f"n{k}", cpu_cores=16, memory_gb=64, cards=2, card_gb=16, labels={"rack": f"r{k // 4}"})
        for k in range(16)
    )
    pods = [
        Pod(name=f"g{g}-{k}", cpu_cores=4, memory_gb=8, gpu_memory_gb=16, gang=f"g{g}", priority=1)
        for g, k in itertools.product(range(4), range(6))
    ]
    pods += [Pod(name=f"s{k}", cpu_cores=2, memory_gb=4, spreads=("s",), queue="u") for k in range(30)]
    pods += [Pod(name=f"p{k}", cpu_cores=3, memory_gb=4, gpu_memory_gb=8) for k in range(20)]
    instance = PodInstance(
        nodes=nodes,
        pods=tuple(pods),
        gangs=tuple(PodGang(name=f"g{g}", within="rack") for g in range(4)),
        spreads=(PodSpread(name="s", over="rack", skew=1),),
        queues=(PodQueue(name="u", pods=21),),
    )
    solution = BySearch(instance).solve("highs", gap=0.05, max_steps=5_000)
    assert solution.status in (Status.OPTIMAL, Status.FEASIBLE) and solution.certificate.ok
    assert solution.admitted[1][0] == 24 and sum(k.startswith("s") for k in where(solution)) == 21


@pytest.mark.parametrize(("rule", "most"), [("quota", 7), ("spread", 6), ("both", 5)])
def test_quotas_and_spreads_bound_what_prices_prove(rule: str, most: int) -> None:
    """Thirty pods that fit, limited by a quota of GPUs (7.5), by 2 in each of 3 racks, or by 5 cores."""
    nodes = tuple(
        PodNode(name=f"n{k}", cpu_cores=64, memory_gb=64, cards=8, card_gb=8, labels={"rack": f"r{k}"})
        for k in range(3)
    )
    spread, queue = rule in ("spread", "both"), rule in ("quota", "both")
    pods = tuple(
        Pod(name=f"p{k}", cpu_cores=1, gpu_share=1.0, queue="q" if queue else None, spreads=("s",) if spread else ())
        for k in range(20)
    )
    queues = (PodQueue(name="q", gpus=7.5, cpu_cores=5 if spread else None),) if queue else ()
    spreads = (PodSpread(name="s", over="rack", most=2),) if spread else ()
    instance = PodInstance(nodes=nodes, pods=pods, queues=queues, spreads=spreads)
    solution = BySearch(instance).solve("highs")
    assert solution.admitted[0] == (most, 20, most) and solution.certificate.claim != "feasible"
    proof = solution.to_dict()["proof"]["admission"]["0"]["rows"]
    assert set(proof["rule"]["at"]) <= {"gpus of queue 'q'", "cpu_cores of queue 'q'", "spread 's'"}
    document = json.loads(json.dumps(solution.to_dict()))
    document["proof"]["admission"]["0"]["rows"].pop("rule")
    assert verify(document, instance).claim == "feasible"
    document["answer"]["admitted"]["0"]["most"] = most - 1
    assert not verify(document, instance).ok
