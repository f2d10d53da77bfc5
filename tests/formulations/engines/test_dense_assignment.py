"""Dense assignments: the optimum of SciPy's own function, proven by potentials; other networks go their way."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from flowlex.formulations import FlowNetwork, solve
from flowlex.validation.certificates import certify_network


@pytest.mark.parametrize("seed", range(4))
def test_optimum_and_potentials(seed):
    rng, size = np.random.default_rng(seed), 110
    node, cost = rng.permutation(2 * size), rng.integers(-50, 50, (size, size))
    there = rng.random((size, size)) < (1 if seed % 2 else 0.9)
    origin, target = np.nonzero(there)
    supply = np.empty(2 * size, np.int64)
    supply[node] = np.repeat([1, -1], size)
    network = FlowNetwork.from_arrays(
        node[origin], node[size + target], upper=1, cost=cost[origin, target], supply=supply
    )
    outcome, certificate = (found := solve(network, "network")), certify_network(network, found)
    rows, columns = linear_sum_assignment(np.where(there, cost, np.inf))
    assert outcome.objective == cost[rows, columns].sum()
    assert certificate.ok and certificate.claim == "optimal"


def test_without_an_answer_the_cut_is_named():
    origin, target = np.divmod(np.arange(110 * 110), 110)
    kept = (origin < 2) <= (target == 0)  # two origins have one target
    network = FlowNetwork.from_arrays(origin[kept], 110 + target[kept], upper=1, cost=1, supply=np.repeat([1, -1], 110))
    outcome = solve(network, "network")
    assert outcome.status == "infeasible" and certify_network(network, outcome).ok
