"""The style of pictures."""

from itertools import pairwise

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from flowlex import generate, model_for
from flowlex.formulations.plot_style import (
    PALETTE,
    axes_for,
    colours,
    legend,
    moved_apart,
    name_places,
    picture_bytes,
    quiet_backend,
)

mpl.use("Agg")


def _luminance(colour: str) -> float:
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_colours_that_stand_side_by_side_are_told_apart_without_hue() -> None:
    """Neighbours of the palette differ in luminance, so that print and every colour blindness keep them apart."""
    light = [_luminance(colour) for colour in PALETTE]
    assert min(abs(a - b) for a, b in pairwise(light)) > 0.1
    assert colours(10) == [*PALETTE, *PALETTE[:2]]


def test_names_are_thinned_where_they_do_not_fit() -> None:
    with quiet_backend():
        axes = axes_for(None, 6, 4)
        name_places(axes.xaxis, [f"node-{k}" for k in range(1000)])
        shown = [label.get_text() for label in axes.get_xticklabels()]
        assert shown[0] == "node-0" and 10 <= len(shown) <= 30  # about five on each of six inches
        assert legend(axes).get_legend() is None  # nothing has a name


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


def test_the_legend_of_given_axes_covers_no_neighbour() -> None:
    with quiet_backend():
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
        model_for(generate("jit-figure4")).solve().plot(left)
        model_for(generate("inference-cluster")).solve().plot(right)
        figure.canvas.draw()
        assert left.get_legend().get_window_extent().x1 < right.get_tightbbox().x0
        assert right.get_legend().get_window_extent().x1 <= figure.bbox.x1
