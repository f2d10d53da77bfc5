"""Random small networks under every policy: properties of all policies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.instances.generators.jit import jit_random
from flowlex.instances.jit import BackgroundCopy
from flowlex.systems.simulation.network import SIMULATOR
from flowlex.systems.simulation.network.simulator import simulate_traffic
from flowlex.systems.simulation.network.traffic_arrays import Traffic
from flowlex.systems.simulation.policy_registry import PolicyChoice, Run, make_policy, policies


@st.composite
def instances(draw):
    made = jit_random(
        seed=draw(st.integers(0, 10_000)),
        machines=draw(st.integers(2, 4)),
        jobs=draw(st.integers(1, 4)),
        transfers=draw(st.integers(0, 4)),
        deadlines=draw(st.booleans()),
    )
    arrivals = draw(st.lists(st.integers(0, 5), min_size=len(made.jobs), max_size=len(made.jobs)))
    jobs = [job.model_copy(update={"arrival_s": float(a)}) for job, a in zip(made.jobs, arrivals, strict=True)]
    copies = [
        BackgroundCopy(name=f"copy{k}", size_mb=float(mb), sender="m0", receiver="m1", arrival_s=float(k))
        for k, mb in enumerate(draw(st.lists(st.integers(1, 30), max_size=2)))
    ]
    return made.model_copy(update={"jobs": tuple(jobs), "copies": tuple(copies)})


CHOICES = [
    *(PolicyChoice(name=name) for name in policies("network")),
    PolicyChoice(name="tictac", parameters={"rule": "tic", "between": "fair"}),
    PolicyChoice(name="jit", parameters={"share": 1.0, "known": "all"}),
]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: f"{choice.name} {list(choice.parameters.values())}")
@settings(max_examples=12)
@given(instances())
def test_what_holds_under_every_policy(choice, instance):
    traffic = Traffic.of(instance)
    run = simulate_traffic(traffic, make_policy("network", choice))
    tiny = 1e-6
    # Every byte is sent once, from its sender to its receiver; and no port carries more than it can.
    machines = len(traffic.machines)
    sent = run.sent_mb.sum(axis=(0, 1))
    for port, side in ((traffic.sender, sent[:machines]), (traffic.receiver, sent[machines:])):
        assert np.bincount(port, weights=traffic.size_mb, minlength=machines) == pytest.approx(side, abs=1e-4)
    assert (run.sent_mb.sum(axis=1) <= traffic.ports * run.bin_s * (1 + tiny) + tiny).all()
    # Nothing before it is ready, nothing faster than its ports, no computation before its data or its predecessors.
    assert (run.begin_s >= traffic.ready_s - tiny).all()
    rate = np.minimum(traffic.out_rate[traffic.sender], traffic.in_rate[traffic.receiver])
    assert (run.end_s - run.begin_s >= traffic.size_mb / rate - tiny).all()
    fed = traffic.feeds >= 0
    assert (run.start_s[traffic.feeds[fed]] >= run.end_s[fed] - tiny).all()
    assert (run.start_s[traffic.head] >= run.done_s[traffic.tail] - tiny).all()
    assert run.done_s - run.start_s == pytest.approx(traffic.seconds)
    assert not np.isnan(run.done_s).any()


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: f"{choice.name} {list(choice.parameters.values())}")
@settings(max_examples=2)
@given(instances(), st.integers(0, 9))
def test_the_same_seed_gives_the_same_log(choice, instance, seed):
    logs = [SIMULATOR.simulate(instance, make_policy("network", choice), Run(seed=seed)) for _ in range(2)]
    assert list(logs[0].lines()) == list(logs[1].lines())
