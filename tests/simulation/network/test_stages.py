"""Jobs of several stages: a transfer whose data a computation makes; simulated, refused by plans."""

from __future__ import annotations

import pytest

from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.jit.model import JitBandwidth
from flowlex.simulation.kernel import SimulationError
from flowlex.simulation.network.just_in_time import JustInTime
from flowlex.simulation.network.policies import Fair, Sebf
from flowlex.simulation.network.simulator import simulate_traffic
from flowlex.simulation.network.state import NetworkPolicy
from flowlex.simulation.network.traffic import Traffic


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


def test_the_policy_refuses_what_is_made_on_the_way() -> None:
    instance = two_stages()
    assert JitBandwidth(instance, share=1.0).solve("highs").certificate
    with pytest.raises(SimulationError, match="plans transfers whose data are there; a computation makes 'j/sorted'"):
        simulate_traffic(Traffic.of(instance), JustInTime())


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
