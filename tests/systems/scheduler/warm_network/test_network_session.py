"""The live network compared with solves from scratch, over random changes of every kind."""

import numpy as np
import pytest

from flowlex.formulations import EngineError, solve
from flowlex.systems.scheduler.warm_network import network_session
from flowlex.systems.scheduler.warm_network.network_session import NetworkSession, Violations
from flowlex.validation.certificates import certify_network

NONE = Violations(0, 0, 0)


class Life:
    """Random nodes and arcs; every node has an expensive arc to the sink, so a flow always exists."""

    outlet = 2**60, 50

    def __init__(self, session, seed):
        self.session, self.rng = session, np.random.default_rng(seed)
        self.nodes, self.arcs = [], {}

    def cost(self):
        return max(int(self.rng.integers(-3, 12)), 0)

    def change(self):
        rng, s = self.rng, self.session
        kind = rng.integers(0, 8)
        if kind == 0 or len(self.nodes) < 3:
            node = s.add_node()
            s.add_arc(node, 0, *self.outlet)
            self.nodes.append(node)
            s.add_supply(node, int(rng.integers(0, 3)))
            return
        a, b = (int(x) for x in rng.choice(self.nodes, 2))
        b = 0 if rng.random() < 0.3 else b
        capacity, cost = int(rng.integers(0, 4)), self.cost()
        if kind <= 3 or not self.arcs:
            self.arcs[s.add_arc(a, b, capacity, cost if a != b else 0)] = (a, b)
            return
        slot = int(rng.choice(list(self.arcs)))
        if kind == 4:
            s.change_arc(slot, *self.arcs[slot], capacity, cost)
        elif kind == 5:
            s.change_arc(slot, a, b, capacity, cost)
            self.arcs[slot] = (a, b)
        elif kind == 6:
            del self.arcs[slot]
            s.remove_arc(slot)
        else:
            s.add_supply(a, 1)


@pytest.mark.loops
@pytest.mark.parametrize("seed", range(25))
def test_every_step_equals_a_solve_from_scratch(seed):
    session = NetworkSession(2, 4)
    life = Life(session, seed)
    for _ in range(12):
        for _ in range(int(life.rng.integers(1, 10))):
            life.change()
        session.solve()
        assert session.violations() == NONE
        network = session.network()
        outcome = solve(network, "network")
        assert session.objective == outcome.objective
        assert certify_network(network, outcome).ok


class Market:
    """Tasks that compete for machines of one slot: potentials and assignments change a lot."""

    def __init__(self, session, seed, machines=150):
        self.session, self.rng = session, np.random.default_rng(seed)
        self.machines = [session.add_node() for _ in range(machines)]
        for machine in self.machines:
            session.add_arc(machine, 0, 1, int(self.rng.integers(0, 3)))
        self.tasks = []
        for _ in range(machines + 10):
            self.submit()

    def submit(self):
        s, rng = self.session, self.rng
        node = s.add_node()
        s.add_supply(node, 1)
        arcs = [s.add_arc(node, 0, 1, 500)]
        for machine in rng.choice(self.machines, 6, replace=False).tolist():
            arcs.append(s.add_arc(node, machine, 1, int(rng.integers(0, 400))))
        self.tasks.append((node, arcs))

    def cancel(self):
        node, arcs = self.tasks.pop(int(self.rng.integers(len(self.tasks))))
        for arc in arcs:
            self.session.remove_arc(arc)
        self.session.add_supply(node, -1)
        self.session.remove_node(node)


@pytest.mark.parametrize("patience", [60, 0])  # no warm start: every step starts cold
@pytest.mark.parametrize("seed", range(2))
def test_full_markets_equal_a_solve_from_scratch(seed, patience):
    session = NetworkSession(patience=patience)
    market = Market(session, seed)
    for _ in range(15):
        session.solve()
        assert session.violations() == NONE
        assert session.objective == solve(session.network(), "network").objective
        for _ in range(5):
            market.cancel()
            market.submit()


def test_without_an_optimum_of_the_other_engine_paths_find_their_own(monkeypatch):
    monkeypatch.setattr(network_session, "solve_exactly", lambda network: None)
    session = NetworkSession()
    Market(session, 2)
    session.solve(cold=True)
    assert session.violations() == NONE
    assert session.objective == solve(session.network(), "network").objective


@pytest.mark.loops
def test_a_cheaper_outlet_without_capacity_reprices_what_leads_there():
    session = NetworkSession()
    a, b = session.add_node(), session.add_node()
    link, outlet = session.add_arc(a, b, 2**60, 1), session.add_arc(b, 0, 2**60, 9)
    direct = session.add_arc(a, 0, 5, 7)
    session.add_supply(a, 4)
    session.solve()
    assert session.flow[[link, outlet, direct]].tolist() == [0, 0, 4]
    session.change_arc(outlet, b, 0, 2**60, 2)
    session.solve()
    assert session.flow[[link, outlet, direct]].tolist() == [4, 4, 0]
    assert session.violations() == NONE


@pytest.mark.loops
def test_a_cycle_that_pays_for_ever_is_refused():
    session = NetworkSession()
    a, b = session.add_node(), session.add_node()
    session.add_arc(a, b, 2**60, -2)
    session.add_arc(b, a, 2**60, 1)
    session.add_arc(a, 0, 1, 0)
    with pytest.raises(EngineError, match="cycle of negative cost has no capacity; bound one of its arcs"):
        session.solve()


@pytest.mark.loops
def test_infeasible_names_the_node_and_recovers():
    session = NetworkSession()
    a = session.add_node()
    arc = session.add_arc(a, 0, 1, 0)
    session.add_supply(a, 2)
    with pytest.raises(EngineError, match="node 1 cannot be balanced"):
        session.solve()
    session.change_arc(arc, a, 0, 2, 0)
    session.solve()
    assert session.flow.tolist() == [2]


@pytest.mark.loops
def test_touched_arcs_and_their_flow_before():
    session = NetworkSession()
    a = session.add_node()
    cheap, dear = session.add_arc(a, 0, 1, 0), session.add_arc(a, 0, 5, 3)
    session.add_supply(a, 1)
    session.solve()
    assert [x.tolist() for x in session.take_touched()] == [[cheap], [0]]
    session.change_arc(cheap, a, 0, 0, 0)
    session.solve()
    arcs, before = session.take_touched()
    assert dict(zip(arcs.tolist(), before.tolist(), strict=True)) == {cheap: 1, dear: 0}
    assert session.take_touched()[0].size == 0


@pytest.mark.loops
def test_a_wrong_flow_is_found_out():
    session = NetworkSession()
    a = session.add_node()
    cheap, dear = session.add_arc(a, 0, 1, 0), session.add_arc(a, 0, 1, 3)
    session.add_supply(a, 1)
    session.solve()
    session.flow[[cheap, dear]] = 0, 1
    assert session.violations().reduced_costs > 0
    session.flow[[cheap, dear]] = 0, 0
    assert session.violations().conservation == 1
    session.flow[[cheap, dear]] = 2, -1
    assert session.violations().bounds == 1
