"""Pictures agree with the log: a bar for every job, rates of ports, completion times."""

import numpy as np
import pytest

from flowlex import generate
from flowlex.formulations.plot_style import axes_for
from flowlex.instances import InstanceError
from flowlex.systems.simulation.network import SIMULATOR
from flowlex.systems.simulation.network.policies import Fair
from flowlex.systems.simulation.network.run_record import coflow_frame
from flowlex.systems.simulation.policy_registry import Run

WORK = generate("jit-cluster", seed=2, jobs=4, machines=5, copies=3, mix="LeNet")


def drawn(log, name):
    return SIMULATOR.plots()[name](log, axes_for(None, 6, 3))


@pytest.fixture(scope="module")
def log():
    return SIMULATOR.simulate(WORK, Fair(), Run(seed=2))


def test_a_bar_for_every_job_and_one_for_its_data(log):
    bars = [(bar.get_x(), bar.get_width()) for bar in drawn(log, "gantt").patches]
    frame = coflow_frame(log).sort_values("arrival_s", kind="stable")
    spans = zip(frame.arrival_s, frame.jct_s, frame.cct_s, strict=True)
    assert bars == [(arrival, width) for arrival, *widths in spans for width in widths]


def test_the_area_under_the_mean_load_is_what_was_sent(log):
    lines = {line.get_label(): line for line in drawn(log, "ports").lines}
    times, share = map(np.asarray, lines["mean, out"].get_data())
    sent = sum(c.size_mb for c in WORK.copies) + sum(f.size_mb for j in WORK.jobs for f in j.transfers)
    rate = sum(machine.out_mbps for machine in WORK.machines) / 8 / len(WORK.machines)
    assert share.sum() * (times[1] - times[0]) * rate * len(WORK.machines) == pytest.approx(sent)
    assert (np.asarray(lines["busiest, out"].get_ydata()) <= 1 + 1e-9).all()


def test_completion_times_rise_to_all(log):
    (line,) = drawn(log, "completion-times").lines
    times, share = map(np.asarray, line.get_data())
    assert (np.diff(times) >= 0).all() and share[-1] == 1.0 and len(times) == 4


@pytest.mark.parametrize("name", ["gantt", "ports", "completion-times"])
def test_a_run_that_ends_before_anything_is_drawn_too(name):
    assert drawn(SIMULATOR.simulate(WORK, Fair(), Run(seed=2, horizon_s=1e-6)), name) is not None


def test_another_kind_of_instance_is_refused():
    with pytest.raises(InstanceError, match="takes jit-bandwidth instances, this is 'gpu-assignment'"):
        SIMULATOR.simulate(generate("gpu-testbed"), Fair(), Run(0))
