"""Algorithm 1 of the paper, and a comparison of all evaluations at the true speeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import EngineName
from flowlex.instances.load import LoadPartitionInstance
from flowlex.models.load.model import LoadPartition
from flowlex.models.load.node_speed import EVALUATIONS, capacities, largest_remainder
from flowlex.models.load.partition_network import moved_cost
from flowlex.models.load.solution import finish_times
from flowlex.models.model_base import ModelError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Algorithm1:
    """Result of algorithm 1: moves (N, N), loads after the moves (N,), exact cost in seconds."""

    moves: Integers
    after: Integers
    cost_s: Fraction

    @property
    def moved_items(self) -> int:
        """Number of moved items."""
        return int(self.moves.sum())


def algorithm1(instance: LoadPartitionInstance, capacity: Sequence[float | Fraction] | Floats) -> Algorithm1:
    """Repeat: move ``min(excess, deficit)`` from a node above its target to a node below, until all are at target.

    The paper does not specify the order; here both nodes are the first in the order of the instance. Targets are those
    of the model (largest remainder), so both methods end with the same loads.
    """
    view = instance.arrays
    targets = largest_remainder(capacity, int(view.load.sum()))
    surplus = (view.load - targets).tolist()
    moves = np.zeros(view.cost.shape, np.int64)
    high = [i for i, s in enumerate(surplus) if s > 0]
    low = [i for i, s in enumerate(surplus) if s < 0]
    while high and low:
        h, n = high[0], low[0]
        amount = min(surplus[h], -surplus[n])
        moves[h, n] += amount
        surplus[h] -= amount
        surplus[n] += amount
        high, low = high[surplus[h] == 0 :], low[surplus[n] == 0 :]
    return Algorithm1(moves, targets, moved_cost(view, moves))


def compare(instance: LoadPartitionInstance, *, engine: EngineName = "network") -> pd.DataFrame:
    """Compare finish times at the true speeds under each evaluation, for algorithm 1 and for the model.

    Raises
    ------
    ModelError
        The instance has no true speeds, or has no data for any evaluation.
    """
    import pandas as pd

    if any(node.true_items_per_s is None for node in instance.nodes):
        name = next(node.name for node in instance.nodes if node.true_items_per_s is None)
        raise ModelError(f"node {name!r} has no true_items_per_s; comparing evaluations needs the true speeds")
    truth = np.array([node.true_items_per_s for node in instance.nodes], np.float64)
    make: Callable[..., LoadPartition] = LoadPartition
    rows = [_row("none", "as it lies", finish_times(instance.arrays.load, truth), 0, 0.0)]
    missing = ""
    for evaluation in EVALUATIONS:
        try:
            capacity = capacities(instance.nodes, evaluation)
        except ModelError as error:
            missing = str(error)
            continue
        greedy = algorithm1(instance, capacity)
        rows.append(
            _row(evaluation, "algorithm 1", finish_times(greedy.after, truth), greedy.moved_items, float(greedy.cost_s))
        )
        variants: dict[str, dict[str, Any]] = {
            "targets": {},
            "targets, replicas": {"level": "item"},
            "makespan, replicas": {"level": "item", "objective": "makespan"},
        }
        for label, options in variants.items():
            solution = make(instance, capacity=evaluation, **options).solve(engine)
            finish = finish_times(solution.after, truth)
            rows.append(_row(evaluation, label, finish, solution.moved_items, float(solution.objective or 0)))
    if len(rows) == 1:
        raise ModelError(f"no evaluation has its figures: {missing}")
    return pd.DataFrame(rows).set_index(["capacity", "method"])


def _row(capacity: str, method: str, finish: Floats, moved: int, seconds: float) -> dict[str, str | float | int]:
    latest = float(finish.max())
    return {
        "capacity": capacity,
        "method": method,
        "true finish, latest s": latest,
        "true finish, earliest s": float(finish.min()),
        "unevenness": float((latest - finish.min()) / latest) if latest else 0.0,
        "moved items": moved,
        "moved cost s": seconds,
    }
