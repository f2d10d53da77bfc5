"""Dual values of ports and transfers from the proofs of a plan, with the names of the instance."""

from __future__ import annotations

import numpy as np

from flowlex.models.jit.multipliers import LATENESS
from flowlex.models.jit.plan_search import Plan
from flowlex.models.jit.transfer_slot_grid import Grid
from flowlex.models.model_base import Dual

#: First slot, end, price in the first slot and in the last, and the scale of both.
_Run = tuple[int, int, int, int, int]


def duals_of(grid: Grid, plan: Plan) -> dict[str, Dual]:
    """Nonzero duals: ports by ``machine,slot`` (or ``machine,first..last`` with the mean dual), sizes by transfer.

    Each is the dual of the first goal in which it is nonzero. Goals in order: lateness, then levels from the highest
    down; level 1 has no dual, because the sum of all loads determines it.
    """
    names = [machine.name for machine in grid.instance.machines]
    found: dict[int, list[_Run]] = {}
    size: dict[int, float] = {}
    for part in plan.parts:
        for proof in sorted(part.proofs, key=lambda p: (p.level == LATENESS, p.level)):
            p = proof.port
            rows = (p.unit, p.begin, p.end, p.price, p.last)
            for port, begin, end, price, last in zip(*(each.tolist() for each in rows), strict=True):
                found.setdefault(port, []).append((begin, end, -price, -last, proof.scale))
            priced = np.flatnonzero(proof.lam)
            size |= dict(zip(part.transfers[priced].tolist(), (proof.lam[priced] / proof.scale).tolist(), strict=True))
    duals = {}
    for side, name in enumerate(("egress", "ingress")):
        rows_of = [(p, row) for p in sorted(found) if p // len(names) == side for row in _overlaid(found[p])]
        labels = [f"{names[p % len(names)]},{a}" + (f"..{b - 1}" if b > a + 1 else "") for p, (a, b, _) in rows_of]
        duals[name] = Dual(np.array([row[2] for _, row in rows_of]), labels)
    chosen = sorted(size)
    duals["size"] = Dual(np.array([size[k] for k in chosen]), [grid.instance.transfer_names[k] for k in chosen])
    return duals


def _overlaid(prices: list[_Run]) -> list[tuple[int, int, float]]:
    """Cut overlapping runs into pieces, each with the mean dual of the last run that covers it."""
    edges = np.unique([mark for begin, end, *_ in prices for mark in (begin, end)])
    top = np.full(len(edges) - 1, -1)
    for number, (begin, end, *_) in enumerate(prices):
        top[np.searchsorted(edges, begin) : np.searchsorted(edges, end)] = number
    found = []
    for a, b, number in zip(edges[:-1].tolist(), edges[1:].tolist(), top.tolist(), strict=True):
        if number >= 0:
            begin, end, first, last, scale = prices[number]
            steps = 2 * max(end - 1 - begin, 1)
            mean = first * steps + (last - first) * (a + b - 1 - 2 * begin)
            found.append((a, b, mean / (steps * scale)))
    return found
