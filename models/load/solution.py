"""A partition: the items of each node, the moves, and the finish times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flowlex.formulations.plot_style import BLUE, GREY, MOST_BARS, axes_for, legend, name_places
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.load import LoadPartitionInstance
from flowlex.models.model_base import Solution
from flowlex.validation.certificates.exact_numbers import text, written

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def finish_times(after: Integers, speed: Floats) -> Floats:
    """Return the time of each node, (N,): items over speed; 0 without items, infinite at speed 0."""
    finish = np.full(len(after), np.inf)
    np.divide(after, speed, out=finish, where=speed > 0)
    finish[after == 0] = 0.0
    return finish


@dataclass(frozen=True, kw_only=True)
class PartitionSolution(Solution):
    """An assignment of items to nodes. The objective is the cost of moves in seconds.

    Attributes
    ----------
    capacity
        (N,) capacity by the chosen evaluation.
    before, after
        (N,) items stored on each node; items that it processes.
    parts
        (P,) block, node and number of items of each part, sorted by block and node; None without a solution.
    moves
        (N, N) items moved between each pair of nodes.
    exact_objective_s, exact_bound_s
        Objective and bound as exact rational numbers; None if there are none.
    node_price
        Exact dual of each node, in seconds per additional item; None if the engine returns no duals.
    """

    row_name: ClassVar[str] = "node"
    decision: ClassVar[tuple[str, ...]] = ("x",)

    source: LoadPartitionInstance = field(repr=False)
    capacity: Floats = field(repr=False)
    before: Integers = field(repr=False)
    after: Integers = field(repr=False)
    parts: tuple[Integers, Integers, Integers] | None = field(default=None, repr=False)
    moves: Integers = field(repr=False)
    node_price: dict[str, Fraction] | None = field(default=None, repr=False)
    exact_objective_s: Fraction | None = field(default=None, repr=False)
    exact_bound_s: Fraction | None = field(default=None, repr=False)

    @property
    def share(self) -> Integers | None:
        """(B, N) items of each block that each node processes; None without a solution."""
        if self.parts is None:
            return None
        block, node, items = self.parts
        share = np.zeros((len(self.source.blocks), len(self.before)), np.int64)
        share[block, node] = items
        return share

    @property
    def targets(self) -> dict[str, int]:
        """Items that each node processes."""
        return {n.name: int(k) for n, k in zip(self.source.nodes, self.after, strict=True)}

    @property
    def finish(self) -> Floats:
        """(N,) expected finish time: items over capacity (seconds if the capacity is a speed)."""
        return finish_times(self.after, self.capacity)

    @property
    def true_finish(self) -> Floats | None:
        """(N,) finish time at the true speeds, seconds; None if the instance lacks one of them."""
        speeds = [node.true_items_per_s for node in self.source.nodes]
        if any(speed is None for speed in speeds):
            return None
        return finish_times(self.after, np.array(speeds, np.float64))

    @property
    def moved_items(self) -> int:
        """Number of moved items."""
        return int(self.moves.sum())

    def _columns(self) -> dict[str, Any]:
        """One row per node: capacity, items before and after, sent, received, expected finish, true finish."""
        columns: dict[str, Any] = {
            "node": [node.name for node in self.source.nodes],
            "capacity": self.capacity,
            "before": self.before,
            "after": self.after,
            "sent": self.moves.sum(axis=1),
            "received": self.moves.sum(axis=0),
            "finish": self.finish,
        }
        if self.true_finish is not None:
            columns["true_finish_s"] = self.true_finish
        return columns

    def move_frame(self) -> pd.DataFrame:
        """One row per pair of nodes between which items move: items and seconds."""
        import pandas as pd

        self.require_answer()
        names = [node.name for node in self.source.nodes]
        rows = [(names[h], names[n], items, float(items * self._seconds(h, n))) for h, n, items in self._moved()]
        return pd.DataFrame(rows, columns=["source", "target", "items", "seconds"])

    def _metrics(self) -> dict[str, float | int | str]:
        """Moved items and cost, expected and true makespan."""
        figures: dict[str, float | int | str] = {
            "moved_items": self.moved_items,
            "moved_cost_s": float(sum((items * self._seconds(h, n) for h, n, items in self._moved()), Fraction(0))),
            "latest_finish": float(self.finish.max()),
            "earliest_finish": float(self.finish.min()),
        }
        if self.true_finish is not None:
            figures["latest_true_finish_s"] = float(self.true_finish.max())
            figures["earliest_true_finish_s"] = float(self.true_finish.min())
        return figures

    def _answer(self) -> dict[str, Any]:
        """Items by node, moves, and the split of every block."""
        assert self.parts is not None
        names = [node.name for node in self.source.nodes]
        blocks: dict[str, dict[str, int]] = {block.name: {} for block in self.source.blocks}
        for b, n, items in zip(*(column.tolist() for column in self.parts), strict=True):
            blocks[self.source.blocks[b].name][names[n]] = items
        moves = [
            {"source": names[h], "target": names[n], "items": items, "seconds": written(items * self._seconds(h, n))}
            for h, n, items in self._moved()
        ]
        return {"items": self.targets, "moves": moves, "blocks": blocks}

    def to_dict(self) -> dict[str, Any]:
        """Return the solution file, with objective and bound as text if no float is exact."""
        exact = {"objective": self.exact_objective_s, "bound": self.exact_bound_s}
        stated = {name: written(value) for name, value in exact.items() if value is not None}
        return super().to_dict() | stated

    def _moved(self) -> Iterator[tuple[int, int, int]]:
        """Yield source, target and number of items of every move."""
        for h, n in np.argwhere(self.moves).tolist():
            yield h, n, int(self.moves[h, n])

    def _seconds(self, source: int, target: int) -> Fraction:
        """Return the seconds to move one item."""
        each: tuple[Fraction, ...] = self.source.arrays.seconds
        return each[int(self.source.arrays.cost[source, target])]

    def _proof(self) -> dict[str, Any]:
        """Multipliers of the rows ``node``: what an item costs its node; the checker completes those of the others."""
        if self.node_price is None:
            return {}
        node = {name: text(-price) for name, price in self.node_price.items() if price}
        leaf = {"rows": {"node": {"at": node}}, "complete": ["holder", "group"]}
        return {"format": 3, "stages": {"moved": [leaf]}}

    def _draw(self, ax: Axes | None) -> Axes:
        """Plot items per node before and after, with the expected finish time above each bar."""
        axes, place = axes_for(ax, 6 + 0.2 * len(self.before), 4.5), np.arange(len(self.before))
        if 2 * len(place) > MOST_BARS:
            for items, colour, label in ((self.before, GREY, "before"), (self.after, BLUE, "after")):
                axes.step(place, np.sort(items)[::-1], where="mid", color=colour, label=label)
            axes.set_xlabel(f"{len(place)} nodes, each line sorted")
        else:
            axes.bar(place - 0.2, self.before, 0.4, label="before", color=GREY)
            bars = axes.bar(place + 0.2, self.after, 0.4, label="after, with its expected finish", color=BLUE)
            if len(place) <= 30:
                for above in axes.bar_label(bars, [f"{time:.3g} s" for time in self.finish], fontsize=7, padding=2):
                    above.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5})
            name_places(axes.xaxis, [n.name for n in self.source.nodes])
        axes.set(ylabel="items", title=f"{self.instance}: {self.moved_items} items move")
        return legend(axes)
