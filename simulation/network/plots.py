"""Pictures of a run of the network, drawn from its log. Colours are Okabe and Ito's, legends stand outside the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flowlex.simulation.log import RunLog
from flowlex.simulation.network.record import coflow_frame, port_loads, transfer_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PLOTS", "plot_completion_times", "plot_gantt", "plot_ports"]

BLUE, ORANGE, GREEN, BLACK = "#0072B2", "#E69F00", "#009E73", "#000000"
#: More coflows than this are not drawn as bars.
SHOWN = 40


def plot_gantt(log: RunLog, ax: Axes | None = None) -> Axes:
    """From arrival to the last byte and to the last computation of a coflow; its transfers inside.

    The first 40 by arrival are drawn.
    """
    axes = _axes(ax, (9, 6))
    frame, transfers = coflow_frame(log), transfer_frame(log)
    jobs = frame[frame.kind != "unfinished"].sort_values("arrival_s", kind="stable")[:SHOWN]
    spans = dict(tuple(transfers.groupby("coflow")))
    rows = zip(jobs.name.tolist(), jobs.arrival_s.tolist(), jobs.jct_s.tolist(), jobs.cct_s.tolist(), strict=True)
    for y, (name, arrival, whole, sent) in enumerate(rows):
        labels = ("job", "its data", "a transfer has arrived") if y == 0 else (None, None, None)
        axes.barh(y, whole, left=arrival, height=0.8, color="0.88", label=labels[0])
        axes.barh(y, sent, left=arrival, height=0.8, color=BLUE, alpha=0.35, label=labels[1])
        if name in spans:
            ends = spans[name]["end_s"].dropna().to_numpy()
            axes.plot(ends, np.full(len(ends), y), "|", color=ORANGE, markersize=5, label=labels[2])
    title = f"{log.header.get('policy', 'run')}: {len(jobs)} of {len(frame)} coflows"
    axes.set(xlabel="time (s)", ylabel="coflow, by arrival", title=title)
    if len(jobs) <= SHOWN:
        axes.set_yticks(range(len(jobs)), list(jobs.name), fontsize=6)
    axes.invert_yaxis()
    return _legend(axes)


def plot_ports(log: RunLog, ax: Axes | None = None) -> Axes:
    """The busiest port and the mean of all over time, each way; what jobs use of the mean."""
    axes = _axes(ax, (9, 4))
    start, used = port_loads(log)
    jobs, machines = port_loads(log, "jobs")[1], len(log.header["machines"])
    for name, part, colour in (("out", slice(0, machines), BLUE), ("in", slice(machines, None), ORANGE)):
        axes.step(start, used[:, part].max(axis=1, initial=0), where="post", color=colour, label=f"busiest, {name}")
        mean = used[:, part].mean(axis=1)
        axes.step(start, mean, where="post", color=colour, linestyle=":", label=f"mean, {name}")
    axes.step(start, jobs[:, :machines].mean(axis=1), where="post", color=BLACK, linewidth=0.8, label="mean, out, jobs")
    axes.set(xlabel="time (s)", ylabel="share of the port's rate", ylim=(0, 1.05), title="load of the ports")
    return _legend(axes)


def plot_completion_times(log: RunLog, ax: Axes | None = None, label: str | None = None) -> Axes:
    """Distribution of the coflows' completion times; call it again on the same axes for another run."""
    axes = _axes(ax, (7, 4))
    frame = coflow_frame(log)
    times = np.sort(frame.cct_s[(frame.kind == "coflow") & (frame.cct_s > 0)].to_numpy())
    share = np.arange(1, len(times) + 1) / max(len(times), 1)
    palette = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#D55E00", BLACK, "#F0E442")
    colour = palette[len(axes.get_lines()) % len(palette)]
    axes.step(times, share, where="post", color=colour, label=label or log.header.get("policy", "run"))
    axes.set(xlabel="completion time (s)", ylabel="share of coflows", xscale="log", ylim=(0, 1.02))
    return _legend(axes)


#: By the name that ``flowlex simulate --plot`` knows.
PLOTS = {"gantt": plot_gantt, "ports": plot_ports, "completion-times": plot_completion_times}


def _legend(axes: Axes) -> Axes:
    """Right of the data."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False)
    return axes


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1]
