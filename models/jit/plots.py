"""Plots of a just-in-time schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.plot_style import BLUE, GREEN, GREY, ORANGE, PALETTE, RED, axes_for, legend, part
from flowlex.models.jit.baselines import fill
from flowlex.models.jit.interval_schedules import Blocks, port_pieces
from flowlex.models.jit.transfer_slot_grid import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Largest number of transfers and of ports in a plot.
SHOWN, PORTS_SHOWN = 40, 3


class Schedule(Protocol):
    """The attributes of a solution that the plots use."""

    @property
    def instance(self) -> str: ...
    @property
    def grid(self) -> Grid: ...
    @property
    def segments(self) -> Blocks: ...
    @property
    def finish(self) -> NDArray[np.int64]: ...
    @property
    def load(self) -> str: ...
    @property
    def remaining(self) -> NDArray[np.float64]: ...
    @property
    def sorted_loads(self) -> NDArray[Any]: ...
    def greedy_loads(self) -> NDArray[np.int64]: ...


def plot_gantt(solution: Schedule, ax: Axes | None = None) -> Axes:
    """Plot transfers as bars (darker: higher rate) with arrival, due time and start of the computation.

    A computation starts when its inputs arrive, not before its planned start; delays by other late transfers are not
    shown. For comparison, each row shows the arrival if everything were sent as early and as fast as possible, and the
    wait until the computation in that case. Computations of zero seconds (padding of a network's layers) are not drawn.
    Only the `SHOWN` largest transfers are drawn.
    """
    from matplotlib.colors import to_rgb

    grid = solution.grid
    axes = axes_for(ax, 11, 2 + 0.25 * min(grid.count, SHOWN))
    largest = np.argsort(-grid.units, kind="stable")[:SHOWN]
    order = largest[np.lexsort((grid.stop[largest], grid.start[largest]))]
    rows, slot = np.arange(len(order)), grid.instance.slot_s
    runs, most = solution.segments, max(float(solution.segments.rate.max(initial=1)), 1.0)
    place = np.full(grid.count, -1)
    place[order] = rows
    drawn = np.flatnonzero(place[runs.item] >= 0)
    begin, end = grid.seconds(runs.begin[drawn]), grid.seconds(runs.end[drawn])
    shade = np.zeros((len(drawn), 4))
    shade[:, :3], shade[:, 3] = to_rgb(BLUE), 0.3 + 0.7 * runs.rate[drawn] / most
    left, right = grid.seconds(grid.start[order]), grid.seconds(grid.stop[order])
    axes.barh(rows, right - left, left=left, height=0.85, color="whitesmoke", label="window")
    axes.barh(place[runs.item[drawn]], end - begin, left=begin, height=0.6, color=shade, label="sent, darker = faster")
    early, _ = _naive(grid)
    use, seconds = _computations(grid)
    arrival = grid.seconds(solution.finish)
    use = np.maximum(use, arrival)  # a computation waits for late transfers
    naive = grid.seconds(early[order])
    axes.hlines(rows, naive, use[order], color=GREY, linewidth=1, alpha=0.6, label="wait if sent at once")
    axes.plot(naive, rows, "x", color=GREY, markersize=5, label="arrival if sent at once")
    axes.plot(arrival[order], rows, ">", color=ORANGE, markersize=5, label="arrival")
    axes.plot(use[order], rows, "d", color=GREEN, markersize=4, label="computation starts")
    real = seconds[order] > 0
    label = f"computation ({int(real.sum())} of {len(order)}; others take 0 s)"
    bars: dict[str, Any] = {"height": 0.25, "color": GREEN, "alpha": 0.4}
    axes.barh(rows[real], seconds[order][real], left=use[order][real], label=label, **bars)
    due = grid.latest.latest_s[grid.transfer]
    late = solution.finish > grid.due
    axes.plot(due[order], rows, "|", color=RED, markersize=10, label="due")
    marked: dict[str, Any] = {"color": RED, "markersize": 12, "fillstyle": "none", "label": "late"}
    axes.plot(arrival[order][late[order]], rows[late[order]], "o", **marked)
    count = part(len(order), grid.count, "transfers", "the largest")
    said = f"{count}, {int(late.sum())} late"
    axes.set(xlabel=f"time (s), slots of {slot:g} s", title=f"{solution.instance}: {said}")
    axes.set_yticks(rows, [grid.name(k) for k in order.tolist()], fontsize=7 if len(order) > 15 else 9)
    axes.invert_yaxis()
    return legend(axes)


def _naive(grid: Grid) -> tuple[NDArray[np.int64], Blocks]:
    """Send everything at once, first come first served: end slot of every transfer, and the schedule."""
    return fill(grid.out_units, grid.in_units, grid.sender, grid.receiver, grid.units, grid.start)


def _computations(grid: Grid) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Start (if all transfers are on time) and duration of the computation that each transfer feeds."""
    arrays = grid.instance.arrays
    use = arrays.arrival_s[arrays.job] + grid.latest.use_s
    return use[grid.transfer], arrays.computation_s[arrays.feeds][grid.transfer]


def plot_ports(solution: Schedule, ax: Axes | None = None) -> Axes:
    """Plot the busiest ports' loads over time, those of the schedule that sends at once, and the mean of all ports."""
    axes = axes_for(ax, 11, 4)
    grid = solution.grid
    limit = np.concatenate([grid.out_units, grid.in_units])
    names = [f"{m.name} {side}" for side in ("out", "in") for m in grid.instance.machines]
    ports = np.concatenate([grid.sender, grid.receiver + len(grid.out_units)])
    busiest = np.argsort(-np.bincount(ports, np.tile(grid.units, 2), len(limit)) / limit, kind="stable")[:PORTS_SHOWN]
    for runs, style, what in ((solution.segments, "-", ""), (_naive(grid)[1], ":", ", sent at once")):
        port, begin, end, load = port_pieces(grid, runs)
        edges = np.unique(np.concatenate([[0], begin, end]))
        share = np.zeros((len(limit), len(edges)))
        for k, a, b, units in zip(port, np.searchsorted(edges, begin), np.searchsorted(edges, end), load, strict=True):
            share[k, a:b] = units / limit[k]
        for n, k in enumerate(busiest.tolist()):
            axes.step(grid.seconds(edges), share[k], style, where="post", color=PALETTE[n], label=f"{names[k]}{what}")
        mean = f"mean of all ports{what}"
        axes.step(grid.seconds(edges), share.mean(axis=0), style, where="post", color="black", label=mean)
    axes.set(
        xlabel="time (s)",
        ylabel="share of capacity",
        ylim=(0, 1.05),
        title=f"{solution.instance}: " + part(len(busiest), len(limit), "ports", "the busiest"),
    )
    return legend(axes)


def plot_remaining(solution: Schedule, ax: Axes | None = None) -> Axes:
    """Plot the cumulative distribution of the machines' remaining egress and ingress."""
    axes = axes_for(ax, 6, 4)
    left = np.sort(solution.remaining, axis=0)
    share = np.arange(1, len(left) + 1) / len(left)
    axes.step(left[:, 0], share, where="post", color=BLUE, label="egress")
    axes.step(left[:, 1], share, where="post", color=ORANGE, label="ingress")
    axes.set(xlabel="remaining bandwidth", ylabel="share of machines", title=f"{solution.instance}: what is left")
    return legend(axes)


def plot_loads(solution: Schedule, ax: Axes | None = None) -> Axes:
    """Plot the sorted loads of this schedule and of the greedy one."""
    axes = axes_for(ax, 6, 4)
    both = ((solution.sorted_loads, "just in time", BLUE), (solution.greedy_loads(), "as early as possible", ORANGE))
    for loads, name, colour in both:
        axes.step(np.arange(1, len(loads) + 1), loads, where="mid", color=colour, label=name)
    axes.set(xlabel=f"{solution.load}s and slots, sorted", ylabel="units", title=f"{solution.instance}: sorted loads")
    axes.set_xscale("log")
    return legend(axes)
