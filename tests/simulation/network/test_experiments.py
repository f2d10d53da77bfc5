"""The experiments on networks: their figures are measured, and coflow schedulers rank as they should."""

import pytest

from flowlex.instances.generators.jit import COPY_GIGABITS
from flowlex.instances.generators.neural_networks import NETWORKS
from flowlex.simulation.experiments import experiments
from flowlex.simulation.experiments._jobs import training_jobs
from flowlex.simulation.experiments.coflow_hour import drawn_coflows


def test_drawn_coflows_have_the_figures_that_statements_name():
    (experiment,) = (e for e in experiments("coflow_hour") if e.name == "coflows-drawn")
    found = experiment.measure(0, True)
    assert {statement.figure for statement in experiment.statements} <= set(found)
    assert found["speedup_sebf"] > 1
    assert len(drawn_coflows(0, 7).jobs) == 7


def test_the_quick_workload_has_every_network_and_every_size_of_copies():
    instance = training_jobs(0, True, 20, 1.0, 50.0, 1.0, "scatter")
    assert {job.name.rpartition("-")[2] for job in instance.jobs} == set(NETWORKS)
    assert {round(copy.size_mb / 125) for copy in instance.copies} == set(COPY_GIGABITS)


@pytest.mark.slow
def test_alpha_has_the_figures_that_statements_name():
    (experiment,) = (e for e in experiments("jit_bandwidth") if e.name == "jit-alpha")
    found = experiment.measure(0, True)
    assert {statement.figure for statement in experiment.statements} <= set(found)
    assert found["planned_bytes_0.1"] < found["planned_bytes_0.6"] < 0.6  # the first tensors are the small ones


@pytest.mark.slow
def test_the_comparison_has_the_figures_that_statements_name():
    (experiment,) = (e for e in experiments("jit_bandwidth") if e.name == "jit-compare")
    found = experiment.measure(0, False)
    assert {statement.figure for statement in experiment.statements} <= set(found)
