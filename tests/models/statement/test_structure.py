"""Which structure a model has, and which rule of one's own takes it away."""

from flowlex import generate, model_for


def test_the_rule_that_closes_an_odd_cycle_is_named_with_its_rows():
    """Task 11, GPU 1 and the rule meet pairwise in one column each: a triangle, whose determinant is 2."""
    model = model_for(generate("gpu-figure1"))
    assert str(model.structure()) == "totally unimodular"
    x = model.variables["x"]
    few = model.with_constraint("few", x.sum() <= 2)
    assert str(few.structure()) == "totally unimodular"
    odd = x.sel(task="task11", gpu="GPU2").sum() + x.sel(task="task12", gpu="GPU1").sum() <= 1
    found = few.with_constraint("odd", odd).structure()
    assert "with 'odd' no longer totally unimodular: rows " in found.lost and "determinant " in found.lost
    assert set(found.verdict.witness.row_names) == {"odd", "task[task11]", "gpu_out[GPU1]"}


def test_a_network_is_one():
    assert str(model_for(generate("network-random")).structure()) == "network"
