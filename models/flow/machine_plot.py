"""Plot a schedule: the jobs that use the slots of every machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.plot_style import GREY, MOST_BARS, axes_for, colours, count_ticks, legend, name_places
from flowlex.formulations.program_arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Number of jobs with their own colour.
_COLOURED = 7


def plot_machines(
    slots: Mapping[str, int],
    machine_of: Mapping[str, str],
    job_of: Mapping[str, str],
    title: str,
    ax: Axes | None = None,
) -> Axes:
    """Plot tasks per machine, coloured by the largest jobs, and the slots of the machines.

    With more than 120 machines, a bar shows the mean of consecutive machines (in the order of the instance).
    """
    width = np.array(list(slots.values()), float)
    bars = min(len(width), MOST_BARS)
    bar_of = np.arange(len(width)) * bars // max(len(width), 1)
    members = np.bincount(bar_of, minlength=bars)
    place = dict(zip(slots, bar_of.tolist(), strict=True))
    named, height = _held([(job_of[task], place[machine]) for task, machine in machine_of.items()], bars)
    ax, bottom = axes_for(ax, 9, 3.5), np.zeros(bars)
    for name, row, colour in zip(named, height / members, [*colours(len(named) - 1), GREY], strict=True):
        if row.any():
            ax.bar(np.arange(bars), row, 0.9, bottom=bottom, color=colour, label=name)
        bottom += row
    most = np.bincount(bar_of, weights=width, minlength=bars) / members
    ax.step(np.arange(bars), most, where="mid", color="black", lw=0.8, label="slots")
    if bars == len(width):
        count_ticks(ax.yaxis)
        name_places(ax.xaxis, list(slots))
    else:
        ax.set(xlabel=f"{len(width)} machines in {bars} rows of neighbours", xticks=[])
    ax.set(ylabel="tasks" if bars == len(width) else "tasks per machine", title=title)
    return legend(ax)


def _held(tasks: list[tuple[str, int]], bars: int) -> tuple[list[str], Floats]:
    """Count tasks by job (the largest jobs, then all others together) and bar."""
    size = Counter(job for job, _ in tasks)
    largest = [job for job, _ in size.most_common(_COLOURED if len(size) <= _COLOURED else _COLOURED - 1)]
    row = {job: k for k, job in enumerate(largest)}
    height = np.zeros((len(largest) + 1, bars))
    np.add.at(height, ([row.get(job, -1) for job, _ in tasks], [bar for _, bar in tasks]), 1)
    return [*largest, f"{len(size) - len(largest)} other jobs"], height
