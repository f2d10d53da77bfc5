"""The start of the public trace under every coflow scheduler."""

from pathlib import Path

import numpy as np
import pytest

from flowlex.systems.simulation.experiments.coflow_hour import POLICIES
from flowlex.systems.simulation.network.simulator import simulate_traffic
from flowlex.systems.simulation.network.traffic_arrays import Traffic
from flowlex.systems.traces.coflow import read_coflow_trace

TRACE = Path("../shared/data/coflow/FB2010-1Hr-150-0.txt.gz")


def completion_times(traffic, policy):
    run = simulate_traffic(traffic, policy, bin_s=1.0)
    assert run.sent_mb.sum() / 2 == pytest.approx(traffic.size_mb.sum(), rel=1e-9)
    last = np.zeros(len(traffic.coflow_names))
    np.maximum.at(last, traffic.coflow, run.end_s)
    times = last - traffic.coflow_arrival_s
    sent = np.unique(traffic.coflow)
    assert (times[sent] >= traffic.alone_s[sent] - 1e-9).all()  # time is no finer than a nanosecond
    return times[sent].mean()


@pytest.mark.skipif(not TRACE.is_file(), reason="the public trace is not beside the checkout")
def test_the_first_coflows():
    traffic = Traffic.of(read_coflow_trace(TRACE, first=8))
    means = {name: completion_times(traffic, policy()) for name, policy in POLICIES.items()}
    assert means["sebf"] <= min(means.values()) * 1.001


@pytest.mark.slow
@pytest.mark.skipif(not TRACE.is_file(), reason="the public trace is not beside the checkout")
def test_the_first_coflows_rank_as_schedulers_should():
    traffic = Traffic.of(read_coflow_trace(TRACE, first=60))
    means = {name: completion_times(traffic, policy()) for name, policy in POLICIES.items()}
    assert means["sebf"] < means["fair"] < means["fifo"]
    assert means["sebf"] < means["d-clas"] < means["fair"]
    assert means["sebf"] < means["sincronia"] < means["fair"]


@pytest.mark.slow
@pytest.mark.skipif(not TRACE.is_file(), reason="the public trace is not beside the checkout")
def test_the_whole_hour_under_the_shortest_bottleneck():
    traffic = Traffic.of(read_coflow_trace(TRACE))
    assert (traffic.count, traffic.jobs) == (701_486, 526)
    assert completion_times(traffic, POLICIES["sebf"]()) < 30
