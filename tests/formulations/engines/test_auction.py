"""Tasks with a few places each: the auction against the network simplex, with prices that prove it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations import FlowNetwork, solve
from flowlex.formulations.engines import auction
from flowlex.formulations.engines import network as engine
from flowlex.formulations.engines.auction import solve_by_auction
from flowlex.instances import generate
from flowlex.validation.certificates import certify_network


def market(rng: np.random.Generator, largest: int, waits: float) -> FlowNetwork:
    """Random tasks, places and slots, parallel arcs and places without a slot among them; nodes in any order."""
    tasks, places = int(rng.integers(1, 9)), int(rng.integers(1, 6))
    name = rng.permutation(tasks + places + 1)
    sink, arcs = tasks + places, []
    for task in range(tasks):
        ends = (tasks + rng.integers(0, places, int(rng.integers(1, 5)))).tolist()
        ends += [sink] * int(rng.random() < waits)
        arcs += [(task, end, int(rng.integers(1, 3)), int(rng.integers(-largest, largest + 1))) for end in ends]
    for place in range(tasks, sink):
        for _ in range(int(rng.integers(0, 4))):
            arcs.append((place, sink, int(rng.integers(0, 3)), int(rng.integers(-largest, largest + 1))))
    tail, head, upper, cost = np.array([arcs[k] for k in rng.permutation(len(arcs))]).T
    supply = np.zeros(sink + 1, np.int64)
    supply[name[:tasks]], supply[name[sink]] = 1, -tasks
    return FlowNetwork.from_arrays(name[tail], name[head], upper=upper, cost=cost, supply=supply)


@pytest.mark.loops
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 2, 50, 10**9]), st.sampled_from([0.6, 1.0]))
def test_every_answer_is_that_of_the_simplex_and_proven(seed: int, largest: int, waits: float) -> None:
    network = market(np.random.default_rng(seed), largest, waits)
    expected = engine._solve(network)
    answer = solve_by_auction(network)
    if expected.objective is None:
        assert answer is None
        return
    if answer is None:  # only where slots are far too many for the places
        slots = network.upper[~np.isin(network.tail, np.flatnonzero(network.supply > 0))].sum()
        assert not slots or slots > auction._MEAN_SLOTS * (network.node_count - 1 - (network.supply > 0).sum())
        return
    flow, potentials = answer
    assert network.is_flow(flow) and network.total_cost(flow) == expected.objective
    reduced = network.reduced_costs(potentials)
    assert (reduced[flow < network.upper] >= 0).all() and (reduced[flow > 0] <= 0).all()


def test_most_random_markets_are_answered() -> None:
    answers = [solve_by_auction(market(np.random.default_rng(seed), 20, 1.0)) for seed in range(60)]
    assert sum(answer is not None for answer in answers) > 45


def test_large_markets_go_there_full_and_with_slots_to_spare() -> None:
    for tasks, slots in ((6000, 2), (6000, 4)):
        instance = generate("network-assignment", machines=3000, tasks=tasks, slots=slots, choices=8)
        arrays = instance.arrays
        columns = {n: getattr(arrays, n) for n in ("tail", "head", "lower", "upper", "cost", "supply")}
        network = FlowNetwork.from_arrays(**columns)
        outcome = solve(network, "network")
        assert outcome.algorithm == "auction" and certify_network(network, outcome).claim == "optimal"
        simplex = engine.NormalForm.of(network)
        graph = simplex.graph()
        graph.solve()
        assert outcome.objective == network.total_cost(simplex.flows(graph.result()))


def test_a_long_auction_is_left_to_the_network_simplex(monkeypatch: pytest.MonkeyPatch) -> None:
    network = market(np.random.default_rng(3), 50, 1.0)
    assert solve_by_auction(network) is not None
    monkeypatch.setattr(auction, "_PATIENCE", 0)
    assert solve_by_auction(network) is None


def test_other_networks_are_none() -> None:
    good = market(np.random.default_rng(3), 50, 1.0)
    columns = {name: getattr(good, name).copy() for name in ("tail", "head", "lower", "upper", "cost", "supply")}
    task, sink = int(np.argmax(columns["supply"])), int(np.argmin(columns["supply"]))
    place = int(np.argmax(columns["supply"] == 0))
    for name, entry in (("lower", 1), ("cost", 2**58), ("head", task), ("tail", sink)):
        changed = {key: value.copy() for key, value in columns.items()}
        arc = int(np.flatnonzero((columns["tail"] == task) & (columns["upper"] > 0))[0])
        changed[name][arc] = entry
        assert solve_by_auction(FlowNetwork.from_arrays(**changed)) is None, name
    columns["supply"][task] += 1
    columns["supply"][place] -= 1
    assert solve_by_auction(FlowNetwork.from_arrays(**columns)) is None
