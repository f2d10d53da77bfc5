"""Plot of an allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.plot_style import BLACK, axes_for, colours, legend, name_places

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def draw_allocation(frame: pd.DataFrame, gpu_types: list[str], title: str, ax: Axes | None = None) -> Axes:
    """Draw stacked bars of each job's time on each GPU type; jobs are sorted by normalised throughput (the line).

    ``frame``: one row per job with ``normalised`` and a column per GPU type (`AllocationSolution.to_frame`).
    """
    axes = axes_for(ax, 8, 4.5)
    frame = frame.sort_values("normalised")
    place, bottom = np.arange(len(frame)), np.zeros(len(frame))
    for gpu_type, colour in zip(gpu_types, colours(len(gpu_types)), strict=True):
        height = frame[gpu_type].to_numpy()
        axes.bar(place, height, bottom=bottom, width=1.0 if len(frame) > 40 else 0.8, color=colour, label=gpu_type)
        bottom = bottom + height
    name_places(axes.xaxis, list(frame.index))
    axes.set(ylabel="fraction of time", xlabel=f"{len(frame)} jobs, least served first", title=title)
    line = axes.twinx()
    line.plot(place, frame["normalised"].to_numpy(), color=BLACK, drawstyle="steps-mid", linewidth=1)
    line.set_ylabel("normalised throughput")
    line.set_ylim(0, 1.1 * float(frame["normalised"].max() or 1))
    axes.plot([], [], color=BLACK, linewidth=1, label="normalised throughput (right)")
    return legend(axes, inches=0.7)  # right of the other axis
