"""The Gantt chart of a just-in-time schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.plot_style import BLUE, GREEN, GREY, ORANGE, RED, axes_for, legend, part
from flowlex.models.jit.baselines import fill

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Largest number of transfers in a plot.
SHOWN = 40


def plot_gantt(solution: Any, ax: Axes | None = None) -> Axes:
    """Plot the transfers of a `JitSolution` as bars (darker: higher rate), with arrival, due time and computation.

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
    early, _ = fill(grid.out_units, grid.in_units, grid.sender, grid.receiver, grid.units, grid.start)
    arrays, arrival = grid.instance.arrays, grid.seconds(solution.finish)
    seconds = arrays.computation_s[arrays.feeds][grid.transfer]
    # A computation starts as planned, unless it waits for late transfers.
    use = np.maximum((arrays.arrival_s[arrays.job] + grid.latest.use_s)[grid.transfer], arrival)
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
