"""Admission: never below a baseline, never above the bound, and bounds above the most of all placements."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations.solver_outcome import SolveOptions
from flowlex.instances.generators import generate
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.pods.baselines import POLICIES, place
from flowlex.models.pods.methods.admission import SearchLimits
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.problem.cluster import Cluster
from flowlex.validation.certificates.verifier_interface import verify
from tests.models.pods.enumeration import all_ways
from tests.models.pods.oracles import BySearch

TRACE = Path(__file__).parents[3].parent / "shared" / "data" / "openb"


def admit(instance: PodInstance, of: type[PodPlacement] = PodPlacement, **options: Any) -> Any:
    model = of(instance, **options)
    return model._admit("highs", SolveOptions())


def counts(instance: PodInstance, node: Any) -> list[int]:
    view = instance.arrays
    classes = sorted(set(view.priority.tolist()), reverse=True)
    return [int(((node >= 0) & (view.running < 0) & (view.priority == k)).sum()) for k in classes]


some = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 10), st.sampled_from([0, 0, 3, 4, 5, 8]), st.booleans(), st.booleans()),
    max_size=6,
)


@settings(max_examples=15, deadline=None)
@given(some)
def test_prices_never_promise_too_little(pods: Any) -> None:
    """The bound over node classes against the truth."""
    nodes = [PodNode(name=n, cpu_cores=8, memory_gb=16, cards=2, card_gb=8) for n in "ab"]
    entries = [
        Pod(name=f"p{k}", cpu_cores=c, memory_gb=m, gpu_memory_gb=g, gpu_cards=1 + (two and g > 0), priority=int(top))
        for k, (c, m, g, two, top) in enumerate(pods)
    ]
    instance = PodInstance(nodes=tuple(nodes), pods=tuple(entries))
    model, tried = PodPlacement(instance), all_ways(instance, {})
    assert tried is not None
    best = [int(n) for n in tried[0]]
    for level, number in enumerate(best):
        prices = model.bounds.most(level, best[:level], SolveOptions())
        assert prices is None or prices.most >= number


@pytest.mark.rare
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_the_search_alone_is_never_below_a_baseline(seed: int) -> None:
    instance: Any = generate("pods-scale", nodes=10, pods=220, seed=seed, classes=3, running=0.1)
    found = admit(instance, BySearch)
    mine = counts(instance, found.cluster.node)
    assert mine == list(found.admitted)
    assert all(mine >= counts(instance, place(instance, policy).node) for policy in POLICIES)
    assert all(a <= b for a, b in zip(found.admitted, found.most, strict=True))
    there = Cluster(instance.arrays).card_free >= 0
    assert found.cluster.free.min() >= 0 and found.cluster.card_free[there].min() >= 0


def test_sizes_are_exact_whatever_their_scale() -> None:
    for scale in (1e-7, 0.1, 1.0, 1e9):
        nodes = (PodNode(name="a", cpu_cores=2 * scale, memory_gb=1),)
        pods = tuple(Pod(name=f"p{k}", cpu_cores=scale) for k in range(5))
        assert admit(PodInstance(nodes=nodes, pods=pods)).admitted == (2,)
    # 0.1 + 0.2 is 0.3 in decimals, not in binary floats.
    nodes = (PodNode(name="a", cpu_cores=0.3, memory_gb=1),)
    pods = (Pod(name="p", cpu_cores=0.1), Pod(name="q", cpu_cores=0.2), Pod(name="r", cpu_cores=1e-15))
    assert admit(PodInstance(nodes=nodes, pods=pods)).admitted == (2,)


def test_sizes_without_a_common_unit_are_rounded_to_the_safe_side() -> None:
    nodes = (PodNode(name="a", cpu_cores=1e15, memory_gb=1),)
    pods = (Pod(name="p", cpu_cores=1e-15), Pod(name="q", cpu_cores=1e15))
    instance = PodInstance(nodes=nodes, pods=pods)
    assert instance.arrays.exact.rounded
    assert admit(instance).admitted == (1,)


def test_the_order_of_tolerations_and_models_tells_no_pods_apart() -> None:
    pods = [Pod(name="p", gpu_share=0.5, tolerations=("a", "b"), card_models=("T4", "A10"))]
    pods += [Pod(name="q", gpu_share=0.5, tolerations=("b", "a"), card_models=("A10", "T4"))]
    instance = PodInstance(nodes=(PodNode(name="n", cpu_cores=1, memory_gb=1, cards=1, card_gb=8),), pods=tuple(pods))
    assert len(PodPlacement(instance).groups.count) == 1


def test_moving_for_nothing_needs_no_budget() -> None:
    nodes = (PodNode(name="a", cpu_cores=8, memory_gb=8), PodNode(name="b", cpu_cores=4, memory_gb=8))
    pods = (Pod(name="x", cpu_cores=2, node="a", move_cost=0.0), Pod(name="new", cpu_cores=8))
    assert admit(PodInstance(nodes=nodes, pods=pods)).admitted == (1,)
    dear = (pods[0].model_copy(update={"move_cost": 1.0}), pods[1])
    assert admit(PodInstance(nodes=nodes, pods=dear)).admitted == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", ["gpu", "all"])
def test_the_real_trace_is_admitted_to_half_a_percent(nodes: str) -> None:
    if not TRACE.exists():
        pytest.skip("the public trace is not there")
    from flowlex.systems.traces import read_openb

    lists = (TRACE / f"openb_node_list_{nodes}_node.csv.gz", TRACE / "openb_pod_list_default.csv.gz")
    found = admit(read_openb(*lists))
    assert found.admitted[:2] == found.most[:2]
    assert found.most[2] - found.admitted[2] <= 0.005 * found.admitted[2]


def test_a_policy_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no policy 'best'; there are: first-fit"):
        place(generate("kubeflow-testbed"), "best")  # type: ignore[arg-type]


def halves(lost: int) -> PodInstance:
    """Nodes that hold one pod of two thirds each, which duals of resources do not detect, and pods that fit nowhere."""
    nodes = tuple(PodNode(name=f"n{k}", cpu_cores=9.5, memory_gb=10) for k in range(20))
    large = tuple(Pod(name=f"p{k}", cpu_cores=6, memory_gb=1, priority=1) for k in range(30))
    small = tuple(Pod(name=f"q{k}", cpu_cores=3, memory_gb=1) for k in range(30))
    none = tuple(Pod(name=f"x{k}", cpu_cores=10, memory_gb=1, priority=1) for k in range(lost))
    return PodInstance(name="halves", nodes=nodes, pods=(*large, *small, *none))


def test_whole_nodes_prove_what_prices_of_resources_do_not() -> None:
    answer = PodPlacement(halves(2)).solve("highs", gap=0.1)
    assert answer.certificate is not None and answer.certificate.claim == "optimal"
    assert answer.admitted == {1: (20, 32, 20), 0: (20, 30, 20)}  # one large and one small pod on every node
    assert answer.proof["admission"]["1"]["blocks"] == ["node"]


def test_patterns_prove_what_is_too_large_for_the_program_over_nodes() -> None:
    """Requests of 130 % of the cores: the gap of the last level is 10 pods by duals of resources, 6 by patterns."""
    drawn: Any = generate("pods-scale", nodes=10, pods=60, seed=4)
    view = drawn.arrays
    grow = 1.3 / max((view.gpu.most() * view.gpu_cards).sum() / view.capacity[:, 0].sum(), *_shares(view))
    sizes = ("cpu_cores", "memory_gb", "gpu_memory_gb")
    made = [{name: round(getattr(pod, name) * grow, 3) for name in sizes} for pod in drawn.pods]
    pods = tuple(pod.model_copy(update=each) for pod, each in zip(drawn.pods, made, strict=True))
    instance = PodInstance(nodes=drawn.nodes, pods=pods)
    found = BySearch(instance).solve("highs", gap=0.5)
    assert [each[0] for each in found.admitted.values()] == [each[2] for each in found.admitted.values()]
    assert found.certificate is not None and found.certificate.ok
    relaxed = admit(instance, _NoPatterns)
    assert relaxed.admitted[-1] < relaxed.most[-1] and found.admitted[min(found.admitted)][2] < relaxed.most[-1]


class _NoPatterns(PodPlacement):
    limits = SearchLimits(admission=-1, admitted_kinds=0)


def _shares(view: Any) -> list[float]:
    used = (view.cpu.sum(), view.memory.sum())
    return [float(each / whole) for each, whole in zip(used, view.capacity.sum(axis=0)[1:], strict=True)]


def test_prices_of_pods_that_prove_too_little_are_refused() -> None:
    answer = PodPlacement(halves(0)).solve("highs", gap=0.1)
    document = json.loads(json.dumps(answer.to_dict()))
    for leaf in document["proof"]["admission"].values():
        leaf["rows"]["pod"] = {"default": -0.3}
    told = verify(document, halves(0))
    assert told.claim == "feasible" and any(check.how == "quoted" for check in told.checks)
