"""Plots of a run: Gantt chart of tasks, length of the queue, utilisation of places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.plot_style import BLUE, PALETTE, legend, name_places, part
from flowlex.systems.simulation.cluster.run_metrics import stays
from flowlex.systems.simulation.event_log import RunLog

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Most places in a Gantt chart; more would be unreadable.
_MOST_PLACES = 120


def plot_gantt(log: RunLog, ax: Axes) -> Axes:
    """One line per place, one bar per task, a colour per job; reading is pale, stopped tasks are hatched."""
    found = list(stays(log))
    every = list(dict.fromkeys(sorted(stay.place for stay in found)))
    places = every[:_MOST_PLACES]
    jobs = list(dict.fromkeys(stay.job for stay in sorted(found, key=lambda stay: stay.start_s)))
    row = {place: k for k, place in enumerate(places)}
    for stay in found:
        if stay.place not in row:
            continue
        colour = PALETTE[jobs.index(stay.job) % len(PALETTE)]
        computed = stay.end_s if stay.computed_s is None else stay.computed_s
        hatch = None if stay.ended else "///"
        ax.barh(row[stay.place], computed - stay.start_s, left=stay.start_s, color=colour, alpha=0.4, hatch=hatch)
        ax.barh(row[stay.place], stay.end_s - computed, left=computed, color=colour, hatch=hatch)
    name_places(ax.yaxis, places)
    what = part(len(places), len(every), "places", "the first by name")
    ax.set(xlabel="time (s)", title=f"tasks on {what} (pale: reading; hatched: stopped)")
    return ax


def _steps(log: RunLog, up: str, down: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return times, and a count that increases with one event and decreases with others."""
    changes = [(record["at_s"], 1 if record["event"] == up else -1) for record in log.of(up, *down)]
    times = np.array([0.0, *(at_s for at_s, _ in changes)])
    return times, np.concatenate([[0], np.cumsum([step for _, step in changes])])


def plot_queue(log: RunLog, ax: Axes) -> Axes:
    """Plot the number of ready tasks that wait, over time."""
    ax.step(*_steps(log, "ready", ("start", "withdraw")), where="post", color=BLUE)
    ax.set(xlabel="time (s)", ylabel="waiting tasks")
    return ax


def plot_utilisation(log: RunLog, ax: Axes) -> Axes:
    """Plot the fraction of each resource that tasks hold, over time."""
    total: dict[str, int] = log.header["units"]
    level = dict.fromkeys(total, 0)
    held: dict[str, dict[str, int]] = {}
    times, levels = [0.0], [dict(level)]
    for record in log.of("start", "end", "stop"):
        starts = record["event"] == "start"
        demand = record["units"] if starts else held.pop(record["task"])
        if starts:
            held[record["task"]] = demand
        for name, much in demand.items():
            level[name] += much if starts else -much
        times.append(record["at_s"])
        levels.append(dict(level))
    for k, (name, much) in enumerate(total.items()):
        colour = PALETTE[k % len(PALETTE)]
        ax.step(times, [now[name] / much for now in levels], where="post", color=colour, label=name)
    ax.set(xlabel="time (s)", ylabel="share in use", ylim=(0, 1.05))
    return legend(ax)


PLOTS: Mapping[str, Callable[[RunLog, Axes], Axes]] = {
    "gantt": plot_gantt,
    "queue": plot_queue,
    "utilisation": plot_utilisation,
}
