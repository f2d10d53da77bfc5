"""Greedy baselines never beat the optimum and follow the paper on small cases; pictures are drawn."""

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.instances.generators import generate
from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu.baselines import BASELINES, compare, greedy, greedy_delay
from flowlex.models.gpu.model import GpuAssignment, Penalties, Policy
from flowlex.models.gpu.placement_metrics import Placement, jain_index
from flowlex.models.gpu.transfer_costs import TransferCosts
from tests.models.gpu.cases import cluster, job, task

mpl.use("Agg")


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(sorted(BASELINES)))
def test_a_baseline_is_a_valid_placement_and_never_beats_the_optimum(seed: int, name: str) -> None:
    instance = generate("gpu-random", seed=seed)
    assert isinstance(instance, GpuInstance)
    costs = TransferCosts.of(instance, Penalties())
    gpu = BASELINES[name](instance.arrays, costs)
    placement = Placement(instance.arrays, costs, gpu)
    view, placed = instance.arrays, np.flatnonzero(gpu >= 0)
    assert len(set(gpu[placed].tolist())) == len(placed)
    assert (view.task_memory[placed] <= view.gpu_memory[gpu[placed]]).all()
    running = view.task_running_gpu >= 0
    assert (gpu[running & (gpu >= 0)] == view.task_running_gpu[running & (gpu >= 0)]).all()
    assert name == "GSP" or (gpu[running] >= 0).all()
    best = GpuAssignment(instance, policy=Policy.FSU).solve("network")
    if name != "GSP":
        assert len(placement.started) <= len(best.placement.started)
        if len(placement.started) == len(best.placement.started):
            assert placement.transfer_s.sum() >= best.placement.transfer_s.sum() - 1e-6


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**31))
def test_greedy_is_algorithm_1_of_the_paper(seed: int) -> None:
    """Word by word: the job that uses the fewest GPUs takes the cheapest of its tasks and the free GPUs."""
    instance = generate("gpu-random", seed=seed)
    assert isinstance(instance, GpuInstance)
    costs = TransferCosts.of(instance, Penalties())
    view, table = instance.arrays, costs.dense()
    gpu = view.task_running_gpu.tolist()
    while True:
        used = [
            sum(g >= 0 for g, j in zip(gpu, view.task_job, strict=True) if j == job)
            for job in range(len(instance.jobs))
        ]
        ways = sorted(
            (used[view.task_job[t]], view.task_job[t], table[t, view.gpu_node[g]], t, g)
            for t in range(len(gpu))
            for g in range(len(view.gpu_node))
            if gpu[t] < 0 and g not in gpu and view.task_memory[t] <= view.gpu_memory[g]
        )
        if not ways:
            break
        gpu[ways[0][3]] = ways[0][4]
    assert greedy(view, costs).tolist() == gpu


def test_delay_scheduling_waits_for_local_data() -> None:
    """GPU1 is offered first; a patient job with its data near GPU2 declines it, an impatient one accepts it."""
    instance = cluster([job("j", task("t", (10.0, "n2")))], [(f"n{i}", f"r{i}", [8.0]) for i in (1, 2)])
    costs = TransferCosts.of(instance, Penalties())
    assert greedy_delay(instance.arrays, costs, (5, 9)).tolist() == [1]
    assert greedy_delay(instance.arrays, costs, (0, 0)).tolist() == [0]
    with pytest.raises(ValueError, match="non-decreasing"):
        greedy_delay(instance.arrays, costs, (2, 1))


def test_comparison_has_every_policy_and_baseline() -> None:
    table = compare(generate("gpu-testbed", seed=1))  # type: ignore[arg-type]
    assert table.index.tolist() == ["FSP", "FS", "FSU", "GS", "GSP", "GSD"]
    assert table.loc["FSU", "transfer_s"] <= table.loc["GS", "transfer_s"]
    assert (table["running"] == 30).all()


def test_jain_index() -> None:
    assert jain_index(np.array([2.0, 2.0])) == 1.0
    assert jain_index(np.array([3.0, 0.0, 0.0])) == pytest.approx(1 / 3)
    assert jain_index(np.zeros(3)) == 1.0
