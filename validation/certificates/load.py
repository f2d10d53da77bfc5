"""Solution files of load partition, judged from the instance in exact arithmetic.

Capacities, targets (largest remainders) or the least makespan, loads and moves are recomputed. That nothing moves for
less is proven by a price per node: see `_cheapest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.instances.load import MICROSECONDS, LoadNode, LoadPartitionArrays
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.contract import Claimed, Finding, Strict, Verifier
from flowlex.validation.certificates.numbers import agrees, exact, whole

__all__ = ["VERIFIER"]


class LoadAnswer(Strict):
    """Items of each node, moves between nodes, and how many items of each block every node processes."""

    items: dict[str, int]
    moves: list[dict[str, Any]]
    blocks: dict[str, dict[str, int]]


class LoadProof(Strict):
    """``node_price``: microseconds by node; every group of items pays the cheapest sum of move and price."""

    node_price: dict[str, int] | None = None


def _capacity(node: LoadNode, evaluation: str) -> Fraction:
    """The capacity by its name, from the figures of the node."""
    if evaluation == "cpu_load":
        return min(Fraction(1), exact(node.cpu_free or 0) / exact(node.cpu_required))
    if evaluation == "history":
        return sum((exact(r.items) for r in node.history), Fraction(0)) / sum(
            (exact(r.seconds) for r in node.history), Fraction(0)
        )
    found = {"configuration": node.configuration, "performance": node.performance}[evaluation]
    if found is None:
        raise ValueError(f"node {node.name!r} has no {evaluation}")
    return exact(found)


def _quotas(capacity: Sequence[Fraction], total: int) -> list[int]:
    """Largest remainders, ties to the earlier node."""
    whole = sum(capacity)
    quotas = [c / whole * total for c in capacity]
    targets = [int(q) for q in quotas]
    left = sorted(range(len(quotas)), key=lambda i: targets[i] - quotas[i])
    for i in left[: total - sum(targets)]:
        targets[i] += 1
    return targets


def _earlier(capacity: Sequence[Fraction], after: list[int]) -> tuple[Fraction, int]:
    """When the last node ends, and how many items all nodes together end strictly before that."""
    finish = max((n / c for n, c in zip(after, capacity, strict=True) if c), default=Fraction(0))
    return finish, sum(max(0, -(-(c * finish).numerator // (c * finish).denominator) - 1) for c in capacity)


def _judge(claimed: Claimed) -> Finding:
    instance, document, answer = claimed.instance, claimed.document, claimed.answer
    options, view = document.options, claimed.instance.arrays
    names = [node.name for node in instance.nodes]
    place, block = {name: i for i, name in enumerate(names)}, {b.name: k for k, b in enumerate(instance.blocks)}
    share = np.zeros((len(block), len(names)), dtype=object)
    for name, parts in answer.blocks.items():
        for node, items in parts.items():
            share[block[name], place[node]] = items
    holds = view.holds if options["level"] == "item" else np.arange(len(names)) == view.home[:, None]
    after, total = share.sum(axis=0), int(sum(view.count.tolist()))
    moved = _moved(view, holds, share)
    stated = np.zeros((len(names), len(names)), dtype=object)
    for move in answer.moves:
        stated[place[move["source"]], place[move["target"]]] += move["items"]
    checks = [
        Check("no negative share", bool((share >= 0).all())),
        Check("every item is processed once", share.sum(axis=1).tolist() == view.count.tolist()),
        Check("items of every node", [answer.items.get(name) for name in names] == after.tolist()
              and len(answer.items) == len(names)),
        _balanced(view, holds, share, stated, moved),
        _seconds(view, answer.moves, place),
    ]  # fmt: skip
    objective = Fraction(moved, MICROSECONDS)
    metrics: dict[str, Any] = {"moved_items": int(stated.sum()), "moved_cost_s": objective}
    evaluation = str(options["capacity"])
    if evaluation not in ("configuration", "cpu_load", "history", "performance"):
        checks.append(Check("capacities", True, detail=f"by {evaluation}, a function that no file holds", how="quoted"))
        return Finding("feasible", tuple(checks), objective, objective, metrics=metrics)
    capacity = [_capacity(node, evaluation) for node in instance.nodes]
    makespan = options["objective"] == "makespan"
    limit = _quotas(capacity, total)
    if makespan:
        finish, earlier = _earlier(capacity, after.tolist())
        detail = f"{earlier} of {total} items before"
        checks.append(Check("no partition finishes earlier", earlier < total or not total, detail=detail))
        limit = [int(c * finish) for c in capacity]
    wrong = [n for n, a, t in zip(names, after.tolist(), limit, strict=True) if (a > t if makespan else a != t)]
    says = "every node ends by the least makespan" if makespan else "every node has its target"
    checks.append(Check(says, not wrong, len(wrong), ", ".join(wrong[:3])))
    if document.status != "optimal":
        return Finding("feasible", tuple(checks), objective, metrics=metrics)
    if claimed.proof.node_price is None:
        checks.append(Check("nothing moves for less", True, detail=f"says {document.engine}", how="quoted"))
        return Finding("feasible", tuple(checks), objective, objective, metrics=metrics)
    checks.append(_cheapest(view, holds, limit, claimed.proof.node_price, place, options, moved))
    return Finding("optimal", tuple(checks), objective, objective, metrics=metrics)


def _moved(view: LoadPartitionArrays, holds: Any, share: Any) -> int:
    """Microseconds: every item that is processed where it does not lie comes from the cheapest place where it does."""
    total = 0
    for b, n in zip(*np.nonzero(share), strict=True):
        if not holds[b, n]:
            total += int(share[b, n]) * int(view.cost[holds[b], n].min())
    return total


def _balanced(view: LoadPartitionArrays, holds: Any, share: Any, stated: Any, moved: int) -> Check:
    """The moves carry what the shares say: into every node, out of holders, at the same cost."""
    coming = (share * ~holds).sum(axis=0)
    cost = sum(int(stated[h, n]) * int(view.cost[h, n]) for h, n in zip(*np.nonzero(stated), strict=True))
    ok = stated.sum(axis=0).tolist() == coming.tolist() and cost == moved and bool((stated >= 0).all())
    return Check("moves are those of the blocks", ok, abs(cost - moved), f"{cost} microseconds, by blocks {moved}")


def _seconds(view: LoadPartitionArrays, moves: list[dict[str, Any]], place: dict[str, int]) -> Check:
    wrong = [
        f"{m['source']} to {m['target']}"
        for m in moves
        if not agrees(
            m["seconds"],
            Fraction(m["items"] * int(view.cost[place[m["source"]], place[m["target"]]]), MICROSECONDS),
            1e-12,
        )
    ]
    return Check("seconds of the moves", not wrong, len(wrong), ", ".join(wrong[:3]))


def _cheapest(
    view: LoadPartitionArrays,
    holds: Any,
    limit: list[int],
    prices: dict[str, int],
    place: dict[str, int],
    options: dict[str, Any],
    moved: int,
) -> Check:
    """Whatever the prices p: moving costs at least ``sum over items of min (cost + p) - sum limit p``."""
    name = "no partition of these loads moves for less"
    if prices.keys() - place.keys():
        return Check(name, False, detail=f"{min(prices.keys() - place.keys())!r} is no node")
    price = whole(prices.get(node, 0) for node in place)
    makespan = options["objective"] == "makespan"
    if makespan and (price < 0).any():
        return Check(name, False, detail="a price below zero")
    room = np.array([most > 0 for most in limit]) if makespan else np.ones(len(limit), bool)
    excess = view.load > whole(limit)
    bound, seen = -sum(p * t for p, t in zip(price.tolist(), limit, strict=True)), dict[bytes, int]()
    for b, items in enumerate(view.count.tolist()):
        key = holds[b].tobytes()
        if key not in seen:
            cost = np.where(holds[b], 0, view.cost[holds[b]].min(axis=0)) + price
            usable = room.copy()
            if not makespan and options["level"] == "node":  # above the target only sends, below only receives
                usable = holds[b] | ~excess if excess[holds[b]].any() else holds[b]
            seen[key] = int(cost[usable].min())
        bound += items * seen[key]
    return Check(name, bound >= moved, max(0, moved - bound), f"at least {bound} microseconds, here {moved}")


VERIFIER = Verifier("load-partition", LoadAnswer, LoadProof, _judge)
