"""Pod placement: cases by hand, enumeration, the genetic algorithm is never better, and refused inputs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import typeof

from flowlex.formulations.solver_outcome import Status
from flowlex.instances.generators import generate
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.model_base import ModelError
from flowlex.models.pods.baselines import POLICIES, GeneticSettings, genetic
from flowlex.models.pods.baselines import place as place_by_policy
from flowlex.models.pods.methods.search_state import SearchState
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.problem.balance_measures import Measure
from flowlex.models.pods.problem.cluster import Cluster, deviation
from flowlex.validation.certificates import CertificateError
from flowlex.validation.restated.pods.instance_data import PodData
from flowlex.validation.restated.pods.verifier import check_placement
from tests.models.pods.oracles import solved as solved_by_all

MEASURES = ("deviation", "max_load", "mean_absolute")


def node(name: str, cores: float = 8, memory: float = 32, cards: int = 0, gb: float = 0, **more: Any) -> PodNode:
    return PodNode(name=name, cpu_cores=cores, memory_gb=memory, cards=cards, card_gb=gb, **more)


def pod(name: str, cores: float = 1, memory: float = 1, gpu: float = 0, **more: Any) -> Pod:
    return Pod(name=name, cpu_cores=cores, memory_gb=memory, gpu_memory_gb=gpu, **more)


def solved(nodes: list[PodNode], pods: list[Pod], **options: Any) -> Any:
    return PodPlacement(PodInstance(nodes=tuple(nodes), pods=tuple(pods)), **options).solve("highs")


def place(solution: Any) -> dict[str, str]:
    return dict(solution.to_dict()["answer"]["placement"])


def test_more_important_pods_go_first_and_the_rest_wait_in_order() -> None:
    pods = [pod(f"p{k}", cores=4, priority=priority) for k, priority in enumerate([1, 3, 2, 1, 2])]
    solution = solved([node("a", cores=12)], pods)
    assert set(place(solution)) == {"p1", "p2", "p4"}
    assert solution.queue == ("p0", "p3")
    assert solution.admitted == {3: (1, 1, 1), 2: (2, 2, 2), 1: (0, 2, 0)}
    assert solution.reasons()["p0"] == "not enough cores on a"
    # One large pod of the top class precedes two small ones of the next.
    large = solved([node("a", cores=4)], [pod("s", 2), pod("t", 2), pod("l", 4, priority=1)])
    assert place(large) == {"l": "a"}


def test_balance_by_hand() -> None:
    # Cores and memory are proportional: the even split of 4, 3, 3, 2 is 4 + 2 and 3 + 3.
    sizes = {"p": 4, "q": 3, "r": 3, "s": 2}
    solution = solved([node("a"), node("b")], [pod(n, c, 4 * c) for n, c in sizes.items()])
    where = place(solution)
    assert {n for n in sizes if where[n] == where["p"]} == {"p", "s"}
    assert solution.status is Status.OPTIMAL and solution.objective == pytest.approx(0, abs=1e-9)
    assert solution.certificate.ok and solution.loads == pytest.approx([0.75, 0.75])


def test_weights_are_shares_of_the_cluster_normalised() -> None:
    view = PodInstance(nodes=(node("a", 8, 32, 2, 16), node("b", 24, 32))).arrays
    assert view.weight[0] == pytest.approx(np.array([1.0, 0.25, 0.5]) / 1.75)
    assert view.weight[1] == pytest.approx(np.array([0.0, 0.75, 0.5]) / 1.25)


def test_gpu_memory_has_to_fit_a_card() -> None:
    nodes = [node("a", cards=2, gb=10)]
    pods = [pod(f"p{k}", gpu=7) for k in range(2)] + [pod("q", gpu=6)]
    on_cards = solved(nodes, pods)
    assert len(place(on_cards)) == 2 and on_cards.reasons()[on_cards.queue[0]] == "not enough GPU memory on a"
    assert len(place(solved(nodes, pods, cards=False))) == 3
    # 7 and 3 share a card, so that two cards take 7, 3 and 10.
    full = solved(nodes, [pod("x", gpu=3), pod("y", gpu=10), pod("z", gpu=7)])
    assert (
        full.to_dict()["answer"]["cards"]["x"]
        == full.to_dict()["answer"]["cards"]["z"]
        != full.to_dict()["answer"]["cards"]["y"]
    )


def test_several_cards_and_shares_of_cards() -> None:
    nodes = [node("a", cards=2, gb=10), node("b", cards=4, gb=10)]
    pods = [pod("four", gpu=5, gpu_cards=4), pod("three", gpu=5, gpu_cards=3), pod("two", gpu=5, gpu_cards=2)]
    solution = solved(nodes, [*pods, Pod(name="half", gpu_share=0.5)])
    cards = solution.to_dict()["answer"]["cards"]
    assert [len(cards[p.name]) for p in pods] == [4, 3, 2] and len(cards["half"]) == 1
    assert place(solution)["four"] == place(solution)["three"] == "b"


def test_gpu_pods_go_to_gpu_nodes_and_cpu_pods_anywhere() -> None:
    solution = solved([node("cpu"), node("gpu", cards=1, gb=8)], [pod("g", gpu=4), pod("c", 8), pod("d", 7)])
    assert place(solution)["g"] == "gpu" and len(place(solution)) == 3


def test_labels_taints_and_card_models() -> None:
    nodes = [
        node("old", cards=1, gb=16, card_model="T4", labels={"zone": "a"}),
        node("new", cards=1, gb=16, card_model="A10", labels={"zone": "b"}, taints=("only-ml",)),
    ]
    pods = [
        pod("model", gpu=4, card_models=("A10",), tolerations=("only-ml",)),
        pod("zone", node_labels={"zone": "a"}),
        pod("plain"),
        pod("nowhere", node_labels={"zone": "c"}),
        pod("shy", gpu=4, card_models=("A10",)),
    ]
    solution = solved(nodes, pods)
    assert place(solution) == {"model": "new", "zone": "old", "plain": "old"}
    assert "no node has its labels, taints and card model (zone=c)" in solution.reasons()["nowhere"]
    assert "card A10" in solution.reasons()["shy"]


def test_a_pod_larger_than_any_node_waits_with_that_reason() -> None:
    nodes = [node("a", cards=1, gb=8), node("b")]
    solution = solved(nodes, [pod("big", cores=99), pod("card", gpu=9), pod("two", gpu=1, gpu_cards=2)])
    assert solution.reasons() == {
        "big": "it is larger than any node it may use (cores)",
        "card": "it is larger than any node it may use (GPU memory)",
        "two": "it is larger than any node it may use (cards)",
    }
    without = solved([node("b")], [pod("g", gpu=1)])
    assert without.reasons() == {"g": "it wants GPU memory and no node that it may use has a GPU"}


def test_running_pods_stay_or_move_within_the_budget() -> None:
    nodes = [node("a", 8, 8), node("b", 8, 8)]
    running = [pod("fixed", 4, 4, node="a"), pod("mobile", 4, 4, node="a", move_cost=2.0)]
    stays = solved(nodes, running)
    assert place(stays) == {"fixed": "a", "mobile": "a"}
    moves = solved(nodes, running, move_budget=2.0)
    assert place(moves) == {"fixed": "a", "mobile": "b"} and moves.objective == pytest.approx(0)
    assert moves.to_frame().loc["mobile", "moved_from"] == "a"
    assert place(solved(nodes, running, move_budget=1.9))["mobile"] == "a"
    # A move makes one more pod fit.
    room = [*running, pod("new", 8, 8)]
    assert "new" in place(solved(nodes, [*running[:1], pod("new", 8, 8)]))
    assert "new" not in place(solved(nodes, [pod("x", 1, 1, node="b", move_cost=1.0), *room[:1], room[2]]))
    eased = solved(nodes, [pod("x", 1, 1, node="b", move_cost=1.0), *room[:1], room[2]], move_budget=1.0)
    assert place(eased) == {"x": "a", "fixed": "a", "new": "b"}


some_pods = st.lists(
    st.builds(
        lambda cores, memory, gpu, cards, priority: (cores, memory, gpu, cards if gpu else 1, priority),
        st.integers(0, 6),
        st.integers(0, 16),
        st.sampled_from([0, 0, 3, 5, 8]),
        st.integers(1, 2),
        st.integers(0, 1),
    ),
    max_size=5,
)


def small(pods: list[tuple[int, int, int, int, int]], second: bool) -> PodInstance:
    return PodInstance(
        nodes=(node("a", 8, 24, 2, 8), node("b", 10, 20), *[node("c", 8, 24, 2, 8)] * second),
        pods=tuple(
            pod(f"p{k}", cores, memory, gpu, gpu_cards=cards, priority=priority)
            for k, (cores, memory, gpu, cards, priority) in enumerate(pods)
        ),
    )


@settings(max_examples=12, deadline=None)
@given(some_pods, st.booleans(), st.sampled_from(MEASURES))
def test_the_optimum_is_that_of_trying_all(pods: Any, second: bool, measure: Any) -> None:
    assert solved_by_all(small(pods, second), balance=measure).status is Status.OPTIMAL


@pytest.mark.parametrize("measure", MEASURES)
def test_the_testbed_is_proven_and_engines_agree(measure: Any) -> None:
    instance: Any = generate("kubeflow-testbed", seed=2)
    solution, reference = (PodPlacement(instance, balance=measure).solve(engine) for engine in ("pulp", "highs"))
    assert solution.status is Status.OPTIMAL and solution.queue
    assert solution.objective == pytest.approx(reference.objective, abs=2e-6)
    assert solution.bound <= solution.objective


def test_the_genetic_algorithm_never_beats_the_proven_optimum() -> None:
    for seed in range(2):
        instance: Any = generate("kubeflow-testbed", seed=seed)
        solution = PodPlacement(instance).solve("highs")
        assert solution.status is Status.OPTIMAL
        evolution = genetic(
            instance, solution.node >= 0, seed=seed, settings=GeneticSettings(population=20, generations=15)
        )
        assert evolution.deviation >= solution.objective - 1e-6
        assert (np.diff(evolution.curve) <= 0).all()  # the better half stays
        for policy in POLICIES:
            cluster = place_by_policy(instance, policy)
            admitted = [
                int(((cluster.node >= 0) & (instance.arrays.priority == priority)).sum())
                for priority in solution.admitted
            ]
            assert tuple(admitted) <= tuple(found for found, _, _ in solution.admitted.values())


def test_the_genetic_algorithm_is_seeded() -> None:
    instance: Any = generate("kubeflow-testbed", seed=1)
    quick = GeneticSettings(population=10, generations=5)
    one, same = (genetic(instance, seed=3, settings=quick) for _ in range(2))
    assert (one.curve == same.curve).all() and one.tried == same.tried
    impossible = PodInstance(nodes=(node("a"),), pods=(pod("g", gpu=1),))
    assert genetic(impossible, np.array([True]), settings=quick).cluster is None


def test_a_gap_is_kept_and_a_limit_is_told() -> None:
    instance: Any = generate("pods-scale", nodes=20, pods=100, seed=1, running=0.3)
    solution = PodPlacement(instance).solve("highs", gap=0.01)
    assert solution.gap is not None and solution.gap <= 0.01
    hurried = PodPlacement(instance).solve("highs", max_steps=5)
    assert hurried.status is Status.FEASIBLE and "proven to within" in hurried.message
    assert hurried.bound <= hurried.objective and hurried.certificate is not None


@pytest.mark.parametrize(
    ("pods", "options", "message"),
    [
        ([], {"balance": "even"}, "balance='even'\\): must be 'deviation'"),
        ([], {"move_budget": -1}, "move_budget must be at least 0"),
        ([pod("p", 9, node="a")], {}, "node 'a': running pods use 9 cores, it has 8"),
        ([pod("p", gpu=1, node="a")], {}, "pod 'p' runs on 'a', which its labels, taints or GPU exclude"),
    ],
)
def test_what_a_model_refuses(pods: list[Pod], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        PodPlacement(PodInstance(nodes=(node("a"),), pods=tuple(pods)), **options)


def test_running_pods_that_do_not_pack_are_infeasible() -> None:
    pods = [pod(f"p{k}", gpu=6, node="a") for k in range(3)]
    solution = solved([node("a", cards=2, gb=10)], pods)
    assert solution.status is Status.INFEASIBLE
    with pytest.raises(ModelError, match="there is no answer"):
        solution.to_frame()


def test_no_pods_is_an_answer() -> None:
    solution = solved([node("a"), node("b")], [])
    assert solution.status is Status.OPTIMAL and solution.objective == 0 and solution.queue == ()


def test_a_wrong_answer_fails_its_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Measure, "value", lambda measure, loads: 0.0)
    with pytest.raises(CertificateError, match="balance recomputed"):
        solved([node("a", 8, 32), node("b", 9, 40)], [pod("p", 3)])


@pytest.mark.parametrize(
    ("where", "cards", "failed"),
    [
        ([0, 0, -1, -1], {1: [0]}, "cpu[a] is off"),
        ([1, -1, -1, -1], {}, "p0' may not run on 'b'"),
        ([0, 0, 0, -1], {1: [0], 2: [0]}, "card[a,0] is off"),
        ([-1, 0, -1, -1], {1: [5]}, "'p1' cannot use the cards 5"),
        ([-1, 0, -1, -1], {}, "card_link[p1,a] is off"),
        ([-1, 1, -1, -1], {1: [0]}, "'p1' may not run on 'b'"),
        ([-1, -1, -1, 0], {}, "'p3' may not run on 'a'"),
        ([-1, -1, -1, -1], {}, "running[p3] is off"),
    ],
)
def test_the_certificate_finds_every_fault(where: list[int], cards: dict[int, list[int]], failed: str) -> None:
    pods = (
        pod("p0", 6, 40),
        pod("p1", 4, gpu=6),
        pod("p2", gpu=6),
        pod("p3", node_labels={"zone": "x"}) if "running" not in failed else pod("p3", node="a"),
    )
    instance = PodInstance(nodes=(node("a", 8, 64, 2, 8), node("b")), pods=pods)
    placed = {p: (n, cards.get(p, ())) for p, n in enumerate(where) if n >= 0}
    details = [check.detail for check in check_placement(PodData(instance, {}), placed) if not check.ok]
    assert any(failed in detail for detail in details), details


@pytest.mark.parametrize("measure", MEASURES)
def test_the_exported_stages_have_the_optima_that_the_solution_states(measure: Any) -> None:
    from flowlex.formulations.engines import solve

    instance: Any = generate("kubeflow-testbed", seed=1, pods=9)
    solution = PodPlacement(instance, balance=measure).solve("highs")
    assert solution.status is Status.OPTIMAL
    for stage in ("admission", "balance"):
        program = PodPlacement(instance, balance=measure, stage=stage).formulation
        assert program.name.endswith(stage)
        optimum = solve(program, "highs").objective
        if (stage, measure) == ("balance", "deviation"):  # the variance, in squared percent
            assert optimum == pytest.approx((100 * solution.objective) ** 2, rel=1e-3)
        else:
            assert optimum == pytest.approx(solution.stages[stage], abs=2e-6)


def test_table_frames_picture_and_latex() -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    instance: Any = generate("kubeflow-testbed", seed=0)
    solution = PodPlacement(instance).solve("highs")
    assert solution.node_frame()["load"].std(ddof=0) == pytest.approx(deviation(solution.loads))
    assert solution.to_frame()["queue"].notna().sum() == len(solution.queue)
    assert "sigma" in solution.plot().get_title()
    assert (
        r"\text{card:} &\quad \sum_{p} \mathrm{N}^G_{p,n} \, y_{p,n,c} \le g_{n}" in PodPlacement(instance).to_latex()
    )
    program = PodPlacement(instance).formulation
    assert {"pod", "cpu", "memory", "card", "card_link"} <= set(program.constraint_blocks)


def test_the_search_has_one_type_with_and_without_cards() -> None:
    """Otherwise the loops are compiled twice, half a minute each, even after `flowlex warm-up`."""
    instance: Any = generate("kubeflow-testbed", seed=1, pods=4)
    kinds = []
    for cards in (True, False):
        start = Cluster.of(instance.arrays, np.full(4, -1), {}, cards=cards)
        kinds.append(typeof(SearchState.of(start)))
    assert kinds[0] == kinds[1]
