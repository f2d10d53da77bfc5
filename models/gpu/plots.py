"""Pictures of GPU assignment: who runs where, and the flow network drawn like the paper's figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.models.base import ModelError
from flowlex.models.gpu.placement import Placement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_network", "plot_placements"]

#: Worst level a task reads from: colour and meaning.
_COLOURS = {
    "data on its node": "#4daf4a",
    "data in its rack": "#ffb000",
    "data in another rack": "#d73027",
    "kept running": "#9ecae1",
    "idle": "#eeeeee",
}
#: Blocks of nodes from left to right; those of one column stand below one another.
_COLUMNS = (
    ("S",),
    ("job",),
    ("task", "unscheduled"),
    ("cluster",),
    ("rack",),
    ("node", "own_gpu", "gpu", "pool"),
    ("E",),
)
_MOST_DRAWN = 80


def plot_placements(placement: Placement, title: str, ax: Axes | None = None) -> Axes:
    """Draw one cell per GPU, racks beside each other, coloured by the farthest level its task reads from."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    view = placement.view
    racks = len(view.rack_names)
    order = np.lexsort((np.arange(len(view.gpu_node)), view.node_rack[view.gpu_node]))
    rack = view.node_rack[view.gpu_node[order]]
    height = np.arange(len(order)) - np.searchsorted(rack, rack)
    if ax is None:
        _, ax = plt.subplots(figsize=(max(5.0, 2.2 * racks), max(3.0, 0.34 * (height.max() + 1) + 1.4)))
    task_of = dict(
        zip(placement.gpu[placement.gpu >= 0].tolist(), np.flatnonzero(placement.gpu >= 0).tolist(), strict=True)
    )
    labelled = len(order) <= 200
    for gpu, column, row in zip(order.tolist(), rack.tolist(), height.tolist(), strict=True):
        task = task_of.get(gpu)
        ax.barh(-row, 0.94, left=column, height=0.9, color=_COLOURS[_meaning(placement, task)], edgecolor="white")
        if labelled:
            text = f"{view.gpu_names[gpu]}: {'idle' if task is None else view.task_names[task]}"
            ax.text(column + 0.03, -row, text, va="center", fontsize=7)
    ax.set_xticks(np.arange(racks) + 0.47, view.rack_names)
    ax.set_yticks([])
    ax.set_title(f"{title}: {len(task_of)} of {len(order)} GPUs run a task")
    ax.spines[:].set_visible(False)
    handles = [Patch(color=colour, label=meaning) for meaning, colour in _COLOURS.items()]
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=5, fontsize=7, frameon=False)
    return ax


def _meaning(placement: Placement, task: int | None) -> str:
    if task is None:
        return "idle"
    if placement.view.task_running_gpu[task] >= 0:
        return "kept running"
    read = placement.megabytes[task]
    if read[2]:
        return "data in another rack"
    return "data in its rack" if read[1] else "data on its node"


def draw_network(network: FlowNetwork, flow: Integers | None = None, ax: Axes | None = None) -> Axes:
    """Draw a small network in layers, like the paper's figure; arcs that carry flow stand out.

    Raises
    ------
    ModelError
        More than 80 nodes.
    """
    import matplotlib.pyplot as plt
    import networkx as nx

    if network.node_count > _MOST_DRAWN:
        raise ModelError(f"a drawing of {network.node_count} nodes is unreadable; draw one of at most {_MOST_DRAWN}")
    columns = [
        tuple(b for b in names if b in network.node_blocks and network.node_blocks[b].count) for names in _COLUMNS
    ]
    columns = [names for names in columns if names]
    if ax is None:
        _, ax = plt.subplots(figsize=(2.2 * len(columns), 8))
    place, labels = {}, {}
    for column, names in enumerate(columns):
        blocks = [network.node_blocks[name] for name in names]
        row = sum(block.count + 1.5 for block in blocks) / 2
        for block in blocks:
            ax.text(column, row, block.name, ha="center", fontsize=8, style="italic")
            for index, name in enumerate(block.names()):
                row -= 1
                place[block.start + index] = (float(column), row)
                labels[block.start + index] = block.name if block.count == 1 else name[len(block.name) + 1 : -1]
            row -= 1.5
    arcs = list(zip(network.tail.tolist(), network.head.tolist(), strict=True))
    graph = nx.DiGraph(arcs)
    active = [] if flow is None else [arc for arc, units in zip(arcs, flow.tolist(), strict=True) if units]
    nx.draw_networkx_edges(graph, place, ax=ax, edge_color="#cccccc", width=0.6, arrowsize=5)
    nx.draw_networkx_edges(graph, place, edgelist=active, ax=ax, edge_color="#1f77b4", width=2.0, arrowsize=9)
    nx.draw_networkx_nodes(graph, place, ax=ax, node_size=260, node_color="#ffffff", edgecolors="#444444")
    nx.draw_networkx_labels(graph, place, labels, ax=ax, font_size=6)
    ax.set_axis_off()
    return ax
