"""Tiny networks with times computed by hand. Ports carry 1 MB/s unless stated otherwise."""

import numpy as np
import pytest

from flowlex.instances.jit import BackgroundCopy, Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.jit.model import JitBandwidth
from flowlex.systems.simulation.network.just_in_time import JustInTime
from flowlex.systems.simulation.network.latest_arrival_first import LatestFirst
from flowlex.systems.simulation.network.policies import Aalo, Fair, Fifo, Sebf, Sincronia, TensorFlow, TicTac
from flowlex.systems.simulation.network.run_record import figures, to_log
from flowlex.systems.simulation.network.simulator import simulate_traffic
from flowlex.systems.simulation.network.traffic_arrays import Traffic
from flowlex.systems.simulation.policy_registry import Run
from flowlex.systems.simulation.scenario import Decision
from flowlex.validation.certificates import CertificateError

pytestmark = pytest.mark.loops

DONE = Computation(name="done", seconds=0.0)
ALL = [Fair, Fifo, Sebf, Aalo, Sincronia, TensorFlow, TicTac, JustInTime]


def job(name, *flows, at=0.0):
    """A shuffle: flows are (sender, receiver, MB)."""
    transfers = tuple(
        Transfer(name=f"t{k}", size_mb=float(mb), sender=a, receiver=b, feeds="done")
        for k, (a, b, mb) in enumerate(flows)
    )
    return Job(name=name, arrival_s=at, computations=(DONE,), transfers=transfers)


def network(*jobs, copies=(), rates=None):
    machines = tuple(Machine(name=n, out_mbps=8.0 * (rates or {}).get(n, 1), in_mbps=8.0) for n in "abcd")
    return Traffic.of(JitInstance(machines=machines, jobs=jobs, copies=copies, slot_s=1.0, unit_mb=0.5))


def ends(policy, *jobs, **more):
    return simulate_traffic(network(*jobs, **more), policy).end_s.tolist()


@pytest.mark.parametrize("policy", ALL)
def test_a_single_transfer_takes_its_size_over_the_slower_port(policy):
    assert ends(policy(), job("j", ("a", "b", 3)), rates={"a": 2}) == pytest.approx([3.0])


def test_computations_wait_for_data_and_for_each_other():
    computations = (
        Computation(name="x", seconds=2.0),
        Computation(name="y", seconds=1.0, after=("x",)),
        Computation(name="z", seconds=1.0, after=("y",)),
    )
    transfers = (
        Transfer(name="t", size_mb=1.0, sender="a", receiver="b", feeds="x"),
        Transfer(name="u", size_mb=5.0, sender="c", receiver="d", feeds="y"),
    )
    run = simulate_traffic(network(Job(name="j", computations=computations, transfers=transfers)), Fair())
    assert run.start_s.tolist() == pytest.approx([1.0, 5.0, 6.0])
    assert run.done_s.tolist() == pytest.approx([3.0, 6.0, 7.0])


def test_tictac_sends_first_what_is_needed_first():
    computations = (Computation(name="x", seconds=3.0), Computation(name="y", seconds=1.0, after=("x",)))
    transfers = (
        Transfer(name="late", size_mb=3.0, sender="a", receiver="b", feeds="y"),
        Transfer(name="soon", size_mb=1.0, sender="a", receiver="b", feeds="x"),
    )
    work = Job(name="j", computations=computations, transfers=transfers)
    for policy in (TicTac(), TicTac("tic"), TicTac(between="fair")):
        run = simulate_traffic(network(work), policy)
        assert run.end_s.tolist() == pytest.approx([4.0, 1.0])
        assert run.done_s.tolist() == pytest.approx([4.0, 5.0])
    assert simulate_traffic(network(work), Fair()).done_s.tolist() == pytest.approx([5.0, 6.0])


@pytest.mark.parametrize(
    ("policy", "ends_s"),
    [
        # soon, then late; the copies share a's port afterwards, the shorter one first
        (LatestFirst(), [4.0, 1.0, 7.0, 5.0]),
        (LatestFirst(copies="fair"), [4.0, 1.0, 7.0, 6.0]),
        # late and soon share equally: 1 MB each by 2 s
        (LatestFirst(inside="fair", copies="fair"), [4.0, 2.0, 7.0, 6.0]),
    ],
)
def test_latest_first_serves_jobs_by_need_and_the_shortest_copy_next(policy, ends_s):
    computations = (Computation(name="x", seconds=3.0), Computation(name="y", seconds=1.0, after=("x",)))
    transfers = (
        Transfer(name="late", size_mb=3.0, sender="a", receiver="b", feeds="y"),
        Transfer(name="soon", size_mb=1.0, sender="a", receiver="b", feeds="x"),
    )
    copies = tuple(
        BackgroundCopy(name=name, size_mb=mb, sender="a", receiver="c") for name, mb in (("long", 2.0), ("short", 1.0))
    )
    work = Job(name="j", computations=computations, transfers=transfers)
    assert simulate_traffic(network(work, copies=copies), policy).end_s.tolist() == pytest.approx(ends_s)


