"""Cards that running pods use, gangs that may not be stopped, and overloaded admission; oracles share no code."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from flowlex.formulations.solver_outcome import SolveOptions, Status
from flowlex.instances.group_rules import PodGang, PodSpread
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.model_base import ModelError
from flowlex.models.pods.model import PodPlacement
from tests.models.pods.oracles import failing, solved

TWO_CARDS = (PodNode(name="n", cpu_cores=8, memory_gb=8, cards=2, card_gb=16),)


def two_halves(*cards: tuple[int, ...] | None, **more: Any) -> PodInstance:
    """Two running pods of half a card each, and a waiting one that needs a complete card."""
    running = [Pod(name=f"r{k}", gpu_memory_gb=8, node="n", node_cards=on, **more) for k, on in enumerate(cards)]
    return PodInstance(nodes=TWO_CARDS, pods=(*running, Pod(name="big", gpu_memory_gb=16, priority=5)))


@pytest.mark.parametrize(
    ("cards", "placed"), [(((0,), (1,)), False), (((1,), (1,)), True), ((None, None), True), (((0,), None), True)]
)
@pytest.mark.parametrize("balance", ["deviation", "max_load"])
def test_running_pods_keep_the_cards_that_are_known(cards: Any, placed: bool, balance: Any) -> None:
    found = PodPlacement(two_halves(*cards), balance=balance).solve("highs")
    assert (found.node[2] == 0) == placed
    assert found.status is Status.OPTIMAL and found.certificate is not None and found.certificate.claim == "optimal"
    assert ("repacked" in found.message) == (None in cards)
    assert ("repacked" in str(found.certificate)) == (None in cards)
    for name, on in zip(("r0", "r1"), cards, strict=True):
        assert on is None or found.to_dict()["answer"]["cards"][name] == list(on)


def test_stopping_one_of_two_frees_its_card_only() -> None:
    found = PodPlacement(two_halves((0,), (1,), preempt_cost=1.0)).solve("highs")
    answer = found.to_dict()["answer"]
    assert len(answer["placement"]) == 2 and "big" in answer["placement"]
    (kept,) = {"r0", "r1"} & set(answer["placement"])
    assert answer["cards"][kept] == [int(kept[1])]


def test_a_pod_that_moves_may_use_any_card_of_its_new_node() -> None:
    nodes = (*TWO_CARDS, PodNode(name="m", cpu_cores=8, memory_gb=8, cards=1, card_gb=8))
    pods = two_halves((0,), (1,), move_cost=1.0).pods
    found = PodPlacement(PodInstance(nodes=nodes, pods=pods), move_budget=1.0).solve("highs")
    assert found.to_dict()["answer"]["placement"]["big"] == "n" and found.moved_cost == 1.0


def test_wrong_cards_are_refused() -> None:
    with pytest.raises(ValidationError, match="expected 1 different cards"):
        two_halves((0, 1), (1,))
    with pytest.raises(ValidationError, match="counted from 0"):
        two_halves((2,), (1,))
    crowded = [Pod(name=f"r{k}", gpu_memory_gb=12, node="n", node_cards=(0,)) for k in range(2)]
    with pytest.raises(ModelError, match="'r1' use more GB than card 0 has"):
        PodPlacement(PodInstance(nodes=TWO_CARDS, pods=tuple(crowded)))


@pytest.mark.parametrize(
    ("name", "cards", "check"),
    [
        ("r0", [0], "'r0' cannot use the cards 0"),
        ("r1", [0], "'r1' cannot use the cards 0"),
        ("r0", [], "card_link[r0,n] is off"),
        ("big", [1], "card[n,1] is off"),
    ],
)
def test_seeded_faults_of_cards_are_refused(name: str, cards: list[int], check: str) -> None:
    assert check in failing(two_halves((1,), (1,)), lambda answer: answer["cards"].update({name: cards}))


def test_a_gang_of_which_one_may_not_be_stopped_goes_on() -> None:
    nodes = tuple(PodNode(name=name, cpu_cores=4, memory_gb=8) for name in "ab")
    gang = [Pod(name="x", cpu_cores=3, node="a", gang="g"), Pod(name="y", cpu_cores=3, node="b", gang="g")]
    gang[1] = gang[1].model_copy(update={"preempt_cost": 1.0})
    urgent = Pod(name="z", cpu_cores=4, priority=9)
    found = PodPlacement(PodInstance(nodes=nodes, gangs=(PodGang(name="g"),), pods=(*gang, urgent))).solve("highs")
    assert found.node.tolist() == [0, 1, -1] and found.status is Status.OPTIMAL


def tiny(seed: int) -> PodInstance:
    """Two or three nodes, up to seven pods: gangs, a spread, running, preemptible and movable pods, known cards."""
    rng = np.random.default_rng(seed)
    nodes = tuple(
        PodNode(name=f"n{k}", cpu_cores=int(rng.integers(4, 9)), memory_gb=8, cards=2, card_gb=8)
        for k in range(int(rng.integers(2, 4)))
    )
    free = [[float(node.cpu_cores), 8.0, [8.0, 8.0]] for node in nodes]
    gang_runs, pods = bool(rng.random() < 0.5), []
    for p in range(int(rng.integers(4, 8))):
        cores, gb = int(rng.integers(1, 5)), int(rng.choice([0, 0, 4, 5, 8]))
        gang, spreads = ("g" if rng.random() < 0.4 else None), (("s",) if rng.random() < 0.3 else ())
        fields: dict[str, Any] = {}
        if rng.random() < 0.5 if gang is None else gang_runs:
            n, card = int(rng.integers(len(nodes))), int(rng.integers(2))
            left: Any = free[n]
            if left[0] < cores or left[2][card] < gb:
                gang = None
            else:
                left[0] -= cores
                left[2][card] -= gb
                fields["node"] = f"n{n}"
                fields["node_cards"] = (card,) if gb else None
                if rng.random() < 0.6:
                    fields["preempt_cost"] = float(rng.integers(1, 4))
        elif gang is not None and gang_runs:
            gang = None
        fields |= {"priority": int(rng.integers(3)), "gang": gang, "spreads": spreads}
        pods.append(Pod(name=f"p{p}", cpu_cores=cores, gpu_memory_gb=gb, **fields))
    rules = {"gangs": (PodGang(name="g"),), "spreads": (PodSpread(name="s", over="node", most=1),)}
    return PodInstance(name=f"tiny-{seed}", nodes=nodes, pods=tuple(pods), **rules)


def admitted_by_milp(instance: PodInstance) -> list[float]:
    """Return the admitted number of each level, most important first, by integer programs over pods and cards."""
    pods, nodes = instance.pods, instance.nodes
    cards = [2 if pod.wants_gpu else 1 for pod in pods]
    columns = [(p, n, c) for p in range(len(pods)) for n in range(len(nodes)) for c in range(cards[p])]
    alone = [pod.node is not None and pod.preempt_cost is None for pod in pods]
    bound = any(m and pod.gang is not None for m, pod in zip(alone, pods, strict=True))
    must = [m or (bound and pod.gang is not None) for m, pod in zip(alone, pods, strict=True)]
    upper = np.ones(len(columns))
    for k, (p, n, c) in enumerate(columns):
        if pods[p].node is not None and (pods[p].node != nodes[n].name or (pods[p].node_cards or (c,))[0] != c):
            upper[k] = 0
    rows: list[tuple[dict[int, float], float, float]] = []

    def row(coefficients: dict[int, float], low: float, high: float) -> None:
        rows.append((coefficients, low, high))

    of = {p: [k for k, column in enumerate(columns) if column[0] == p] for p in range(len(pods))}
    for p in of:
        row(dict.fromkeys(of[p], 1.0), float(must[p]), 1.0)
    for n, node in enumerate(nodes):
        here = [k for k, column in enumerate(columns) if column[1] == n]
        row({k: pods[columns[k][0]].cpu_cores for k in here}, 0, node.cpu_cores)
        for c in range(2):
            row({k: pods[columns[k][0]].gpu_memory_gb for k in here if columns[k][2] == c}, 0, 8)
        spread = [k for k in here if pods[columns[k][0]].spreads]
        ran = sum(pod.node == node.name for pod in pods if pod.spreads)
        row(dict.fromkeys(spread, 1.0), 0, max(1, ran))
    gang = [p for p, pod in enumerate(pods) if pod.gang]
    for p in gang[1:]:
        row(dict.fromkeys(of[gang[0]], 1.0) | dict.fromkeys(of[p], -1.0), 0, 0)
    levels: dict[tuple[int, int], dict[int, float]] = {}
    for p, pod in enumerate(pods):
        if not must[p]:
            worth = pod.preempt_cost or 1.0
            levels.setdefault((-pod.priority, int(pod.node is None)), {}).update(dict.fromkeys(of[p], worth))
    found = []
    for _, level in sorted(levels.items()):
        matrix = lil_array((len(rows), len(columns)))
        for r, (coefficients, _, _) in enumerate(rows):
            for k, value in coefficients.items():
                matrix[r, k] = value
        sides = LinearConstraint(matrix.tocsr(), [low for _, low, _ in rows], [high for _, _, high in rows])
        cost = np.array([-level.get(k, 0.0) for k in range(len(columns))])
        answer = milp(cost, constraints=sides, bounds=Bounds(0, upper), integrality=1)
        found.append(round(-answer.fun, 6))
        row(level, found[-1] - 1e-6, found[-1] + 1e-6)
    return found


def agrees(seed: int) -> None:
    instance = tiny(seed)
    solution = PodPlacement(instance).solve("highs")
    assert solution.certificate is not None and solution.certificate.ok
    assert (solution.status is Status.OPTIMAL) == (solution.certificate.claim == "optimal"), instance.name
    assert [float(n) for n, _, _ in solution.admitted.values()] == pytest.approx(admitted_by_milp(instance)), seed


@pytest.mark.parametrize("block", range(4))
def test_admission_of_tiny_instances_is_that_of_an_integer_program(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        agrees(seed)


def test_a_pod_that_may_be_stopped_is_not_moved_to_where_an_equal_pod_fits() -> None:
    """Scores remembered for a waiting pod of the same size say nothing of one that runs (found as ``tiny-150``)."""
    nodes = tuple(PodNode(name=f"n{k}", cpu_cores=8, memory_gb=8, cards=1, card_gb=8) for k in range(3))
    waiting = tuple(Pod(name=f"p{k}", cpu_cores=1, gpu_memory_gb=6, priority=2) for k in range(2))
    runs = Pod(name="r", cpu_cores=1, gpu_memory_gb=6, priority=1, node="n2", preempt_cost=1.0)
    solution = solved(PodInstance(nodes=nodes, pods=(*waiting, runs)))
    assert solution.node[2] == 2 and sorted(solution.node[:2].tolist()) == [0, 1]
    agrees(150)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_admission_of_many_tiny_instances(block: int) -> None:
    for seed in range(100 + 20 * block, 120 + 20 * block):
        agrees(seed)


def overloaded(seed: int, nodes: int, pods: int, load: float) -> PodInstance:
    """A cluster of mixed nodes with pods of lognormal sizes whose requests are ``load`` times its capacity."""
    rng = np.random.default_rng([seed, nodes, pods])
    shapes = ((32, 128, 0, 0), (96, 768, 8, 24), (48, 192, 4, 16), (64, 384, 4, 32))
    chosen = [shapes[2], *(shapes[int(k)] for k in rng.integers(len(shapes), size=nodes - 1))]
    machines = tuple(
        PodNode(name=f"n{k}", cpu_cores=c, memory_gb=m, cards=cards, card_gb=gb)
        for k, (c, m, cards, gb) in enumerate(chosen)
    )
    sizes = rng.lognormal(0, 0.8, (3, pods)) * [[1.0], [1.0], [1.0]]
    sizes[2] *= rng.random(pods) < 0.5
    totals = [sum(s[0] for s in chosen), sum(s[1] for s in chosen), sum(s[2] * s[3] for s in chosen)]
    sizes *= (load * np.array(totals) / sizes.sum(axis=1))[:, None]
    asked = np.round(np.minimum(sizes, [[32.0], [128.0], [16.0]]), 2)
    return PodInstance(
        nodes=machines,
        pods=tuple(
            Pod(name=f"p{p}", cpu_cores=c, memory_gb=m, gpu_memory_gb=g, priority=int(rng.integers(3)))
            for p, (c, m, g) in enumerate(asked.T.tolist())
        ),
    )


@pytest.mark.parametrize("seed", range(3))
def test_small_overloaded_admission_is_proven(seed: int) -> None:
    found = PodPlacement(overloaded(seed, 6, 26, 1.3))._admit("highs", SolveOptions())
    assert found.proven


@pytest.mark.slow
@pytest.mark.parametrize("load", [1.1, 1.3, 1.6, 2.0])
@pytest.mark.parametrize("size", [(8, 40), (10, 50), (12, 60)])
def test_overloaded_admission_is_proven_but_for_a_pod_of_the_last_class(load: float, size: tuple[int, int]) -> None:
    for seed in range(5):
        found = PodPlacement(overloaded(seed, *size, load))._admit("highs", SolveOptions())
        assert found.admitted[:-1] == found.most[:-1]
        assert 0 <= found.most[-1] - found.admitted[-1] <= 1
