"""Drawings of flow scheduling: the network with its flow, and latencies of a live scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.plot_style import BLUE, GREEN, GREY, LIGHT, ORANGE, PURPLE, RED, axes_for
from flowlex.formulations.program_arrays import Integers
from flowlex.models.flow.model import FlowScheduling
from flowlex.models.model_base import ModelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMN = {"task": 0, "unscheduled": 1, "group": 1, "machine": 2, "sink": 3}
_COLOUR = {"task": BLUE, "unscheduled": RED, "group": PURPLE, "machine": GREEN, "sink": GREY}
#: Largest number of vertices in a drawing.
_MOST = 80


def draw_network(model: FlowScheduling, flow: Integers | None = None, ax: Axes | None = None) -> Axes:
    """Draw the vertices in columns, arcs in grey, and those with ``flow`` (A,) in colour.

    Arc labels are costs (other than 0) and, where the lower bound is not 0, bounds.

    Raises `ModelError` if the network has more than 80 vertices.
    """
    network = model.schedule.network
    if network.node_count > _MOST:
        raise ModelError(
            f"{network.node_count} vertices are too many to draw (at most {_MOST}); take a smaller instance"
        )
    ax = axes_for(ax, 8, 4.5)
    place = _places(model)
    names = network.node_names
    sent = np.zeros(network.arc_count) if flow is None else np.asarray(flow)
    for arc, (tail, head) in enumerate(zip(network.tail.tolist(), network.head.tolist(), strict=True)):
        if not network.upper[arc]:
            continue
        (x0, y0), (x1, y1) = place[tail], place[head]
        taken = sent[arc] > 0
        ax.plot([x0, x1], [y0, y1], color=ORANGE if taken else LIGHT, lw=2 if taken else 0.8, zorder=2 if taken else 1)
        low, cost = int(network.lower[arc]), int(network.cost[arc])
        text = f"[{low},{int(network.upper[arc])}]" if low else f"{cost / model.rules.scale.factor:g}" if cost else ""
        if text:
            ax.text(0.65 * x0 + 0.35 * x1, 0.65 * y0 + 0.35 * y1, text, fontsize=7, color="#555555")
    for block, members in network.node_blocks.items():
        for node in range(members.start, members.start + members.count):
            x, y = place[node]
            ax.plot(x, y, "o", ms=13, color=_COLOUR[block], zorder=3)
            label = "sink" if block == "sink" else names[node].partition("[")[2].rstrip("]")
            ax.annotate(label, (x, y), xytext=(0, 10), textcoords="offset points", ha="center", fontsize=8)
    ax.set_axis_off()
    ax.set_title(", ".join(type(goal).__name__ for goal in model.chosen_goals) or "no goals", fontsize=10)
    return ax


def _places(model: FlowScheduling) -> dict[int, tuple[float, float]]:
    blocks = model.schedule.network.node_blocks
    columns: dict[int, list[int]] = {}
    for name, block in blocks.items():
        columns.setdefault(_COLUMN[name], []).extend(range(block.start, block.start + block.count))
    return {
        node: (float(column), -(index + 0.5) / len(nodes))
        for column, nodes in columns.items()
        for index, node in enumerate(nodes)
    }
