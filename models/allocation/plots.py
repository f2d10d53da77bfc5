"""Pictures of an allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["draw_allocation"]


def draw_allocation(frame: pd.DataFrame, gpu_types: list[str], title: str, ax: Axes | None = None) -> Axes:
    """Fraction of time of every job on each GPU type, stacked; jobs in order of normalised throughput (the line).

    Parameters
    ----------
    frame
        One row per job: ``normalised``, and a column per GPU type (`AllocationSolution.to_frame`).
    """
    import matplotlib.pyplot as plt

    axes = plt.subplots(figsize=(8, 4.5))[1] if ax is None else ax
    frame = frame.sort_values("normalised")
    place, bottom = np.arange(len(frame)), np.zeros(len(frame))
    for gpu_type in gpu_types:
        height = frame[gpu_type].to_numpy()
        axes.bar(place, height, bottom=bottom, width=1.0 if len(frame) > 40 else 0.8, label=gpu_type)
        bottom = bottom + height
    if len(frame) <= 30:
        axes.set_xticks(place, list(frame.index), rotation=60, ha="right", fontsize=8)
    axes.set(ylabel="fraction of time", xlabel="jobs", title=title)
    line = axes.twinx()
    line.plot(place, frame["normalised"].to_numpy(), color="black", drawstyle="steps-mid", linewidth=1)
    line.set_ylabel("normalised throughput")
    line.set_ylim(bottom=0)
    axes.legend()
    return axes
