"""The experiments on networks: all figures are measured, and schedulers have the expected ranks."""

import pytest

from flowlex.systems.simulation.experiments import experiments
from flowlex.systems.simulation.experiments.coflow_hour import drawn_coflows
from flowlex.systems.simulation.experiments.jit_bandwidth import training_jobs


def measured(name: str, quick: bool = True) -> tuple[set[str], dict[str, float]]:
    (experiment,) = experiments(name)
    named = {name for each in experiment.statements for name in (*each.figures, each.over, each.minus) if name}
    return named, dict(experiment.measure(0, quick))


def test_drawn_coflows_have_the_figures_that_statements_name():
    named, found = measured("coflows-drawn")
    assert named <= set(found)
    assert found["mean_cct_s_fair"] > found["mean_cct_s_sebf"]
    assert len(drawn_coflows(0, 7).jobs) == 7


def test_units_add_less_than_a_twentieth_to_the_bytes():
    arrays = (instance := training_jobs(0, False)).arrays
    assert len(instance.machines) == 100
    assert arrays.size_units.sum() * instance.unit_mb < 1.05 * arrays.size_mb.sum()


@pytest.mark.slow
def test_the_share_that_is_planned_grows_with_alpha():
    named, found = measured("jit-alpha")
    assert named <= set(found)
    assert found["planned_bytes_0.1"] < found["planned_bytes_0.6"] < 0.6  # the first tensors are the small ones


@pytest.mark.slow
def test_the_comparison_has_the_figures_that_statements_name():
    named, found = measured("jit-compare", quick=False)
    assert {name for name in named - set(found) if not name.startswith("copies_jit_")} == set()  # few sizes in one run
    assert found["left_jit_min"] <= found["left_jit_median"] < 1
    named, _ = measured("jit-searched")
    assert {name for name in named - set(found) if not name.startswith("copies_jit_")} == set()  # the same figures
