"""Orders compared with an independent brute force over permutations."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.systems.simulation.network.coflow_orders import Needs, bottleneck_select_scale_iterate, tac, tic

pytestmark = pytest.mark.loops


def open_shop(load, weight, order):
    """Weighted completion times when every port serves the coflows in this order (concurrent open shop)."""
    done, total = np.zeros(load.shape[1]), 0.0
    for c in order:
        done = done + load[c]
        total += weight[c] * max(done[load[c] > 0], default=0.0)
    return total


def makespan(waits, seconds, times, order):
    """One link and one processor: transfers in order, each computation after its transfers."""
    arrived, clock, ends = set(), 0.0, {}
    for r in order:
        clock += times[r]
        arrived.add(r)
        for row, needs in enumerate(waits):
            if row not in ends and set(np.flatnonzero(needs)) <= arrived:
                ends[row] = clock
    busy = 0.0
    for row in sorted(ends, key=ends.__getitem__):
        busy = max(busy, ends[row]) + seconds[row]
    return busy


loads = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=n, max_size=n)
)


@settings(max_examples=30)
@given(loads, st.lists(st.integers(1, 5), min_size=5, max_size=5))
def test_sincronia_is_within_twice_the_best_order(rows, weights):
    load, weight = np.array(rows, float), np.array(weights[: len(rows)], float)
    order = bottleneck_select_scale_iterate(load, weight)
    assert sorted(order.tolist()) == list(range(len(rows)))
    best = min(open_shop(load, weight, p) for p in permutations(range(len(rows))))
    assert open_shop(load, weight, order) <= 2 * best + 1e-9


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=6))
def test_sincronia_is_smiths_rule_on_one_port(jobs):
    load, weight = np.array([[size] for size, _ in jobs], float), np.array([w for _, w in jobs], float)
    best = min(open_shop(load, weight, p) for p in permutations(range(len(jobs))))
    assert open_shop(load, weight, bottleneck_select_scale_iterate(load, weight)) == pytest.approx(best)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=2), st.lists(st.integers(0, 9), min_size=3, max_size=3))
def test_tac_is_the_best_order_of_two_transfers(times, seconds):
    waits = np.array([[1, 0], [0, 1], [1, 1]], bool)
    needs = Needs.of(waits, np.array(seconds, float))
    order = tac(needs, tuple(map(float, times)))
    best = min(makespan(waits, seconds, times, p) for p in permutations(range(2)))
    assert makespan(waits, seconds, times, order) == best


def test_a_chain_is_sent_in_its_order():
    waits = np.tril(np.ones((5, 5), bool))[::-1, ::-1]  # the last transfer is needed first
    needs = Needs.of(waits, np.ones(5))
    assert tac(needs, (1.0,) * 5) == (4, 3, 2, 1, 0)
    assert tic(needs).tolist() == [4, 3, 2, 1, 0]


def test_a_shuffle_keeps_the_order_of_the_file():
    needs = Needs.of(np.ones((3, 4), bool), np.ones(3))
    assert needs.waits.tolist() == [[True] * 4]
    assert needs.seconds == (3.0,)
    assert tac(needs, (3.0, 1.0, 2.0, 1.0)) == (0, 1, 2, 3)
