"""Sizes of numbers that the network simplex can take: no sum may leave 64 bits."""

from __future__ import annotations

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.outcome import EngineError

__all__ = ["check_magnitudes", "finite_upper"]

#: Path costs and flows stay below this, so that no sum in the network simplex can leave 64 bits.
_SAFE = 2**60


def check_magnitudes(network: FlowNetwork) -> None:
    """Refuse costs or capacities whose sums could leave 64 bits, naming the largest.

    Raises
    ------
    EngineError
        With the offending arc and the limit.
    """
    cost = np.abs(network.cost.astype(np.float64))
    if len(cost):
        keep = min(len(cost), max(network.node_count - 1, 1))
        path = float(cost.max()) * keep
        if path >= _SAFE:  # a closer look
            path = float(np.partition(cost, len(cost) - keep)[len(cost) - keep :].sum())
        if path >= _SAFE:
            arc = int(np.argmax(cost))
            raise EngineError(
                f"integer overflow: costs along a path can reach {path:.3g}, the limit is {_SAFE}; the largest "
                f"is {network.cost[arc]} on {network.describe_arc(arc)}. Use a coarser cost unit"
            )
    bounded = network.upper != UNBOUNDED
    flows = np.abs(network.lower.astype(np.float64)) + np.where(bounded, np.abs(network.upper.astype(np.float64)), 0)
    total = float(flows.sum()) + float(np.abs(network.supply.astype(np.float64)).sum())
    if total >= _SAFE:
        _check_large_capacities(network, total)


def _check_large_capacities(network: FlowNetwork, total: float) -> None:
    """Huge capacities are harmless unless they are saturated (negative cost) or must be summed."""
    forced = (network.cost < 0) | (network.upper == UNBOUNDED) | (network.lower != 0)
    sizes = np.maximum(np.abs(network.lower.astype(np.float64)), np.abs(network.upper.astype(np.float64)))
    supplies = float(np.abs(network.supply.astype(np.float64)).sum())
    if float(sizes[forced].sum()) + supplies >= _SAFE or (len(sizes) and float(sizes.max()) >= 4 * _SAFE):
        arc = int(np.argmax(np.where(forced, sizes, 0)))
        raise EngineError(
            f"integer overflow: supplies and bounds sum to {total:.3g}, the limit is {_SAFE}; the largest is on "
            f"{network.describe_arc(arc)}. Use a coarser unit of flow"
        )


def finite_upper(network: FlowNetwork) -> Integers:
    """Capacities with every missing one replaced by more than any bounded optimum can send."""
    missing = network.upper == UNBOUNDED
    if not missing.any():
        return network.upper
    sendable = int(np.abs(network.supply).sum() + np.abs(network.lower).sum() + np.abs(network.upper[~missing]).sum())
    filled = int((missing & (network.cost < 0)).sum())  # start out full, so their capacities are summed
    if (filled + 2) * (sendable + 1) >= _SAFE:
        raise EngineError(
            f"integer overflow: {filled} arcs of negative cost have no capacity and supplies and bounds sum to "
            f"{sendable}; the limit of their product is {_SAFE}. Use a coarser unit of flow, or bound these arcs"
        )
    return np.where(missing, np.maximum(network.lower, 0) + sendable + 1, network.upper)
