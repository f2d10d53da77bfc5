"""Figures and pictures of a network computed from its log, also after writing and reading it."""

import numpy as np
import pytest

from flowlex.instances.generators.jit import jit_random
from flowlex.instances.instance_base import InstanceError
from flowlex.instances.jit import BackgroundCopy, Computation, JitInstance, Job, Machine, Transfer
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.network import SIMULATOR
from flowlex.systems.simulation.network.policies import Fair
from flowlex.systems.simulation.network.run_record import (
    coflow_frame,
    figures,
    port_loads,
    remaining_egress,
    transfer_frame,
)
from flowlex.systems.simulation.policy_registry import Run


def instance():
    """One MB a second: a job sends 2 MB from a, computes 3 s; a copy of 2 MB shares a's port from the start."""
    transfer = Transfer(name="t", size_mb=2.0, sender="a", receiver="b", feeds="x")
    early = Transfer(name="u", size_mb=1.0, sender="c", receiver="b", feeds="y")
    computations = (Computation(name="x", seconds=3.0), Computation(name="y", seconds=1.0, after=("x",)))
    return JitInstance(
        machines=tuple(Machine(name=n, out_mbps=8.0, in_mbps=8.0) for n in "abc"),
        jobs=(Job(name="j", computations=computations, transfers=(transfer, early)),),
        copies=(BackgroundCopy(name="copy", size_mb=2.0, sender="a", receiver="c"),),
        slot_s=1.0,
        unit_mb=0.5,
    )


@pytest.fixture
def log(tmp_path):
    made = SIMULATOR.simulate(instance(), Fair(), Run())
    made.write(tmp_path / "log.jsonl.gz")
    return RunLog.read(tmp_path / "log.jsonl.gz")


def test_frames_by_hand(log):
    # b receives two transfers at 1/2; u ends at 2 s; t and the copy share a's port throughout, and end at 4 s.
    coflows = coflow_frame(log).set_index("name")
    assert coflows.loc["j", ["cct_s", "jct_s", "alone_s"]].tolist() == pytest.approx([4.0, 8.0, 3.0])
    assert coflows.loc["copy", "slowdown"] == pytest.approx(2.0)
    transfers = transfer_frame(log).set_index("transfer")
    assert transfers.loc["u", ["begin_s", "end_s", "use_s", "wait_s"]].tolist() == pytest.approx([0.0, 2.0, 7.0, 5.0])
    assert transfers.loc["t", "wait_s"] == pytest.approx(0.0)


def test_ports_and_what_jobs_leave(log):
    start, used = port_loads(log)
    assert start[:4].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert used[:4, 0] == pytest.approx(np.ones(4))
    assert port_loads(log, "copies")[1][:4, 0] == pytest.approx(np.full(4, 0.5))
    # of 3 MB/s jobs send 1 MB/s until u ends at 2 s, then 1/2: the whole cluster, one ratio for each moment
    assert remaining_egress(log) == pytest.approx([2 / 3, 2 / 3, 5 / 6, 5 / 6])


def test_figures(log):
    found = figures(log)
    assert found["mean_jct_s"] == pytest.approx(8.0)
    assert found["mean_wait_s"] == pytest.approx(2.5)
    assert found["copies_slowdown"] == pytest.approx(2.0)
    assert found["remaining_min"] == pytest.approx(2 / 3)
    assert found["unfinished"] == 0


def test_what_the_horizon_cuts_is_named_unfinished():
    log = SIMULATOR.simulate(instance(), Fair(), Run(horizon_s=3.0))
    assert {r["name"] for r in log.of("unfinished")} == {"j", "copy"}
    assert figures(log) == {"unfinished": 2.0, "empty_coflows": 0.0, "port_mb_per_s": 1.0}
    assert transfer_frame(log).end_s.notna().sum() == 1


def test_parameters_are_checked():
    with pytest.raises(InstanceError, match="parameters: no parameter 'bins'; it has: bin_s"):
        SIMULATOR.simulate(jit_random(), Fair(), Run(parameters={"bins": 1}))
    with pytest.raises(InstanceError, match="parameters: bin_s must be a positive number of seconds, got 0"):
        SIMULATOR.simulate(jit_random(), Fair(), Run(parameters={"bin_s": 0}))
