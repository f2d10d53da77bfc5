"""The style of pictures."""

import matplotlib as mpl
import numpy as np
import pytest

from flowlex import generate, model_for
from flowlex.formulations.plot_style import (
    moved_apart,
    picture_bytes,
    quiet_backend,
)

mpl.use("Agg")


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_answer_is_the_same_bytes(suffix: str) -> None:
    solution = model_for(generate("inference-cluster", seed=1)).solve("network")

    def drawn() -> bytes:
        with quiet_backend():
            return picture_bytes(solution.plot(), suffix)

    assert drawn() == drawn()


@pytest.mark.parametrize(
    ("generator", "options", "says"),
    [
        ("gpu-scale", {"gpus": 2000}, "GPUs of the rack"),
        ("flow-scale", {"machines": 400, "tasks": 500}, "400 machines in 120 rows of neighbours"),
        ("inference-cluster", {"workers": 300}, "300 nodes, each line sorted"),
    ],
)
def test_large_answers_are_put_together_and_stay_within_a_page(generator, options, says) -> None:
    with quiet_backend():
        axes = model_for(generate(generator, seed=1, **options)).solve("network").plot()
        width, height = axes.get_figure(root=True).get_size_inches()
        assert axes.get_xlabel() == says
        assert width <= 11 and height <= 14
        assert axes.get_legend().get_bbox_to_anchor().transformed(axes.transAxes.inverted()).x0 > 1


def test_nodes_of_a_drawing_stand_apart() -> None:
    points = np.random.default_rng(3).normal(size=(40, 2)) * 0.3
    moved = moved_apart([*points, points[0]], 0.13)
    gap = moved[:, None] - moved
    distance = np.hypot(gap[..., 0], gap[..., 1]) + np.eye(41)
    assert distance.min() > 0.12 and np.abs(moved[:40] - points).max() < 0.5
