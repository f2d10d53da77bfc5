"""A user's policy in ten lines, as described in the notes of `flowlex.systems.simulation.network.policy_view`."""

import numpy as np
import pytest

from flowlex.systems.simulation.experiments.coflow_hour import drawn_coflows
from flowlex.systems.simulation.network import SIMULATOR, NetworkState, Rates, simulate_traffic
from flowlex.systems.simulation.network.policies import Fair
from flowlex.systems.simulation.network.run_record import figures
from flowlex.systems.simulation.network.traffic_arrays import Traffic
from flowlex.systems.simulation.policy_registry import Run, make_policy
from flowlex.systems.simulation.scenario import PolicyChoice

pytestmark = pytest.mark.loops


class SmallestTransferFirst:
    """Gives each transfer, least remaining size first, all the remaining rate of its ports."""

    conserving = True

    def decide(self, state: NetworkState) -> Rates:
        left, machines = state.traffic.ports.copy(), len(state.traffic.machines)
        rate = np.zeros(state.traffic.count)
        for f in state.transfers[np.argsort(state.left_mb[state.transfers], kind="stable")]:
            ports = [state.traffic.sender[f], state.traffic.receiver[f] + machines]
            rate[f] = left[ports].min()
            left[ports] -= rate[f]
        return Rates(state.transfers, rate[state.transfers])


class LongestBottleneckFirst:
    conserving = True

    def decide(self, state):
        return state.in_order(state.coflows[np.argsort(-state.bottleneck_s)], "madd")


def test_own_policies_run_beside_the_others():
    instance = drawn_coflows(3, 15)
    mine = SIMULATOR.simulate(instance, SmallestTransferFirst(), Run())
    worst = SIMULATOR.simulate(instance, LongestBottleneckFirst(), Run())
    best = SIMULATOR.simulate(instance, make_policy("network", PolicyChoice(name="sebf")), Run())
    assert figures(best)["mean_cct_s"] <= figures(worst)["mean_cct_s"]
    assert figures(mine)["unfinished"] == 0


def test_a_state_shows_what_is_there():
    seen = []

    class Watching(Fair):
        def decide(self, state):
            seen.append((state.now_s, len(state.transfers), len(state.arrived), float(state.left_mb.sum())))
            return super().decide(state)

    traffic = Traffic.of(drawn_coflows(3, 4))
    simulate_traffic(traffic, Watching())
    assert seen[0][1] == seen[0][2] > 0
    assert sum(arrived for _, _, arrived, _ in seen) == traffic.count
    assert [left for *_, left in seen] == sorted((left for *_, left in seen), reverse=True)
    assert seen[0][3] == traffic.size_mb.sum()