def test_just_in_time_holds_back_what_is_not_needed_yet():
    # x waits for 1 MB and takes 3 s; y's 2 MB may arrive by 4 s, at half the rate that it could have.
    computations = (Computation(name="x", seconds=3.0), Computation(name="y", seconds=1.0, after=("x",)))
    transfers = (
        Transfer(name="t", size_mb=1.0, sender="a", receiver="b", feeds="x"),
        Transfer(name="u", size_mb=2.0, sender="c", receiver="d", feeds="y"),
    )
    copy = BackgroundCopy(name="copy", size_mb=6.0, sender="c", receiver="b")
    traffic = network(Job(name="j", computations=computations, transfers=transfers), copies=(copy,))
    for known in ("submitted", "all"):
        run = simulate_traffic(traffic, JustInTime(share=1.0, known=known))
        assert run.end_s[0] == pytest.approx(1.0)
        assert run.end_s[1] == pytest.approx(4.0)
        assert run.end_s[2] == pytest.approx(8.5)  # nothing in the first second (b is taken), half of c until 4 s
        assert run.done_s.tolist() == pytest.approx([4.0, 5.0])


def test_plans_are_certified_as_often_as_asked_and_a_refused_one_is_not_used(monkeypatch):
    jobs = [job(f"j{k}", ("a", "b", 1.0), at=10.0 * k) for k in range(4)]

    def refuse(*_):
        raise CertificateError("nothing stands")

    monkeypatch.setattr(JitBandwidth, "_certify", refuse)
    for each, refused in ((0, 0), (1, 4), (2, 2)):
        policy = JustInTime(share=1.0, certify=each)
        run = simulate_traffic(network(*jobs), policy)
        assert policy.refused == refused
        assert run.end_s.tolist() == pytest.approx([1.0, 11.0, 21.0, 31.0])  # unplanned, it has the port to itself


def due(name, at, *flows):
    """A shuffle that is due: flows are (sender, receiver, MB, seconds from arrival)."""
    transfers = tuple(
        Transfer(name=f"t{k}", size_mb=float(mb), sender=a, receiver=b, feeds="done", deadline_s=float(by))
        for k, (a, b, mb, by) in enumerate(flows)
    )
    return Job(name=name, arrival_s=at, computations=(DONE,), transfers=transfers)


def test_deadlines_met_are_those_of_whole_coflows():
    # Both share a's port: at half the rate k's 1 MB takes 2 s, which is too late; j's other transfer is not due.
    jobs = due("j", 0.0, ("a", "b", 2, 3), ("c", "d", 1, 9)), due("k", 0.0, ("a", "c", 1, 1.5))
    traffic = network(*jobs, job("l", ("b", "a", 1)))
    met = {
        policy.__name__: figures(to_log(simulate_traffic(traffic, policy()), {}))["deadlines_met"]
        for policy in (Fair, Sebf, Fifo)
    }
    assert met == {"Fair": 0.5, "Sebf": 1.0, "Fifo": 0.5}
    assert "deadlines_met" not in figures(to_log(simulate_traffic(network(job("l", ("b", "a", 1))), Fair()), {}))


def test_a_horizon_cuts_the_run():
    run = simulate_traffic(network(job("j", ("a", "b", 3))), Fair(), Run(horizon_s=2.0))
    assert np.isnan(run.end_s).all()
    assert run.now_s == 2.0
    assert run.sent_mb[:, 0, 0].sum() == pytest.approx(2.0)


def test_a_policy_that_thinks_for_a_second_sends_a_second_later():
    decision = Decision(mode="fixed", seconds=1.0)
    late = simulate_traffic(network(job("j", ("a", "b", 3))), Fair(), Run(decision=decision))
    assert (late.begin_s[0], late.end_s[0]) == pytest.approx((1.0, 4.0))
    # the first transfer continues while the policy decides about the second
    two = network(job("j", ("a", "b", 3)), job("k", ("a", "c", 0.5), at=2.0))
    run = simulate_traffic(two, Sebf(), Run(decision=decision))
    assert run.end_s.tolist() == pytest.approx([4.5, 3.5])
    # j has sent 10 MB at 11 s and is moved behind k when the decision ends, at 12 s
    falls = network(job("j", ("a", "b", 12)), job("k", ("a", "c", 3)))
    run = simulate_traffic(falls, Aalo(), Run(decision=decision))
    assert run.end_s.tolist() == pytest.approx([16.0, 15.0])


def test_bins_of_port_loads_grow_with_time():
    run = simulate_traffic(network(job("j", ("a", "b", 9000))), Fair(), bin_s=0.1)
    assert run.bin_s == pytest.approx(0.1 * 2**5)
    assert run.sent_mb[:, 0, 0].sum() == pytest.approx(9000)
    assert run.sent_mb[:, 0, 0].max() == pytest.approx(run.bin_s)
    assert run.sent_mb[:, :, 1].sum() == 0


def test_a_coflow_falls_into_the_next_queue_though_its_sums_are_not_exact_there():
    """Regression test: without a tolerance for rounding of large sizes, steps became shorter and shorter."""
    sizes = np.random.default_rng(1).uniform(1e6, 3e7, 9)
    flows = [(a, b, sizes[3 * i + j]) for i, a in enumerate("abc") for j, b in enumerate("bcd") if a != b]
    run = simulate_traffic(network(job("j", *flows), job("k", *flows, at=700.0)), Aalo(first_mb=1e-3))
    assert run.questions < 40
