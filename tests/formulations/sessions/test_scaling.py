"""Incremental cost scaling of the live network: every step equals a solve from scratch, from the last flow."""

from __future__ import annotations

import numpy as np
import pytest

from flowlex.formulations import solve
from flowlex.formulations.engines import cost_scaling
from flowlex.formulations.sessions import scaling
from flowlex.formulations.sessions.network import NetworkSession, NoFlowError, Violations
from flowlex.formulations.sessions.scaling import ScalingSession
from tests.formulations.sessions.test_network import Life, Market

NONE = Violations(0, 0, 0)


@pytest.mark.loops
@pytest.mark.parametrize("seed", range(8))
def test_every_step_equals_a_solve_from_scratch(seed):
    session = ScalingSession(2, 4)
    life = Life(session, seed)
    for _ in range(10):
        for _ in range(int(life.rng.integers(1, 10))):
            life.change()
        session.solve()
        assert session.violations() == NONE
        assert session.objective == solve(session.network(), "network").objective


def test_a_step_goes_on_from_the_last_flow(monkeypatch):
    session, other = ScalingSession(), NetworkSession()
    market, twin = Market(session, 1), Market(other, 1)
    session.solve()
    monkeypatch.setattr(NetworkSession, "_restart", lambda self: pytest.fail("a step started anew"))
    work = []

    def counted(network, budget, before):
        answer = cost_scaling.scale_costs(network, budget, before)
        work.append(before is not None and int(np.abs(network.excess(before[0])).sum()))
        return answer

    monkeypatch.setattr(scaling, "scale_costs", counted)
    for _ in range(5):
        market.cancel()
        market.submit()
        session.solve()
        assert session.violations() == NONE
    assert len(work) == 5 and 0 < max(work) <= 12  # what the events left out of balance, not all tasks
    assert len(twin.tasks) == len(market.tasks)


def test_without_a_flow_the_node_is_named_and_an_outlet_mends_it():
    session = ScalingSession()
    node = session.add_node()
    session.add_supply(node, 2)
    session.add_arc(node, 0, 1, 3)
    with pytest.raises(NoFlowError) as refused:
        session.solve()
    assert refused.value.node == node
    session.add_arc(node, 0, 1, 5)
    session.solve()
    assert session.objective == 8 and session.violations() == NONE
