"""Plot how many nodes have how many free GPU cards, before and after a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.plot_style import GREY, PALETTE, axes_for
from flowlex.systems.kubernetes.gpu_cards import GPU
from flowlex.systems.kubernetes.placement_plan import PlacementPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_free_cards(plan: PlacementPlan, axes: Axes | None = None) -> Axes:
    """Draw two bars for each number of free cards: nodes with so many before the plan, and after it.

    Parameters
    ----------
    plan
        A plan for a cluster whose waiting pods ask for whole cards (``nvidia.com/gpu``).
    axes
        Where to draw; None: a new figure.
    """
    axes = axes_for(axes, 7, 4)
    row = plan.made.state.row(GPU)
    total = np.zeros(0, np.int64) if row is None else plan.made.state.total[row]
    for shift, title, state, colour in (
        (-0.2, "before", plan.snapshot.first_state(), GREY),
        (0.2, "after", plan.made.state, PALETTE[0]),
    ):
        free = np.zeros(0, np.int64) if row is None else np.maximum(0, state.free[row][total > 0])
        nodes = np.bincount(free, minlength=int(total.max(initial=0)) + 1)
        axes.bar(
            np.arange(len(nodes)) + shift, nodes, 0.4, color=colour, label=f"{title}: {int(free.sum())} free cards"
        )
    axes.set_xlabel("free cards of a node")
    axes.set_ylabel("nodes with cards")
    axes.legend()
    return axes
