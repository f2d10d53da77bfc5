"""A second simulator in plain Python; complete runs of every coflow policy are compared with it.

It shares only `Traffic` with the simulator and has its own clock, rates and orders, one transfer at a time. Every
sender of a drawn coflow has one transfer, so that choices that a policy leaves open (which transfer of a sender is
backfilled first) do not occur.
"""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.systems.simulation.network.fluid_loop import set_rates
from flowlex.systems.simulation.network.network_arrays import OFFENDER, add, finish, make_net
from flowlex.systems.simulation.network.policies import Aalo, Fair, Fifo, Sebf, TicTac
from flowlex.systems.simulation.network.rate_checks import FULL, IDLE, check
from flowlex.systems.simulation.network.simulator import simulate_traffic
from flowlex.systems.simulation.network.traffic_arrays import Traffic

MACHINES = "abcd"
DONE = Computation(name="done", seconds=0.0)


def shuffle(name, arrival, flows):
    """A job of transfers (sender, receiver, MB, ready after s)."""
    transfers = tuple(
        Transfer(name=f"t{k}", sender=a, receiver=b, size_mb=mb, ready_s=ready, feeds="done")
        for k, (a, b, mb, ready) in enumerate(flows)
    )
    return Job(name=name, arrival_s=arrival, computations=(DONE,), transfers=transfers)


def network(jobs, rates=(8.0, 8.0, 8.0, 8.0)):
    machines = tuple(Machine(name=n, out_mbps=rate, in_mbps=16.0) for n, rate in zip(MACHINES, rates, strict=True))
    return Traffic.of(JitInstance(machines=machines, jobs=tuple(jobs), slot_s=1.0, unit_mb=0.5))


@st.composite
def traffics(draw, once=True):
    """Up to five shuffles of random sizes over four unequal ports; ``once``: one transfer per sender and shuffle."""
    sizes = st.integers(1, 400).map(lambda k: k / 7)
    jobs = []
    for k in range(draw(st.integers(1, 5))):
        senders = draw(st.lists(st.sampled_from(MACHINES), min_size=1, max_size=4, unique=once))
        flows = [
            (a, draw(st.sampled_from([b for b in MACHINES if b != a])), draw(sizes), draw(st.sampled_from([0.0, 1.5])))
            for a in senders
        ]
        jobs.append(shuffle(f"j{k}", draw(st.integers(0, 40)) / 3, flows))
    return network(jobs, draw(st.tuples(*[st.sampled_from([8.0, 16.0, 24.0])] * 4)))


class Plain:
    """State: time, remaining sizes, sent size of each coflow; ``rule(self, there, free)`` returns rates by transfer."""

    def __init__(self, traffic, rule):
        count, machines = traffic.count, len(traffic.machines)
        self.ports = [(traffic.sender[f], machines + traffic.receiver[f]) for f in range(count)]
        self.coflow, self.arrival = traffic.coflow.tolist(), traffic.coflow_arrival_s
        self.left, self.sent = traffic.size_mb.tolist(), [0.0] * len(self.arrival)
        self.rate_of_port, self.now, self.mark = traffic.ports, 0.0, math.inf
        ends = np.zeros(count)
        while any(left > 0 for left in self.left):
            there = [f for f in range(count) if self.left[f] > 0 and traffic.ready_s[f] <= self.now + 1e-12]
            self.mark = math.inf
            rate = rule(self, there, list(traffic.ports))
            coming = [at - self.now for at in traffic.ready_s if at > self.now + 1e-12]
            ending = [self.left[f] / r for f, r in rate.items() if r > 0]
            step = min([*coming, *ending, self.mark])
            for f, r in rate.items():
                self.sent[self.coflow[f]] += min(r * step, self.left[f])
                self.left[f] -= r * step
                if r > 0 and self.left[f] <= 1e-9 * r:
                    self.left[f], ends[f] = 0.0, self.now + step
            self.now += step
        self.ends = ends

    def coflows(self, there, key):
        """Members of each coflow, in order of a key."""
        own = {c: [f for f in there if self.coflow[f] == c] for c in {self.coflow[f] for f in there}}
        return [own[c] for c in sorted(own, key=lambda c: (key(c), c))]

    def load(self, flows):
        found = {}
        for f in flows:
            for p in self.ports[f]:
                found[p] = found.get(p, 0.0) + self.left[f]
        return found


def take(rate, ports, free, f, amount):
    rate[f] = rate.get(f, 0.0) + amount
    for p in ports[f]:
        free[p] = max(free[p] - amount, 0.0)


def greedy(run, flows, free, rate):
    for f in flows:
        take(rate, run.ports, free, f, min(free[p] for p in run.ports[f]))


