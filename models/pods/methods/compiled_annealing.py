"""The compiled loop of simulated annealing by moves and exchanges of pods (numba, cached on disk).

Arrays as in `flowlex.models.pods.methods.search_state.SearchState`. A node's cost is a function of its load:

====  ==================================================================================
mode  cost
====  ==================================================================================
0     ``u**2``, less the square of the sum over the number of nodes: N times the variance
1     ``|u - target|``
2     ``max(0, u - target)**2``
====  ==================================================================================
"""

# numba infers the types, so these functions have no annotations.
# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import math

import numpy as np

from flowlex.formulations.deferred_compilation import njit
from flowlex.models.pods.methods.ruin_and_recreate import link, place, take

#: Number of pods of a node among which the second pod of an exchange is drawn.
_WALK = 32


@njit(cache=True)
def _term(mode, target, load):
    if mode == 0:
        return load * load
    if mode == 1:
        return abs(load - target)
    return max(0.0, load - target) ** 2


@njit(cache=True)
def _total(mode, target, loads):
    cost = 0.0
    for load in loads:
        cost += _term(mode, target, load)
    if mode == 0:
        cost -= loads.sum() ** 2 / len(loads)
    return cost


@njit(cache=True)
def _companion(rng, s, node, other):
    """Another movable pod of a node, or -1."""
    steps = rng.integers(0, min(s.many_on[node], _WALK))
    pod = s.head[node]
    for _ in range(steps):
        pod = s.after[pod]
    return pod if pod != other else -1


@njit(cache=True)
def _draw(rng, s, pods, out):
    """Draw pods to leave node a (out[0], out[1]) for b and to leave b (out[2], out[3]) for a; return a and b."""
    for k in range(4):
        out[k] = -1
    out[0] = pods[rng.integers(0, len(pods))]
    a = s.node[out[0]]
    kind = rng.random()
    if kind < 0.3:
        b = rng.integers(0, len(s.head))
        if kind < 0.05 and a != b:
            out[1] = _companion(rng, s, a, out[0])
        return a, b
    out[2] = pods[rng.integers(0, len(pods))]
    b = s.node[out[2]]
    if a != b and kind > 0.6:
        out[3] = _companion(rng, s, b, out[2])
        if kind > 0.9:
            out[1] = _companion(rng, s, a, out[0])
    return a, b


@njit(cache=True)
def _exchange(s, out, a, b):
    """Make an exchange if all pods fit; otherwise change nothing. Return whether it was made."""
    used = np.zeros(4, np.uint64)
    for k in range(4):
        if out[k] >= 0:
            used[k] = s.used[out[k]]
            take(s, out[k])
    placed = 0
    for k in range(4):
        if out[k] >= 0 and not place(s, out[k], b if k < 2 else a):
            break
        placed += 1
    if placed == 4:
        return True
    for k in range(placed):
        if out[k] >= 0:
            take(s, out[k])
    for k in range(3, -1, -1):
        if out[k] >= 0:
            link(s, out[k], a if k < 2 else b, used[k])
    return False


@njit(cache=True)
def anneal(s, pods, home, move, mode, target, hot, cold, steps, rng):
    """Exchange pods at a decreasing temperature; change the state in place and return its cost.

    An exchange that raises the cost by d is accepted with probability exp(-d / temperature). The temperature decreases
    geometrically from ``hot`` to ``cold``. Mode 2 stops once no load exceeds the target.

    ``home``, ``move``: (P,) node that a pod may leave at a cost, else -1; (P + 1,) the costs, and last the remaining
    budget.
    """
    out, size = np.full(4, -1), len(s.head)
    cost = _total(mode, target, s.loads)
    total, heat = s.loads.sum(), hot
    cooling = (cold / hot) ** (1.0 / max(1, steps))
    for _ in range(steps):
        heat *= cooling
        a, b = _draw(rng, s, pods, out)
        if a == b:
            continue
        change_a, change_b, allowed, paid = 0.0, 0.0, True, 0.0
        for k in range(4):
            pod = out[k]
            if pod >= 0:
                row = s.row[pod]
                allowed &= s.allowed[row, s.column[b if k < 2 else a]] and s.movable[pod]
                sign = 1.0 if k < 2 else -1.0
                if home[pod] == a or home[pod] == b:
                    paid += move[pod] if home[pod] == (a if k < 2 else b) else -move[pod]
                change_a -= sign * s.load[row, s.column[a]]
                change_b += sign * s.load[row, s.column[b]]
        if not allowed or paid > max(0.0, move[-1]):
            continue
        new_a, new_b = s.loads[a] + change_a, s.loads[b] + change_b
        change = _term(mode, target, new_a) + _term(mode, target, new_b)
        change -= _term(mode, target, s.loads[a]) + _term(mode, target, s.loads[b])
        if mode == 0:
            more = change_a + change_b
            change -= more * (2.0 * total + more) / size
        if change > 0.0 and (change > 30.0 * heat or rng.random() >= math.exp(-change / heat)):
            continue
        if _exchange(s, out, a, b):
            s.loads[a], s.loads[b] = new_a, new_b
            move[-1] -= paid
            total += change_a + change_b
            cost += change
            if mode == 2 and cost < 1e-18:
                break
    return _total(mode, target, s.loads)
