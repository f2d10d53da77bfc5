"""Random networks: every engine agrees with the others and with an exact reference, and proves it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations import UNBOUNDED, FlowNetwork, Outcome, Status, solve
from flowlex.formulations.engines import highs
from flowlex.formulations.engines.exact_integers import exact_potentials
from flowlex.formulations.engines.network import infeasible_cut
from flowlex.validation.certificates import certify_network

Reference = Callable[[FlowNetwork], tuple[str, int | None]]


def shortage(network: FlowNetwork, names: tuple[str, ...]) -> int:
    """By how much the named nodes cannot be balanced, written independently of the package."""
    inside = {index for index, name in enumerate(network.node_names) if name in names}
    assert len(inside) == len(names)
    worst = -1
    for side in (inside, set(range(network.node_count)) - inside):
        need = sum(int(network.supply[v]) for v in side)
        out = 0.0
        for a in range(network.arc_count):
            tail, head = int(network.tail[a]), int(network.head[a])
            if tail in side and head not in side:
                out += float("inf") if network.upper[a] == UNBOUNDED else int(network.upper[a])
            elif head in side and tail not in side:
                need += int(network.lower[a])
        if need > out:
            worst = max(worst, int(need - out))
    return worst


def check(network: FlowNetwork, engine: str, reference: Reference) -> None:
    status, cost = reference(network)
    outcome = solve(network, engine)
    assert outcome.status == status
    if status == "optimal":
        assert outcome.objective == cost
        certificate = certify_network(network, outcome)
        assert certificate.ok, str(certificate)
        assert certificate.claim == "optimal"
        assert certificate.exact
    elif status == "infeasible":
        assert outcome.infeasibility is not None
        assert shortage(network, outcome.infeasibility.nodes) > 0
        assert f"short by {shortage(network, outcome.infeasibility.nodes)}" in outcome.infeasibility.message
        assert certify_network(network, outcome).ok
    else:
        assert outcome.values is None


@settings(max_examples=120, deadline=None)
@given(data=st.data(), engine=st.sampled_from(["network", "highs", "pulp"]))
def test_random_networks(networks: Any, exact_optimum: Reference, data: st.DataObject, engine: str) -> None:
    network = data.draw(networks)
    check(network, engine, exact_optimum)
    assert (infeasible_cut(network) is not None) == (exact_optimum(network)[0] == "infeasible")


def random_assignment(seed: int, tasks: int = 60, machines: int = 25) -> FlowNetwork:
    rng = np.random.default_rng(seed)
    tail, head = np.repeat(np.arange(tasks), 6), tasks + rng.integers(0, machines, 6 * tasks)
    sink = tasks + machines
    supply = np.r_[np.ones(tasks, int), np.zeros(machines, int), -tasks]
    return FlowNetwork.from_arrays(
        np.r_[tail, np.arange(tasks), tasks + np.arange(machines)],
        np.r_[head, np.full(tasks, sink), np.full(machines, sink)],
        upper=np.r_[np.ones(7 * tasks, int), np.full(machines, 2)],
        cost=np.r_[rng.integers(-20, 60, 6 * tasks), np.full(tasks, 500), np.zeros(machines, int)],
        supply=supply,
    )


def test_larger_networks_agree_by_every_algorithm(exact_optimum: Reference) -> None:
    for seed in range(4):
        network = random_assignment(seed)
        _, cost = exact_optimum(network)
        outcomes = [solve(network, "network"), solve(network, "pulp")]
        outcomes += [solve(network, "highs", algorithm=a) for a in ("simplex", "ipm", "hipo")]
        for outcome in outcomes:
            assert outcome.objective == cost, outcome.algorithm
            assert certify_network(network, outcome).ok


def test_potentials_are_found_from_the_flow_alone() -> None:
    """A solver that returns no duals (or useless ones) is still proven optimal."""
    network = random_assignment(9)
    outcome = solve(network, "network")
    rng = np.random.default_rng(1)
    for start in (np.zeros(network.node_count, np.int64), rng.integers(-999, 999, network.node_count)):
        potentials = exact_potentials(network, outcome.values, start)
        reduced = network.reduced_costs(potentials)
        assert (reduced[outcome.values < network.upper] >= 0).all()
        assert (reduced[outcome.values > network.lower] <= 0).all()


def test_the_order_of_nodes_changes_no_optimum(exact_optimum: Reference) -> None:
    kept = random_assignment(3, tasks=12, machines=5)
    spread = replace(kept, similar_neighbours=not kept.similar_neighbours)
    assert not FlowNetwork.from_arrays([0], [1], upper=1, cost=1, supply=[1, -1]).similar_neighbours
    for network in (kept, spread):
        check(network, "network", exact_optimum)
    assert solve(kept, "network").objective == solve(spread, "network").objective


def test_same_input_gives_the_same_answer() -> None:
    network = random_assignment(3)
    for engine in ("network", "highs"):
        first, again = solve(network, engine), solve(network, engine)
        assert first.values.tolist() == again.values.tolist()
        assert first.duals.tolist() == again.duals.tolist()


def test_a_free_cycle_without_capacity_is_not_run_for_nothing() -> None:
    """The finite capacity substituted for an uncapacitated arc never appears in the answer."""
    network = FlowNetwork.from_arrays([0, 1, 1], [1, 0, 2], upper=UNBOUNDED, cost=[-1, 1, 5], supply=[2, 0, -2])
    outcome = solve(network, "network")
    assert outcome.values.tolist() == [2, 0, 2]
    assert outcome.objective == 8
    assert certify_network(network, outcome).ok


def test_a_run_stopped_away_from_a_vertex_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interior point at the time limit is neither reported as a flow nor an error."""
    network = FlowNetwork.from_arrays([0, 0], [1, 1], upper=3, cost=[1, 2], supply=[3, -3])
    answer = {"values": np.array([1.4, 1.6])}

    def stopped(*_: Any) -> Outcome:
        return Outcome(Status.FEASIBLE, "highs", 4.6, 3.0, answer["values"])

    monkeypatch.setattr(highs, "solve_arrays", stopped)
    outcome = solve(network, "highs")
    assert outcome.status == "feasible"  # rounds to 1 + 2, which is a flow
    assert (outcome.values.tolist(), outcome.objective, outcome.bound, outcome.duals) == ([1, 2], 5, None, None)
    answer["values"] = np.array([1.6, 1.6])
    outcome = solve(network, "highs")
    assert outcome.status == "time_limit"
    assert outcome.values is outcome.objective is None
