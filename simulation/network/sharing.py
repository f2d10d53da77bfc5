"""How ports are shared out, compiled: max-min fair, reserved by coflow, greedy in order.

Ports have ``free`` MB/s left, which each rule uses up. What is below a billionth of a port's rate counts as nothing.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.compiled import njit
from flowlex.simulation.network.arrays import PACED, RUNNING

__all__ = ["backfill", "fair_coflow", "fair_pairs", "reserve", "water_fill"]

#: Below this share of its rate a port is full.
NOTHING = 1e-9


@njit(cache=True)
def water_fill(out, into, weight, free):
    """Max-min fair rates of each unit of items between ports, by progressive filling (Bertsekas and Gallager).

    Parameters
    ----------
    out, into
        (n,) port of each item on either side.
    weight
        (n,) how many equal flows it stands for, integers.
    free
        (ports,) what is left; updated.

    Returns
    -------
    (n,) rate of each flow of an item.
    """
    n, ports = len(out), len(free)
    amount, first = np.zeros(ports, np.int64), np.zeros(ports + 1, np.int64)
    for k in range(n):
        amount[out[k]] += weight[k]
        amount[into[k]] += weight[k]
        first[out[k] + 1] += 1
        first[into[k] + 1] += 1
    for p in range(ports):
        first[p + 1] += first[p]
    item, at = np.empty(2 * n, np.int64), first.copy()
    for k in range(n):
        for p in (out[k], into[k]):
            item[at[p]] = k
            at[p] += 1
    rate = np.full(n, -1.0)
    while True:
        p, level = -1, np.inf
        for q in range(ports):
            if amount[q] and free[q] < level * amount[q]:
                p, level = q, max(free[q] / amount[q], 0.0)
        if p < 0:
            return rate
        for i in range(first[p], first[p + 1]):
            k = item[i]
            if rate[k] < 0.0:
                rate[k] = level
                for q in (out[k], into[k]):
                    free[q] -= level * weight[k]
                    amount[q] -= weight[k]
        free[p] = 0.0


@njit(cache=True)
def _give(net, f, rate):
    if net.rate[f] == 0.0:
        net.running[net.numbers[RUNNING]] = f
        net.numbers[RUNNING] += 1
    net.rate[f] += rate


@njit(cache=True)
def fair_pairs(net, order, free):
    """Max-min fair among all transfers, those of a pair (the groups of ``order``) served alike."""
    n = len(order)
    out, into, weight = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for k in range(n):
        g = order[k]
        out[k], into[k], weight[k] = net.port[net.first[g]], net.port[net.split[g]], net.alive[g]
    rate = water_fill(out, into, weight, free)
    for k in range(n):
        if rate[k] > 0.0:
            _give(net, order[k], rate[k])


@njit(cache=True)
def _room(net, g, free):
    """Whether any transfer of the group might still get something."""
    out = into = False
    for e in range(net.first[g], net.split[g]):
        out = out or (net.count[e] > 0 and free[net.port[e]] > 0.0)
    if out:
        for e in range(net.split[g], net.first[g + 1]):
            into = into or (net.count[e] > 0 and free[net.port[e]] > 0.0)
    return out and into


@njit(cache=True)
def _snap(net, p, free):
    """Take the last crumbs of a port for nothing."""
    if free[p] < NOTHING * net.rate_of_port[p]:
        free[p] = 0.0


@njit(cache=True)
def fair_coflow(net, g, free):
    """Max-min fair among the transfers of one group, in what is left."""
    if not _room(net, g, free):
        return
    n = net.alive[g]
    flow, out, into = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    k = 0
    for e in range(net.first[g], net.split[g]):
        p = net.port[e]
        if free[p] > 0.0:
            for at in range(net.start[e], net.start[e] + net.count[e]):
                f = net.row[at]
                q = net.port[net.in_at[f]]
                if free[q] > 0.0:
                    flow[k], out[k], into[k] = f, p, q
                    k += 1
    rate = water_fill(out[:k], into[:k], np.ones(k, np.int64), free)
    for i in range(k):
        if rate[i] > 0.0:
            _give(net, flow[i], rate[i])
    for e in range(net.first[g], net.first[g + 1]):
        _snap(net, net.port[e], free)


@njit(cache=True)
def reserve(net, g, free):
    """MADD: the least rates with which all transfers of a group end together, as soon as the free ports allow."""
    longest, scale = 0.0, net.scale[g]
    for e in range(net.first[g], net.first[g + 1]):
        if net.count[e]:
            if free[net.port[e]] <= 0.0:
                return
            longest = max(longest, net.load[e] * scale / free[net.port[e]])
    if longest <= 0.0:
        return
    for e in range(net.first[g], net.first[g + 1]):
        if net.count[e]:
            p = net.port[e]
            free[p] = max(free[p] - net.load[e] * scale / longest, 0.0)
            _snap(net, p, free)
    net.pace[g] = longest
    net.paced[net.numbers[PACED]] = g
    net.numbers[PACED] += 1


@njit(cache=True)
def backfill(net, g, free):
    """Give every transfer of a group, one after another, all that its two ports have left."""
    if not _room(net, g, free):
        return
    for e in range(net.first[g], net.split[g]):
        p = net.port[e]
        if free[p] <= 0.0:
            continue
        for at in range(net.start[e], net.start[e] + net.count[e]):
            f = net.row[at]
            q = net.port[net.in_at[f]]
            if free[q] > 0.0:
                amount = min(free[p], free[q])
                _give(net, f, amount)
                free[p] -= amount
                free[q] -= amount
                _snap(net, p, free)
                _snap(net, q, free)
                if free[p] <= 0.0:
                    break
