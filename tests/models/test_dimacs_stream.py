"""A live network compared with a new solve of each round: dictionaries replay the log, and HiGHS solves them."""

from __future__ import annotations

import numpy as np
import pytest

from flowlex.formulations import FlowNetwork, solve
from flowlex.formulations.flow_network import UNBOUNDED
from flowlex.instances import InstanceError
from flowlex.instances.dimacs_live import rounds
from flowlex.models.dimacs_stream import LiveFlow


class Author:
    """Writes a random log and tracks the network after each round, by names only."""

    def __init__(self, seed, spare=1000):
        self.rng, self.spare = np.random.default_rng(seed), spare
        self.supply, self.arcs, self.lines = {}, {}, ["p min 3 0", "n 1 0 3"]
        self.sink, self.next, self.serial = 1, 4, 0
        self.supply |= {1: 0, 2: 0, 3: 0}
        for node in (2, 3):
            self._arc(node)
        self.end()

    def _arc(self, node, other=None, mark="a"):
        rng = self.rng
        other = self.sink if other is None else other
        low, room = (int(rng.integers(0, 2)) if rng.random() < 0.1 else 0), int(rng.integers(1, 5))
        cost = int(rng.integers(-4, 15))
        room = -1 if rng.random() < 0.1 and cost >= 0 else low + room
        self.serial += 1
        self.arcs[self.serial] = (node, other, low, room, cost)
        at = ("0" if mark == "new" and end == node else str(end) for end in (node, other))
        self.lines.append(f"a {' '.join(at)} {low} {room} {cost} 0")

    def _node(self):
        rng, supply = self.rng, int(self.rng.integers(0, 3))
        free = min(set(range(1, self.next + 1)) - set(self.supply))
        number = free if rng.random() < 0.5 else self.next
        self.next = max(self.next, number + 1)
        others = rng.choice(sorted(self.supply), 2).tolist()
        self.supply[number] = supply
        outlet = (number, self.sink, 0, self.spare, 60)
        if number == free:
            self.lines.append(f"d {supply} 77 {1 + len(others)} 1")
            self.lines.append(f"a 0 {self.sink} 0 {self.spare} 60")
        else:
            self.lines += [f"n {number} {supply} 1", f"a {number} {self.sink} 0 {self.spare} 60"]
        self.serial += 1
        self.arcs[self.serial] = outlet
        for other in others:
            self._arc(number, other, "new" if number == free else "a")

    def change(self):
        rng = self.rng
        kind, inner = rng.integers(0, 8), sorted(set(self.supply) - {self.sink})
        if kind <= 2 or len(inner) < 3:
            self._node()
        elif kind == 3:
            self._arc(*rng.choice(inner, 2).tolist())
        elif kind == 4:
            node = int(rng.choice(inner))
            self.supply[node] = int(rng.integers(0, 4))
            self.lines.append(f"n {node} {self.supply[node]}")
        elif kind == 5:
            node = int(rng.choice(inner))
            del self.supply[node]
            self.arcs = {key: arc for key, arc in self.arcs.items() if node not in arc[:2]}
            self.lines.append(f"r {node}")
        elif self.arcs:
            key = int(rng.choice(sorted(self.arcs)))
            tail, head, *_, old = self.arcs[key]
            twins = [arc for arc in self.arcs.values() if arc[:2] == (tail, head) and arc[4] == old]
            if len(twins) > 1:  # the format cannot tell them apart
                return
            room, cost = int(rng.integers(0, 6)), int(rng.integers(-4, 15))
            if room:
                self.arcs[key] = (tail, head, 0, room, cost)
            else:
                del self.arcs[key]
            self.lines.append(f"x {tail} {head} 0 {room} {cost} 0 {old}")

    def end(self):
        self.lines.append("c EOI")

    def objective(self):
        """Return the least cost of the current network from scratch; None if infeasible."""
        place = {node: index for index, node in enumerate(self.supply)}
        supply = np.array(list(self.supply.values()))
        supply[place[self.sink]] = -(supply.sum() - supply[place[self.sink]])
        rows = np.array([*self.arcs.values(), (self.sink, self.sink, 0, 0, 0)])
        tail, head = (np.array([place[node] for node in column.tolist()]) for column in rows.T[:2])
        low, room, cost = rows.T[2:]
        upper = np.where(room < 0, UNBOUNDED, room)
        return solve(
            FlowNetwork.from_arrays(tail, head, lower=low, upper=upper, cost=cost, supply=supply), "highs"
        ).objective


