"""Plots of a run of the network, from its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.plot_style import BLACK, BLUE, ORANGE, PALETTE, axes_for, legend, part
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.network.run_record import coflow_frame, port_loads, transfer_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Most coflows drawn as bars.
SHOWN = 40


def plot_gantt(log: RunLog, ax: Axes | None = None) -> Axes:
    """Plot each coflow from arrival to its last byte and last computation, with the ends of its transfers.

    The first 40 by arrival are drawn.
    """
    axes = axes_for(ax, 9, 6)
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
    title = f"{log.header.get('policy', 'run')}: {part(len(jobs), len(frame), 'coflows', 'the first')}"
    axes.set(xlabel="time (s)", ylabel="coflow, by arrival", title=title)
    if len(jobs) <= SHOWN:
        axes.set_yticks(range(len(jobs)), list(jobs.name), fontsize=6)
    axes.invert_yaxis()
    return legend(axes)


def plot_ports(log: RunLog, ax: Axes | None = None) -> Axes:
    """Plot the load of the busiest port and the mean over time in each direction, and the jobs' part of the mean."""
    axes = axes_for(ax, 9, 4)
    start, used = port_loads(log)
    jobs, machines = port_loads(log, "jobs")[1], len(log.header["machines"])
    for name, side, colour in (("out", slice(0, machines), BLUE), ("in", slice(machines, None), ORANGE)):
        axes.step(start, used[:, side].max(axis=1, initial=0), where="post", color=colour, label=f"busiest, {name}")
        mean = used[:, side].mean(axis=1)
        axes.step(start, mean, where="post", color=colour, linestyle=":", label=f"mean, {name}")
    axes.step(start, jobs[:, :machines].mean(axis=1), where="post", color=BLACK, linewidth=0.8, label="mean, out, jobs")
    axes.set(xlabel="time (s)", ylabel="share of the port's rate", ylim=(0, 1.05), title="load of the ports")
    return legend(axes)


def plot_completion_times(log: RunLog, ax: Axes | None = None, label: str | None = None) -> Axes:
    """Distribution of the coflows' completion times; call it again on the same axes for another run."""
    axes = axes_for(ax, 7, 4)
    frame = coflow_frame(log)
    times = np.sort(frame.cct_s[(frame.kind == "coflow") & (frame.cct_s > 0)].to_numpy())
    share = np.arange(1, len(times) + 1) / max(len(times), 1)
    colour = PALETTE[len(axes.get_lines()) % len(PALETTE)]
    axes.step(times, share, where="post", color=colour, label=label or log.header.get("policy", "run"))
    axes.set(xlabel="completion time (s)", ylabel="share of coflows", xscale="log", ylim=(0, 1.02))
    return legend(axes)


#: Plots by their name for ``flowlex simulate --plot``.
PLOTS = {"gantt": plot_gantt, "ports": plot_ports, "completion-times": plot_completion_times}
