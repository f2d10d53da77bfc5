"""Pictures agree with the log: a bar for every run of a task, the queue's length, the fraction in use."""

import itertools

import numpy as np
import pytest

from flowlex import generate
from flowlex.formulations.plot_style import axes_for
from flowlex.instances import InstanceError
from flowlex.systems.simulation.cluster import SIMULATOR, simulate_cluster
from flowlex.systems.simulation.cluster.run_metrics import figures, stays
from flowlex.systems.simulation.policy_registry import Run, make_policy
from flowlex.systems.simulation.scenario import PolicyChoice


@pytest.fixture(scope="module")
def log():
    """Tasks that read, compute, and are stopped."""
    work = generate("cluster-random", seed=2, resource="gpu", outages=0.3)
    return simulate_cluster(work, make_policy("cluster", PolicyChoice(name="GSP")), seed=2, fail=0.2, certify=0)


def drawn(log, name):
    return SIMULATOR.plots()[name](log, axes_for(None, 6, 3))


def test_a_bar_for_reading_and_one_for_computing_of_every_stay(log):
    ax, found = drawn(log, "gantt"), list(stays(log))
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    assert len(bars) == 2 * len(found)
    for stay, reading, computing in zip(found, bars[::2], bars[1::2], strict=True):
        middle = stay.end_s if stay.computed_s is None else stay.computed_s
        assert (*reading, *computing) == pytest.approx((stay.start_s, middle, middle, stay.end_s))
    hatched = sum(bar.get_hatch() is not None for bar in ax.patches)
    assert hatched == 2 * sum(not stay.ended for stay in found) > 0
    assert len(ax.get_yticks()) == len({stay.place for stay in found})


def test_the_queue_is_never_negative_and_ends_empty(log):
    (line,) = drawn(log, "queue").lines
    waiting = np.asarray(line.get_ydata())
    assert waiting.min() == 0 == waiting[-1] and waiting.max() > 0
    assert (np.abs(np.diff(waiting)) == 1).all()


def test_the_area_in_use_is_the_utilisation(log):
    ax = drawn(log, "utilisation")
    first = next(log.of("start"))["at_s"]
    areas = []
    for line in ax.lines:
        times, levels = map(np.asarray, line.get_data())
        assert levels.min() >= 0 and levels.max() <= 1 and levels[-1] == 0
        areas.append(sum((b - a) * level for (a, b), level in zip(itertools.pairwise(times), levels[:-1], strict=True)))
    found = figures(log)
    assert max(areas) / (log.records[-1]["at_s"] - first) == pytest.approx(found["utilisation"])


def test_other_instances_and_policies_are_refused(log):
    with pytest.raises(InstanceError, match="takes cluster-workload instances, this is 'gpu-assignment'"):
        SIMULATOR.simulate(generate("gpu-testbed"), make_policy("cluster", PolicyChoice(name="FIFO")), Run(0))
    with pytest.raises(InstanceError, match=r"int is no cluster policy; make it a subclass of cluster\.Policy"):
        SIMULATOR.simulate(generate("cluster-random"), 3, Run(0))  # type: ignore[arg-type]