@pytest.mark.parametrize("spare", [1000, 0])  # without arcs to the sink many rounds are infeasible
@pytest.mark.parametrize("seed", range(12))
def test_every_round_costs_what_a_fresh_solve_costs(seed, spare):
    author, live, expected = Author(seed, spare), LiveFlow(), []
    expected.append(author.objective())
    for _ in range(12):
        for _ in range(int(author.rng.integers(1, 8))):
            author.change()
        author.end()
        expected.append(author.objective())
    found = [live.solve(each) for each in rounds(line.encode() for line in author.lines)]
    assert [each.objective for each in found] == expected
    assert all(each.certificate.ok for each in found if each.objective is not None)
    assert spare or seed in (0, 11) or None in expected
    assert any(each.flows for each in found)


def run(*lines):
    live = LiveFlow()
    return [live.solve(each) for each in rounds(line.encode() for line in lines)], live


START = ["p min 4 4", "n 1 1 1", "n 2 1 1", "n 3 0 2", "n 4 -2 3"]
START += ["a 1 3 0 1 2", "a 2 3 0 1 5", "a 3 4 0 1 0", "a 1 4 0 1 9", "a 2 4 0 1 10", "c EOI"]


def test_flows_assignments_and_loops():
    found, live = run(*START, "x 3 4 0 2 0", "a 2 2 0 3 -1", "a 1 1 2 5 1")
    assert found[0].flows == ((1, 3, 1), (2, 4, 1), (3, 4, 1)) and found[0].objective == 12
    assert found[1].flows == ((1, 1, 2), (1, 3, 1), (2, 2, 3), (2, 3, 1), (3, 4, 2)) and found[1].objective == 6
    assert live.assignments(found[1]) == [(1, 3), (2, 3)]


def test_an_old_cost_tells_parallel_arcs_apart():
    found, _ = run(
        *START, "a 1 4 0 1 8", "c EOI", "x 1 4 0 1 1 0 8", "c EOI", "x 1 4 0 0 0 0 9", "c EOI", "x 1 4 0 1 3"
    )
    assert [each.objective for each in found] == [12, 12, 6, 6, 8]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["r 7"], "line 12: node 7 does not exist"),
        (["r 2", "r 2"], "line 13: node 2 does not exist"),
        (["a 1 9 0 1 1"], "line 12: node 9 does not exist"),
        (["a 1 4 0 1 8", "x 1 4 0 1 1"], "line 13: several arcs lead from 1 to 4; say its cost so far"),
        (["a 1 4 0 1 8", "x 1 4 0 1 1 0 5"], "line 13: several arcs lead from 1 to 4; none costs 5"),
        (["n 4 -1", "c EOI"], "line 13: supplies sum to 1 at the end of round 2, not to 0"),
        (["a 3 3 0 -1 -1"], "line 12: a loop at node 3 costs -1 and has no capacity; give it one"),
        (["a 3 1 0 1152921504606846976 1"], "line 12: supplies and bounds sum to"),
        (["a 3 1 0 1 72057594037927936", "c EOI"], "line 13: costs up to 72057594037927936 over 4 nodes"),
    ],
)
def test_a_line_that_does_not_fit_the_network_is_named(lines, message):
    with pytest.raises(InstanceError) as refused:
        run(*START, *lines)
    assert str(refused.value).startswith(message)


def test_a_cycle_that_pays_for_ever_has_no_optimum_until_it_is_bounded():
    found, _ = run(*START, "a 3 1 0 -1 -9", "a 1 3 0 -1 1", "c EOI", "x 3 1 0 2 -9")
    assert found[1].objective is None and "cycle of negative cost" in found[1].reason
    assert found[2].objective == 3 * 1 + 10 - 2 * 9  # 1-3 three times, 2-4, 3-1 twice
