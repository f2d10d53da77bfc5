"""Pictures of a just-in-time schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowlex.models.jit.grid import Grid, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_gantt", "plot_loads", "plot_ports", "plot_remaining"]

_SHOWN = 60


class Schedule(Protocol):
    """What the pictures need to know of a solution."""

    @property
    def instance(self) -> str: ...
    @property
    def grid(self) -> Grid: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def rate(self) -> NDArray[Any]: ...
    @property
    def load(self) -> str: ...
    @property
    def port_load(self) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @property
    def remaining(self) -> NDArray[np.float64]: ...
    @property
    def sorted_loads(self) -> NDArray[Any]: ...
    def greedy_loads(self) -> NDArray[np.int64]: ...


def plot_gantt(solution: Schedule, ax: Axes | None = None) -> Axes:
    """Transfers as bars, darker where they send more; a mark at each latest arrival time.

    The first 60 transfers by start are drawn.
    """
    axes = _axes(ax, (9, 6))
    grid, slot = solution.grid, solution.grid.instance.slot_s
    order = np.lexsort((grid.stop, grid.start))[:_SHOWN]
    most = max(float(solution.rate.max(initial=1)), 1.0)
    for y, k in enumerate(order.tolist()):
        run = slice(int(solution.runs.offset[k]), int(solution.runs.offset[k + 1]))
        rate, slots = solution.rate[run], solution.runs.slot[run]
        axes.barh(y, (grid.stop[k] - grid.start[k]) * slot, left=grid.start[k] * slot, height=0.8, color="whitesmoke")
        for n in np.flatnonzero(rate).tolist():
            alpha = 0.3 + 0.7 * float(rate[n]) / most
            axes.barh(y, slot, left=slots[n] * slot, height=0.8, color="tab:blue", alpha=alpha)
    latest = grid.latest.latest_s[grid.transfer][order]
    axes.plot(latest, np.arange(len(order)), "|", color="tab:red", markersize=9, label="latest arrival")
    axes.set(xlabel="time (s)", ylabel="transfer", title=f"{solution.instance}: {len(order)} of {grid.count} transfers")
    if len(order) <= 20:
        axes.set_yticks(range(len(order)), [grid.name(k) for k in order.tolist()], fontsize=7)
    axes.invert_yaxis()
    axes.legend(loc="lower right")
    return axes


def plot_ports(solution: Schedule, ax: Axes | None = None) -> Axes:
    """The busiest port and the mean of all, each way, as share of capacity."""
    axes = _axes(ax, (9, 4))
    grid, slot = solution.grid, solution.grid.instance.slot_s
    for load, limit, name, colour in zip(
        solution.port_load,
        (grid.out_units, grid.in_units),
        ("egress", "ingress"),
        ("tab:blue", "tab:orange"),
        strict=True,
    ):
        share = load / limit[:, None]
        time = np.arange(share.shape[1]) * slot
        axes.step(time, share.max(axis=0), where="post", color=colour, label=f"busiest {name}")
        axes.step(time, share.mean(axis=0), where="post", color=colour, linestyle=":", label=f"mean {name}")
    axes.set(xlabel="time (s)", ylabel="share of capacity", ylim=(0, 1.05), title=f"{solution.instance}: port load")
    axes.legend()
    return axes


def plot_remaining(solution: Schedule, ax: Axes | None = None) -> Axes:
    """Cumulative distribution of the machines' remaining egress and ingress."""
    axes = _axes(ax, (6, 4))
    left = np.sort(solution.remaining, axis=0)
    share = np.arange(1, len(left) + 1) / len(left)
    axes.step(left[:, 0], share, where="post", label="egress")
    axes.step(left[:, 1], share, where="post", label="ingress")
    axes.set(xlabel="remaining bandwidth", ylabel="share of machines", title=f"{solution.instance}: what is left")
    axes.legend()
    return axes


def plot_loads(solution: Schedule, ax: Axes | None = None) -> Axes:
    """Sorted loads of this schedule and of the greedy one."""
    axes = _axes(ax, (6, 4))
    for loads, name in ((solution.sorted_loads, "just in time"), (solution.greedy_loads(), "as early as possible")):
        axes.step(np.arange(1, len(loads) + 1), loads, where="mid", label=name)
    axes.set(xlabel=f"{solution.load}s and slots, sorted", ylabel="units", title=f"{solution.instance}: sorted loads")
    axes.set_xscale("log")
    axes.legend()
    return axes


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size)[1]
