"""Plots of GPU assignment: the placements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.plot_style import (
    GREEN,
    LIGHT,
    MOST_BARS,
    ORANGE,
    RED,
    SKY,
    axes_for,
    legend,
    name_places,
)
from flowlex.formulations.program_arrays import Integers
from flowlex.models.gpu.placement_metrics import Placement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Farthest level a task reads from: meaning, colour, and a hatch if colours look equal in greyscale.
_LOOKS = {
    "data on its node": (GREEN, ""),
    "data in its rack": (ORANGE, ""),
    "data in another rack": (RED, "///"),
    "kept running": (SKY, "..."),
    "idle": (LIGHT, ""),
}
#: Largest number of GPUs drawn as separate cells.
_MOST_CELLS = 200


def plot_placements(placement: Placement, title: str, ax: Axes | None = None) -> Axes:
    """Draw the placements, coloured by the farthest level a task reads from.

    Up to 200 GPUs are drawn as named cells, one column per rack. Larger clusters are drawn as bars per rack; more than
    120 racks are merged into bars of neighbouring racks.
    """
    from matplotlib.patches import Patch

    view = placement.view
    task_of = np.full(len(view.gpu_node), -1)
    placed = np.flatnonzero(placement.gpu >= 0)
    task_of[placement.gpu[placed]] = placed
    rack = view.node_rack[view.gpu_node]
    draw = _counts if len(rack) > _MOST_CELLS else _cells
    ax = draw(placement, task_of, rack, ax)
    ax.set_title(f"{title}: {len(placed)} of {len(rack)} GPUs run a task")
    ax.spines[:].set_visible(False)
    return legend(ax, handles=[Patch(**_look(meaning), label=meaning) for meaning in _LOOKS])


def _look(meaning: str) -> dict[str, Any]:
    colour, hatch = _LOOKS[meaning]
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white"}


def _cells(placement: Placement, task_of: Integers, rack: Integers, ax: Axes | None) -> Axes:
    view, racks = placement.view, len(placement.view.rack_names)
    order = np.argsort(rack, kind="stable")
    height = np.arange(len(order)) - np.searchsorted(rack[order], rack[order])
    ax = axes_for(ax, 2.2 * racks, 0.3 * (height.max(initial=0) + 1) + 1.2)
    for gpu, row in zip(order.tolist(), height.tolist(), strict=True):
        task, column = int(task_of[gpu]), int(rack[gpu])
        ax.barh(-row, 0.94, left=column, height=0.9, **_look(_meaning(placement, task)))
        text = f"{view.gpu_names[gpu]}: {'idle' if task < 0 else view.task_names[task]}"
        label = ax.text(column + 0.03, -row, text, va="center", fontsize=7, clip_on=True)
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.6, "pad": 0.8})
    ax.set_xticks(np.arange(racks) + 0.47, view.rack_names)
    ax.set_yticks([])
    return ax


def _counts(placement: Placement, task_of: Integers, rack: Integers, ax: Axes | None) -> Axes:
    racks = len(placement.view.rack_names)
    bars = min(racks, MOST_BARS)
    bar = rack * bars // racks
    meanings = np.array([list(_LOOKS).index(_meaning(placement, task)) for task in task_of.tolist()])
    counts = np.zeros((len(_LOOKS), bars), np.int64)
    np.add.at(counts, (meanings, bar), 1)
    ax, left = axes_for(ax, 8, 1.2 + 0.22 * bars), np.zeros(bars, np.int64)
    for row, meaning in zip(counts, _LOOKS, strict=True):
        ax.barh(np.arange(bars), row, 0.85, left=left, **_look(meaning))
        left += row
    if bars == racks:
        name_places(ax.yaxis, placement.view.rack_names)
        ax.set_xlabel("GPUs of the rack")
    else:
        ax.set(xlabel="GPUs", ylabel=f"{racks} racks in {bars} rows of neighbours", yticks=[])
    ax.invert_yaxis()
    return ax


def _meaning(placement: Placement, task: int) -> str:
    if task < 0:
        return "idle"
    if placement.view.task_running_gpu[task] >= 0:
        return "kept running"
    read = placement.megabytes[task]
    if read[2]:
        return "data in another rack"
    return "data in its rack" if read[1] else "data on its node"
