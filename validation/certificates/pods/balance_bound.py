r"""Prove that no placement with the same admission has more even loads, by multipliers that are evaluated here.

For N nodes with loads u_i and mean m, the bounded measure is F = sum (u_i - m)^2 (deviation), sum |u_i - m| (mean
absolute) or max u_i. Each piece of a proof holds for means in [low, high]; pieces for the first two cover [0, 1].

*Straight* pieces: slopes a_k of classes of nodes and prices of resources. For all loads,

    sum (u_i - m)^2 >= sum a_i u_i - sum a_i^2 / 4     for slopes of sum 0,
    sum |u_i - m|   >= sum a_i u_i                     for slopes of sum 0, the largest at most 2 above the least,
    max u_i         >= sum a_i u_i                     for slopes >= 0 of sum 1,

which is linear in the placement, so that prices bound it from below (see `price_bound`).

*Patterns*: prices e_g of pods. With the mean in [low, high],

    sum (u_i - m)^2 >= sum (u_i - low)(u_i - high),     sum |u_i - m| >= sum max(0, u_i - high, low - u_i),

and for every node a search finds the least of this cost minus the prices of its pods (see `best_node_pattern`). If all
loads are at most ``high``, a sum above 0 refutes that the largest load can be ``high`` or less.

Both may add a price of the mean, and include the least cost of the pods at these prices, given how many of every level
are placed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from pydantic import Field

from flowlex.validation.certificates.pods.node_classes import node_classes
from flowlex.validation.certificates.pods.price_bound import Population, Price, PriceBound, Priced
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.verifier_interface import Strict

#: Steps of the search for the best pattern of one class of nodes.
_STEPS = 4_000_000
#: Bound on the rounding error of a sum, relative to the absolute sum of its terms.
_ROUNDING = 1e-11


class Piece(Strict):
    """Multipliers for means between two loads (for the largest load: patterns up to ``high``)."""

    low: Price
    high: Price
    mean: Price = 0.0
    """Price of the sum of all loads."""
    move: Price = 0.0
    """Price of a unit of the move budget."""
    classes: list[Priced] = Field(default=[])
    """Straight pieces: slopes and prices of resources of all nodes."""
    pods: dict[str, Price] | None = None
    """Patterns: price of each kind of pods, by the name of one of them; 0 for those left out."""


def least_balance(
    people: Population,
    measure: str,
    pieces: list[Piece],
    placed: Mapping[str, Fraction],
    near: float,
    budget: Budget | None = None,
) -> float:
    """The largest lower bound on the balance that the pieces prove; 0 if they prove nothing.

    ``placed``: amount placed, by level. ``near``: the expected bound, which sets the precision of pattern searches.
    ``budget``: once it is spent, the remaining pieces prove nothing.
    """
    budget = budget or Budget()
    if measure == "max_load":
        return max((_largest(people, piece, placed) for piece in pieces if not budget.spent), default=0.0)
    reached, least, size = 0.0, math.inf, len(people.instance.nodes)
    for piece in sorted(pieces, key=lambda each: (each.low, each.high)):
        if piece.low > reached or budget.spent:
            break
        value = _straight(people, measure, piece, placed)
        if piece.pods is not None:
            value = max(value, _patterned(people, measure, piece, placed, near))
        least, reached = min(least, value), max(reached, piece.high)
    if reached < 1 or not least > 0:
        return 0.0
    return math.sqrt(least / size) if measure == "deviation" else least / size


def _sum(parts: list[float]) -> float:
    """A lower bound on the sum in spite of rounding."""
    total = math.fsum(parts)
    return total - _ROUNDING * math.fsum(abs(part) for part in parts) if math.isfinite(total) else total


def _straight(people: Population, measure: str, piece: Piece, placed: Mapping[str, Fraction]) -> float:
    """The bound that slopes and prices of resources prove over the interval of a piece."""
    if not piece.classes:
        return 0.0
    count = [len(priced.nodes) for priced in piece.classes]
    size = sum(count)
    if sorted(name for priced in piece.classes for name in priced.nodes) != sorted(people.node):
        raise ValueError("the classes of a proof of the balance are not the nodes of the instance")
    slope = [priced.slope for priced in piece.classes]
    if measure == "max_load":
        slope = [max(0.0, each) for each in slope]
        total = math.fsum(n * each for n, each in zip(count, slope, strict=True))
        slope = [each / total for each in slope] if total > 0 else [1.0 / size] * len(slope)
    else:
        middle = math.fsum(n * each for n, each in zip(count, slope, strict=True)) / size
        slope = [each - middle for each in slope]
    spread = 2.0 * (1 + 1e-12)
    if measure == "mean_absolute" and max(slope) - min(slope) > spread:
        raise ValueError(f"slopes of a proof of the balance are {max(slope) - min(slope):g} apart, 2 is the most")
    curve = [n * each * each / 4 for n, each in zip(count, slope, strict=True)] if measure == "deviation" else []
    sloped = [
        priced.model_copy(update={"slope": each + piece.mean})
        for priced, each in zip(piece.classes, slope, strict=True)
    ]
    bound = PriceBound(people, sloped, piece.move, sloped=True)
    price = [bound.least(k) for k in range(len(people.pod))]
    held = [len(people.groups[k]) * price[k] for k in range(len(price)) if people.held(k)]
    parts = [people.least_cost(price, placed, [math.isfinite(each) for each in price]), *held, -bound.rent()]
    return _sum([*parts, *(-each for each in curve), _mean_part(piece, size)])


def _mean_part(piece: Piece, size: int) -> float:
    """Contribution of the price of the mean, at the worse end of the interval."""
    return -size * max(piece.mean * piece.low, piece.mean * piece.high) if piece.mean else 0.0


def _patterned(people: Population, measure: str, piece: Piece, placed: Mapping[str, Fraction], near: float) -> float:
    """The bound that prices of pods prove over the interval of a piece."""
    from flowlex.validation.certificates.pods.best_node_pattern import CAPPED, OUTSIDE, SQUARED

    law = {"deviation": SQUARED, "mean_absolute": OUTSIDE, "max_load": CAPPED}[measure]
    price, move = people.by_group(piece.pods or {}), max(0.0, piece.move)
    fine = 5e-7 * max(near, 1e-4) if law == SQUARED else 2e-7
    parts = [people.least_cost(price, placed, people.able), -move * people.budget]
    for nodes in node_classes(people):
        parts.append(-nodes.many * nodes.best(price, move, law, piece.low, piece.high, piece.mean, fine, _STEPS))
    parts.append(_mean_part(piece, len(people.instance.nodes)))
    if math.inf in parts:  # nothing fits a class or a level: there is no such placement
        return -math.inf if -math.inf in parts else math.inf
    return _sum(parts)


def _largest(people: Population, piece: Piece, placed: Mapping[str, Fraction]) -> float:
    """The largest load that a piece proves: by slopes, or because patterns with smaller loads do not suffice."""
    piece = piece.model_copy(update={"mean": 0.0})  # the mean may be outside of the piece's interval
    value = _straight(people, "max_load", piece, placed)
    if piece.pods is None or piece.high <= value:
        return value
    least = _patterned(people, "max_load", piece, placed, piece.high)
    return max(value, piece.high if least > 0 else 0.0)
