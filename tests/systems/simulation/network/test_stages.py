"""Jobs of several stages: transfers of computed data (`made_by`), simulated and planned."""

import numpy as np
import pytest

from flowlex.instances.generators.jit import jit_cluster
from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.systems.simulation.network.just_in_time import JustInTime
from flowlex.systems.simulation.network.policies import Fair, Sebf
from flowlex.systems.simulation.network.policy_view import NetworkPolicy
from flowlex.systems.simulation.network.simulator import simulate_traffic
from flowlex.systems.simulation.network.traffic_arrays import Traffic


def two_stages(**change: object) -> JitInstance:
    """split: 1 s; map: 2 s; sorted: 250 MB, 2 s; reduce: 1 s."""
    machines = tuple(Machine(name=name, out_mbps=1000, in_mbps=1000) for name in "ab")
    split = Transfer(name="split", size_mb=125, sender="a", receiver="b", feeds="map")
    second = {"name": "sorted", "size_mb": 250, "sender": "b", "receiver": "a", "feeds": "reduce", "made_by": "map"}
    steps = (Computation(name="map", seconds=2), Computation(name="reduce", seconds=1))
    job = Job(name="j", computations=steps, transfers=(split, Transfer(**{**second, **change})))
    return JitInstance(machines=machines, jobs=(job,))


@pytest.mark.parametrize("policy", [Fair, Sebf])
def test_the_second_stage_begins_when_the_first_is_done(policy: type[NetworkPolicy]) -> None:
    run = simulate_traffic(Traffic.of(two_stages()), policy())
    assert run.begin_s.tolist() == pytest.approx([0.0, 3.0])
    assert run.end_s.tolist() == pytest.approx([1.0, 5.0])
    assert run.done_s.tolist() == pytest.approx([3.0, 6.0])


@pytest.mark.parametrize("known", ["submitted", "all"])
def test_a_plan_sends_the_second_stage_when_it_is_made_and_due(known: str) -> None:
    # split may use the second that it needs; sorted is made at 3 s and due at 5 s.
    policy = JustInTime(share=1.0, known=known)
    run = simulate_traffic(Traffic.of(two_stages()), policy)
    assert run.begin_s.tolist() == pytest.approx([0.0, 3.0])
    assert run.end_s.tolist() == pytest.approx([1.0, 5.0])
    assert policy.planned_mb == pytest.approx(375.0)


def test_gradients_are_planned_and_what_comes_later_than_planned_is_planned_again() -> None:
    instance = jit_cluster(
        seed=3, machines=4, jobs=5, mix="LeNet,AlexNet", copies=6, phase="exchange", placement="worker", computing=0.5
    )
    assert [t.made_by is None for t in instance.jobs[0].transfers].count(False) == len(instance.jobs[0].transfers) / 2
    policy = JustInTime(share=1.0)
    run = simulate_traffic(Traffic.of(instance), policy)
    assert np.isfinite(run.end_s).all() and np.isfinite(run.done_s).all() and policy.refused == 0
    assert policy.planned_mb >= sum(t.size_mb for job in instance.jobs for t in job.transfers)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"made_by": "shuffle"}, "is made by computation 'shuffle', which does not exist"),
        ({"made_by": "reduce"}, "cycle"),
        ({"feeds": "map"}, "cycle"),
    ],
)
def test_stages_that_cannot_be_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        two_stages(**change)
