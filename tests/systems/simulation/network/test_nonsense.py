"""Impossible decisions are refused with time and event; checks detect violations."""

import numpy as np
import pytest

from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.systems.simulation.event_queue import SimulationError
from flowlex.systems.simulation.network.policy_view import Rates
from flowlex.systems.simulation.network.simulator import simulate_traffic
from flowlex.systems.simulation.network.traffic_arrays import Traffic

pytestmark = pytest.mark.loops

START = "at 0 s, transfer 'j/t0' may be sent: policy Says: "


def traffic():
    flows = [("a", "b", 0.0), ("a", "c", 0.0), ("c", "b", 5.0)]
    transfers = tuple(
        Transfer(name=f"t{k}", size_mb=2.0, sender=s, receiver=r, feeds="done", ready_s=at)
        for k, (s, r, at) in enumerate(flows)
    )
    job = Job(name="j", computations=(Computation(name="done", seconds=0.0),), transfers=transfers)
    machines = tuple(Machine(name=n, out_mbps=8.0, in_mbps=8.0) for n in "abc")
    return Traffic.of(JitInstance(machines=machines, jobs=(job,), slot_s=1.0, unit_mb=0.5))


class Says:
    """A policy that calls a function."""

    def __init__(self, answer, **promises):
        self.answer = answer
        self.__dict__.update(promises)

    def decide(self, state):
        return self.answer(state)


def refused(answer, **promises):
    with pytest.raises(SimulationError) as error:
        simulate_traffic(traffic(), Says(answer, **promises))
    return str(error.value)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda s: None, "it answered None; answer Rates or an instruction like state.in_order(...)"),
        (lambda s: Rates([7], [1.0]), "it gave a rate to transfer 7; there are 3, numbered from 0"),
        (lambda s: Rates([0, 2], [1.0, 1.0]), "it gave a rate to transfer 'j/t2', which may not be sent yet"),
        (lambda s: Rates([0], [-1.0]), "it gave transfer 'j/t0' the rate -1.0; rates are finite, at least 0"),
        (lambda s: Rates([0], [np.nan]), "it gave transfer 'j/t0' the rate nan; rates are finite, at least 0"),
        (lambda s: Rates([0, 0], [0.1, 0.1]), "it gave transfer 'j/t0' two rates"),
        (lambda s: Rates([0, 1], [1.0]), "it answered 2 transfers and 1 rates; give each transfer one rate"),
        (lambda s: Rates([0.5], [1.0]), "transfers are integers, it answered float64"),
        (lambda s: Rates([0], [1.0], until_s=0.0), "it wants to be asked again at 0.0 s, which is not later"),
        (lambda s: Rates([0, 1], [0.75, 0.75]), "1.5 MB/s out of machine 'a', whose port carries 1; give less"),
        (lambda s: s.in_order([]), "its order leaves out 0; order all of state.coflows"),
        (lambda s: s.in_order([0, 0]), "its order has 0 twice"),
        (lambda s: Rates(None, None), "transfers are integers, it answered object"),
        (lambda s: Rates([0], [1.0], held=[3]), "it holds back [3]; there are 3 transfers, numbered from 0"),
        (lambda s: Rates([0], [1.0], held=[0.5]), "it holds back [0.5]; there are 3 transfers, numbered from 0"),
        (lambda s: s.in_order([0], stop_at_left_mb=[np.nan]), "it marks coflow 0 with nan; give a number, or infinity"),
        (
            lambda s: s.in_order([0], "fair", stop_at_left_mb=[np.nan]),
            "it marks coflow 0 with nan; give a number, or infinity",
        ),
        (lambda s: s.in_order([0, 3]), "its order has 3, which has nothing to send; order all of state.coflows"),
    ],
)
def test_nonsense_is_refused_with_time_and_event(answer, reason):
    assert refused(answer) == START + reason


def test_a_transfer_that_has_arrived_gets_no_rate():
    message = refused(lambda s: Rates([0], [1.0]))
    when = "at 2 s, transfer 'j/t0' has arrived: policy Says: "
    assert message == when + "it gave a rate to transfer 'j/t0', which has already arrived"


def test_nothing_sent_for_ever_is_refused():
    message = refused(lambda s: Rates([], []))
    assert message.endswith("nothing is sent and nothing will happen, but 3 transfers wait, 'j/t0' among them")
    assert message.startswith("at 5 s, ")


def test_promises_are_checked():
    half = lambda s: Rates(s.transfers, np.full(len(s.transfers), 0.25))  # noqa: E731
    idle = "it promises to leave nothing idle, but transfer 'j/t0' has room at both its ports"
    assert refused(half, conserving=True) == START + idle
    unfair = lambda s: Rates([0, 1], [0.25, 0.75])  # noqa: E731
    fair = "it promises max-min fair rates, but 'j/t0' has the largest rate at no full port"
    assert refused(unfair, max_min=True) == START + fair
    held = lambda s: Rates(s.transfers, np.full(len(s.transfers), 0.25), held=s.transfers)  # noqa: E731
    run = simulate_traffic(traffic(), Says(held, conserving=True))
    assert not np.isnan(run.end_s).any()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda s: s.in_order([0.5]), r"coflows are integers in a row, got float64 of shape \(1,\)"),
        (lambda s: s.in_order([0], inside=np.zeros(2)), "inside has 2 ranks; there are 3 transfers"),
        (lambda s: s.in_order([0], stop_at_left_mb=1.0), r"stop_at_left_mb has the shape \(\), coflows \(1,\)"),
        (
            lambda s: s.in_order([0], stop_at_left_mb=[1.0, 2.0]),
            r"stop_at_left_mb has the shape \(2,\), coflows \(1,\)",
        ),
    ],
)
def test_instructions_are_not_rounded_or_stretched(answer, reason):
    with pytest.raises(ValueError, match=reason) as error:
        simulate_traffic(traffic(), Says(answer))
    assert error.value.__notes__ == ["the policy was asked at 0 s, transfer 'j/t0' may be sent"]


def test_questions_without_end_are_refused(monkeypatch):
    monkeypatch.setattr("flowlex.systems.simulation.network.simulator._MOST_IDLE", 50)
    message = refused(lambda s: Rates([0], [1.0], until_s=np.nextafter(s.now_s, np.inf)))
    assert message.endswith("the policy was asked 51 times within 0.001 s; 2 transfers wait, 'j/t0' among them")


def test_an_error_inside_a_policy_says_when():
    with pytest.raises(ZeroDivisionError) as error:
        simulate_traffic(traffic(), Says(lambda s: 1 // 0))
    assert error.value.__notes__ == ["the policy was asked at 0 s, transfer 'j/t0' may be sent"]


def test_what_is_no_policy_is_refused():
    with pytest.raises(SimulationError, match="is no policy of the network: it has no method decide"):
        simulate_traffic(traffic(), object())
    with pytest.raises(SimulationError, match="bin_s must be positive and finite, got 0"):
        simulate_traffic(traffic(), Says(lambda s: None), bin_s=0)


def test_pairs_serve_fair_and_nothing_else():
    message = refused(lambda s: Rates([0], [1.0]), grouping="pair")
    assert message == START + "it answered Rates, but its grouping is 'pair', which serves only state.fair()"
    with pytest.raises(TypeError, match="set grouping = 'pair'"):
        simulate_traffic(traffic(), Says(lambda s: s.fair()))