def madd(run, groups, free):
    rate = {}
    for flows in groups:
        load = run.load(flows)
        if all(free[p] > 1e-9 for p in load):
            seconds = max(mb / free[p] for p, mb in load.items())
            for f in flows:
                take(rate, run.ports, free, f, run.left[f] / seconds)
    for flows in groups:
        greedy(run, sorted(flows, key=lambda f: run.ports[f]), free, rate)
    return rate


def fifo(run, there, free):
    return madd(run, run.coflows(there, lambda c: run.arrival[c]), free)


def sebf(run, there, free):
    def alone(c):
        load = run.load([f for f in there if run.coflow[f] == c])
        return (round(max(mb / run.rate_of_port[p] for p, mb in load.items()), 9), run.arrival[c])

    return madd(run, run.coflows(there, alone), free)


def tictac(run, there, free):
    rate = {}
    for flows in run.coflows(there, lambda c: run.arrival[c]):
        greedy(run, flows, free, rate)
    return rate


def raise_together(run, flows, free, rate):
    """Max-min rates by raising all rates together."""
    rising = [f for f in flows if all(free[p] > 1e-9 for p in run.ports[f])]
    while rising:
        users = {p: sum(p in run.ports[f] for f in rising) for f in rising for p in run.ports[f]}
        level = min(free[p] / n for p, n in users.items())
        for f in rising:
            take(rate, run.ports, free, f, level)
        rising = [f for f in rising if all(free[p] > 1e-9 for p in run.ports[f])]
    return rate


def fair(run, there, free):
    return raise_together(run, there, free, {})


def d_clas(run, there, free):
    """Queues end at 10, 100, ... MB; max-min inside a coflow."""
    limits, rate = [10.0 ** (k + 1) for k in range(9)], {}

    def queue(c):
        return sum(run.sent[c] >= limit * (1 - 1e-9) for limit in limits)

    for flows in run.coflows(there, lambda c: (queue(c), run.arrival[c])):
        raise_together(run, flows, free, rate)
        c, total = run.coflow[flows[0]], sum(rate.get(f, 0.0) for f in flows)
        if total > 0 and queue(c) < len(limits):
            run.mark = min(run.mark, (limits[queue(c)] - run.sent[c]) / total)
    return rate


ONE_EACH = {"fifo": (Fifo, fifo), "sebf": (Sebf, sebf), "d-clas": (Aalo, d_clas), "tictac": (TicTac, tictac)}
ONE_EACH["fair"] = Fair, fair
#: The second coflow waits behind the first and is backfilled; the third uses ports on which neither sends.
BEHIND = network(
    [
        shuffle("j0", 0.0, [("a", "b", 12.0, 0.0), ("c", "d", 3.0, 0.0)]),
        shuffle("j1", 1 / 3, [("a", "c", 5.0, 0.0), ("b", "d", 9.0, 1.5)]),
        shuffle("j2", 2 / 3, [("d", "a", 4.0, 0.0)]),
    ]
)


@pytest.mark.parametrize("name", ONE_EACH)
@settings(max_examples=12)
@given(traffics())
@example(BEHIND)
def test_the_whole_run_equals_plain_python(name, traffic):
    policy, rule = ONE_EACH[name]
    assert simulate_traffic(traffic, policy()).end_s == pytest.approx(Plain(traffic, rule).ends, abs=1e-6)


@pytest.mark.parametrize("name", ["d-clas", "tictac", "fair"])
@settings(max_examples=12)
@given(traffics(once=False))
def test_policies_without_a_free_choice_equal_plain_python_whatever_the_senders(name, traffic):
    policy, rule = ONE_EACH[name]
    assert simulate_traffic(traffic, policy()).end_s == pytest.approx(Plain(traffic, rule).ends, abs=1e-6)


@pytest.mark.loops
@pytest.mark.parametrize("thorough", [False, True])
def test_at_every_event_a_rate_too_many_or_too_few_is_found(thorough):
    traffic = BEHIND
    net = make_net(traffic, "coflow", 1.0)
    add(net, np.arange(traffic.count))
    groups, held = np.arange(3), np.zeros(traffic.count, np.bool_)

    def judged(transfers, rates):
        set_rates(net, np.array(transfers), np.array(rates))
        return check(net, groups, held, True, False, thorough)

    # Out of every port 1 MB/s, into it 2: a's two transfers share its port, so do b and d's halves.
    assert judged([0, 1, 3, 4], [1.0, 1.0, 1.0, 1.0]) == 0
    assert judged([0, 1, 3], [1.0, 1.0, 1.0]) == IDLE
    assert net.numbers[OFFENDER] == 4
    assert judged([0, 1, 2, 3, 4], [1.0, 1.0, 0.1, 1.0, 1.0]) == FULL
    finish(net, 4, 0.5)  # nothing is left at d's sending port, so nothing waits for it
    assert judged([0, 1, 3], [1.0, 1.0, 1.0]) == 0
