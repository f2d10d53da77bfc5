"""Solution files of load partition, judged from the instance in exact arithmetic.

Capacities, targets (largest remainders) or the least makespan, loads and moves are recomputed. A dual value per node
proves that no moves cost less: see `_bound`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational
from flowlex.instances.load import LoadPartitionInstance
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.exact_numbers import agrees, whole, wide
from flowlex.validation.certificates.load_formulation import capacity_of, quotas, state_load
from flowlex.validation.certificates.problem_options import LoadOptions
from flowlex.validation.certificates.verifier_interface import Claimed, Finding, Numeric, Strict, Verifier

#: Relative difference of stated duals that floating point explains.
_ROUNDING = 1e-9


class Move(Strict):
    """Items that go from one node to another, and the seconds that takes."""

    source: str
    target: str
    items: int
    seconds: Numeric


class LoadAnswer(Strict):
    """Items of each node, moves between nodes, and how many items of each block every node processes."""

    items: dict[str, int]
    moves: list[Move]
    blocks: dict[str, dict[str, int]]


class LoadProof(Strict):
    """``node_price_s``: exact seconds by node; every group of items pays the cheapest sum of move and price."""

    node_price_s: dict[str, Numeric] | None = None


def _earlier(capacity: Sequence[Fraction], after: list[int]) -> tuple[Fraction, int]:
    """The time at which the last node ends, and the number of items that all nodes can finish strictly before it."""
    finish = max((n / c for n, c in zip(after, capacity, strict=True) if c), default=Fraction(0))
    return finish, sum(max(0, -(-(c * finish).numerator // (c * finish).denominator) - 1) for c in capacity)


@dataclass(frozen=True, eq=False)
class _Moves:
    """Costs of moves, (N, N) integers in units of ``1 / per_s`` seconds; (B, N) nodes that hold each block."""

    cost: NDArray[np.int64]
    per_s: int
    holds: NDArray[np.bool_]

    @classmethod
    def of(
        cls, instance: LoadPartitionInstance, place: dict[str, int], level: str, prices: Sequence[Fraction]
    ) -> _Moves:
        """Costs of moves in a unit that divides the prices, too."""
        usual, links = rational(instance.seconds_per_item), [rational(link.seconds_per_item) for link in instance.links]
        per_s = math.lcm(*(x.denominator for x in (usual, *links, *prices)))
        each = wide(whole([int(usual * per_s), *(int(seconds * per_s) for seconds in links)]))
        cost = np.full((len(place), len(place)), each[0], dtype=each.dtype)
        cost[[place[x.source] for x in instance.links], [place[x.target] for x in instance.links]] = each[1:]
        np.fill_diagonal(cost, 0)
        view = instance.arrays
        holds = view.holds if level == "item" else np.arange(len(place)) == view.home[:, None]
        return cls(cost, per_s, holds)

    def needed(self, share: dict[tuple[int, int], int]) -> Counter[tuple[int, int]]:
        """Moves that shares need: items that a node does not hold come from the first cheapest holder."""
        needed = Counter[tuple[int, int]]()
        block, holder = np.nonzero(self.holds)
        first = np.searchsorted(block, np.arange(len(self.holds) + 1))
        for (b, n), items in share.items():
            if not self.holds[b, n]:
                holders = holder[first[b] : first[b + 1]]
                needed[int(holders[self.cost[holders, n].argmin()]), n] += items
        return needed


def _judge(claimed: Claimed) -> Finding:
    instance, document, answer = claimed.instance, claimed.document, claimed.answer
    options, view = document.options, claimed.instance.arrays
    names = [node.name for node in instance.nodes]
    place, block = {name: i for i, name in enumerate(names)}, {b.name: k for k, b in enumerate(instance.blocks)}
    stated_prices = claimed.proof.node_price_s
    prices = None if stated_prices is None else {node: rational(price) for node, price in stated_prices.items()}
    moves = _Moves.of(instance, place, options["level"], list((prices or {}).values()))
    share = {(block[b], place[n]): items for b, split in answer.blocks.items() for n, items in split.items()}
    after, of_block = _sums(share, len(names), len(block))
    needed = moves.needed(share)
    cost = sum(items * int(moves.cost[pair]) for pair, items in needed.items())
    checks = [
        Check("no negative share", min(share.values(), default=0) >= 0),
        Check("every item is processed once", of_block == [b.items for b in instance.blocks]),
        Check("items of every node", answer.items == dict(zip(names, after, strict=True))),
        _carried(needed, answer.moves, place),
        _seconds(moves, answer.moves, place),
    ]
    objective = Fraction(cost, moves.per_s)
    moved = sum(move.items for move in answer.moves)
    metrics: dict[str, Any] = {"moved_items": moved, "moved_cost_s": objective}
    evaluation = str(options["capacity"])
    if evaluation not in ("configuration", "cpu_load", "history", "performance"):
        checks.append(Check("capacities", True, detail=f"by {evaluation}, a function that no file holds", how="quoted"))
        ends = document.metrics.keys() - metrics.keys()
        return Finding("feasible", tuple(checks), objective, objective, metrics=metrics, unjudged=ends)
    metrics |= _finishes(instance, evaluation, after)
    limit, found = _limits(instance, evaluation, after, options["objective"] == "makespan")
    checks += found
    excess = None if options["objective"] == "makespan" or options["level"] == "item" else view.load > whole(limit)
    if excess is not None:
        back = [names[h] for h, n in sorted(needed) if not excess[h] or excess[n]]
        checks.append(Check("only nodes above their target send", not back, len(back), ", ".join(back[:3])))
    late = claimed.budget.spent
    if document.duals and late:
        checks.append(claimed.budget.quoted("duals prove the seconds of the moves"))
    elif document.duals:
        checks.append(_duals(moves, instance, limit, excess, document.duals, cost))
    optimal = document.status == "optimal"
    if prices is None or late:
        if late:
            checks.append(claimed.budget.quoted("no partition of these loads moves for less"))
        elif optimal:
            checks.append(
                Check("optimal: no partition moves for less", True, detail=f"says {document.engine}", how="quoted")
            )
        return Finding("feasible", tuple(checks), objective, objective if optimal else None, metrics=metrics)
    bound, says = _bound(moves, instance, limit, prices, place, excess)
    if not (optimal or bound >= cost or says):
        return Finding("bounded", tuple(checks), objective, Fraction(bound, moves.per_s), metrics=metrics)
    detail = says or f"at least {bound} of 1/{moves.per_s} s, here {cost}"
    ok = bound >= cost and not says
    checks.append(Check("no partition of these loads moves for less", ok, max(0, cost - bound), detail))
    return Finding("optimal", tuple(checks), objective, objective, metrics=metrics)


def _sums(share: dict[tuple[int, int], int], nodes: int, blocks: int) -> tuple[list[int], list[int]]:
    """Items of every node, and of every block."""
    after, of_block = [0] * nodes, [0] * blocks
    for (b, n), items in share.items():
        after[n] += items
        of_block[b] += items
    return after, of_block


def _finishes(instance: LoadPartitionInstance, evaluation: str, after: list[int]) -> dict[str, Any]:
    """When the first and the last node end, by capacity and by true speed; a node without items ends at once."""
    speeds = {"_finish": [capacity_of(node, evaluation) for node in instance.nodes]}
    if all(node.true_items_per_s is not None for node in instance.nodes):
        speeds["_true_finish_s"] = [rational(node.true_items_per_s or 0) for node in instance.nodes]
    found: dict[str, Any] = {}
    for name, speed in speeds.items():
        ends = [items / c if items else Fraction(0) for items, c in zip(after, speed, strict=True)]
        found |= {f"latest{name}": max(ends), f"earliest{name}": min(ends)}
    return found


def _limits(
    instance: LoadPartitionInstance, evaluation: str, after: list[int], makespan: bool
) -> tuple[list[int], list[Check]]:
    """Items that each node must process, or may process within the least makespan; and checks of that."""
    capacity, total = [capacity_of(node, evaluation) for node in instance.nodes], sum(b.items for b in instance.blocks)
    checks = []
    limit = [] if makespan else quotas(capacity, total)
    if makespan:
        finish, earlier = _earlier(capacity, after)
        detail = f"{earlier} of {total} items before"
        checks.append(Check("no partition finishes earlier", earlier < total or not total, detail=detail))
        limit = [int(c * finish) for c in capacity]
    judged = zip(instance.nodes, after, limit, strict=True)
    wrong = [node.name for node, a, t in judged if (a > t if makespan else a != t)]
    says = "every node ends by the least makespan" if makespan else "every node has its target"
    return limit, [*checks, Check(says, not wrong, len(wrong), ", ".join(wrong[:3]))]


def _carried(needed: Counter[tuple[int, int]], stated: list[Move], place: dict[str, int]) -> Check:
    moves = Counter[tuple[int, int]]()
    if any(move.items < 1 for move in stated):
        return Check("moves are those of the blocks", False, detail="a move of no items, or fewer")
    for move in stated:
        moves[place[move.source], place[move.target]] += move.items
    names = list(place)
    wrong = [f"{names[h]} to {names[n]}" for h, n in sorted({*moves, *needed}) if moves[h, n] != needed[h, n]]
    return Check("moves are those of the blocks", not wrong, len(wrong), ", ".join(wrong[:3]))


def _seconds(moves: _Moves, stated: list[Move], place: dict[str, int]) -> Check:
    wrong = []
    for m in stated:
        cost = m.items * int(moves.cost[place[m.source], place[m.target]])
        if not agrees(m.seconds, Fraction(cost, moves.per_s)):
            wrong.append(f"{m.source} to {m.target}")
    return Check("seconds of the moves", not wrong, len(wrong), ", ".join(wrong[:3]))


def _bound(
    moves: _Moves,
    instance: LoadPartitionInstance,
    limit: list[int],
    prices: dict[str, Fraction],
    place: dict[str, int],
    excess: NDArray[np.bool_] | None,
) -> tuple[int, str]:
    """Lower bound on moving costs by prices p, ``sum over items of min (cost + p) - sum limit p``; what is wrong.

    With ``excess`` nodes above their target only send and the others only receive.
    """
    if prices.keys() - place.keys():
        return 0, f"{min(prices.keys() - place.keys())!r} is no node"
    price = wide(whole(int(prices.get(node, Fraction(0)) * moves.per_s) for node in place))
    # If loads may fall short of their limits, prices must not be negative; exact targets allow any sign.
    exact_loads = sum(limit) == sum(block.items for block in instance.blocks)
    if not exact_loads and (price < 0).any():
        return 0, "a price below zero"
    room = whole(limit) > 0
    best = price.copy()
    if excess is None:
        if room.any():
            best = (moves.cost[:, room] + price[room]).min(axis=1)
    elif excess.any():
        best[excess] = np.minimum(price[excess], (moves.cost[np.ix_(excess, ~excess)] + price[~excess]).min(axis=1))
    block, holder = np.nonzero(moves.holds)
    each = np.minimum.reduceat(best[holder], np.flatnonzero(np.diff(block, prepend=-1))) if len(block) else best[:0]
    paid = sum(b.items * least for b, least in zip(instance.blocks, each.tolist(), strict=True))
    return paid - sum(p * t for p, t in zip(price.tolist(), limit, strict=True)), ""


def _duals(
    moves: _Moves,
    instance: LoadPartitionInstance,
    limit: list[int],
    excess: NDArray[np.bool_] | None,
    stated: dict[str, dict[str, Any]],
    cost: int,
) -> Check:
    """Stated prices of blocks (a), holders (h) and nodes (q) are dual feasible and prove the cost, in floating point.

    Feasible means a <= h for every holder of a block, and h <= cost + q_i for a move to node i; a node takes t items
    for t q. If loads may fall short of their limits, node prices count only above an item's price level e (the best e).
    """
    names = [node.name for node in instance.nodes]
    if stated.keys() != {"group", "holder", "node"} or any(stated[k].keys() != set(names) for k in ("holder", "node")):
        return Check("duals of blocks, holders and nodes", False, detail=", ".join(stated)[:60])
    holder, node = (np.array([float(rational(stated[k][name])) for name in names]) for k in ("holder", "node"))
    of_group = {moves.holds[k].tobytes(): b.name for k, b in reversed(list(enumerate(instance.blocks)))}
    items = dict.fromkeys(of_group.values(), 0)
    least = dict.fromkeys(items, np.inf)
    for k, block in enumerate(instance.blocks):
        name = of_group[moves.holds[k].tobytes()]
        items[name] += block.items
        least[name] = float(holder[moves.holds[k]].min())
    if items.keys() != stated["group"].keys():
        odd = sorted(items.keys() ^ stated["group"].keys())
        return Check("duals of blocks that lie apart", False, len(odd), ", ".join(odd[:3]))
    paid = {name: float(rational(stated["group"][name])) for name in items}
    distinct, code = np.unique(moves.cost, return_inverse=True)  # the unit may be finer than any float
    seconds = np.array([float(Fraction(units, moves.per_s)) for units in distinct.tolist()])[code]
    way = seconds.reshape(moves.cost.shape) + node
    if excess is not None:
        way[~excess, :] = way[:, excess] = np.inf
        np.fill_diagonal(way, node)
    size = max(np.abs(holder).max(), np.abs(node).max(), seconds.max())
    above = max(float((holder - way.min(axis=1)).max()), max((paid[name] - least[name] for name in items), default=0.0))
    total, most = sum(items.values()), np.array(limit, dtype=np.float64)
    taken = float(node @ most)
    if sum(limit) > total:
        taken = min(float(np.maximum(node - e, 0) @ most) + e * total for e in node.tolist())
    shown = sum(n * paid[name] for name, n in items.items()) - taken
    short = abs(float(Fraction(cost, moves.per_s)) - shown)
    ok = above <= _ROUNDING * size and short <= _ROUNDING * size * (1 + total)
    return Check(
        "duals prove the seconds of the moves", ok, max(above, 0.0, short), f"off by {max(above, short):.3g} s"
    )


VERIFIER = Verifier(
    "load-partition", LoadAnswer, LoadProof, _judge, solvable=True, options=LoadOptions, state=state_load
)
