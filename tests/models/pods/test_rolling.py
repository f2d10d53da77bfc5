"""The rolling horizon: strict priorities, fixed or movable earlier windows, and honesty about what is proven."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flowlex.formulations.outcome import SolveOptions, Status
from flowlex.instances.generators import generate
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.base import ModelError
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.rolling import place_rolling

NODES = tuple(PodNode(name=n, cpu_cores=8, memory_gb=8) for n in "ab")


def pods(*cores: int, priorities: tuple[int, ...] = ()) -> tuple[Pod, ...]:
    wanted = priorities or (0,) * len(cores)
    return tuple(
        Pod(name=f"p{k}", cpu_cores=c, memory_gb=c, priority=p)
        for k, (c, p) in enumerate(zip(cores, wanted, strict=True))
    )


def test_a_less_important_pod_never_displaces_a_window_before() -> None:
    instance = PodInstance(nodes=NODES, pods=pods(8, 3, 3, 8, priorities=(1, 3, 2, 2)))
    rolled = place_rolling(instance, window=1)
    # p1 and p2 take a node each, so that neither p3 nor p0 finds room; together p1 and p2 would leave it one.
    assert (rolled.node >= 0).tolist() == [False, True, True, False]
    assert rolled.admitted[3] == (1, 1, 1) and rolled.admitted[1][0] == 0
    assert [window.pods for window in rolled.windows] == [1, 1, 1, 1]
    assert rolled.certificate.ok and rolled.bound <= rolled.balance


def test_windows_admit_no_more_than_the_bound_and_one_window_is_the_program() -> None:
    instance: Any = generate("kubeflow-testbed", seed=2)
    options = SolveOptions(gap=0.05, time_limit_s=20)
    rolled = place_rolling(instance, window=5, options=options)
    whole = PodPlacement(instance).solve("highs", gap=0.05)
    priorities = sorted(rolled.admitted, reverse=True)
    assert [rolled.admitted[k][0] for k in priorities] <= [whole.admitted[k][0] for k in priorities]
    for found, wanted, most in rolled.admitted.values():
        assert found <= most <= wanted
    one = place_rolling(instance, window=1000, options=options)
    assert {k: v[0] for k, v in one.admitted.items()} == {k: v[0] for k, v in whole.admitted.items()}
    assert len(one.windows) == 1 and len(rolled.windows) == 3
    assert len(rolled.to_frame()) == 3


def test_what_may_move_evens_out_later() -> None:
    # 4, then 2 and 2 beside it, then 3: with fixed windows 3 lands on top; a move brings 5 and 6.
    instance = PodInstance(nodes=NODES, pods=pods(2, 2, 4, priorities=(3, 3, 1)))
    fixed = place_rolling(instance, window=2)
    movable = place_rolling(instance, window=2, movable=1)
    assert fixed.balance == pytest.approx(0.25) and movable.balance == pytest.approx(0.0, abs=1e-9)
    assert movable.certificate.ok


def test_running_pods_stay_throughout() -> None:
    instance: Any = generate("pods-scale", nodes=6, pods=40, seed=3, running=0.4)
    rolled = place_rolling(instance, window=8, movable=3)
    running = instance.arrays.running
    assert (rolled.node[running >= 0] == running[running >= 0]).all()


def test_as_an_option_of_the_model() -> None:
    instance: Any = generate("pods-scale", nodes=4, pods=24, seed=1)
    solution = PodPlacement(instance, window=9).solve("highs", gap=0.05)
    assert solution.status is Status.FEASIBLE and "rolling horizon, 3 windows: a heuristic" in solution.message
    assert solution.bound <= solution.objective and solution.certificate.ok
    same = PodPlacement(instance, window=9).solve("highs", gap=0.05)
    assert np.array_equal(solution.node, same.node)
    assert "rolling" not in PodPlacement(instance, window=24).solve("highs", gap=0.05).message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": -1}, "window and window_moves must be at least 0"),
        ({"window": 2, "move_budget": 1.0}, "window goes without move_budget"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        PodPlacement(PodInstance(nodes=NODES), **options)
    with pytest.raises(ModelError, match="window must be at least 1"):
        place_rolling(PodInstance(nodes=NODES), window=0)
