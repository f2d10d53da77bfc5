"""Check at every event, from rates and ports alone, that a policy's answer is feasible and keeps its promises.

This module shares no code with the computation of rates: port loads are summed again from the rates; those of paced
coflows by port, and transfer by transfer after each decision of the policy.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import njit
from flowlex.systems.simulation.network.network_arrays import OFFENDER, PACED, PAIRS, RUNNING, common, flip

#: Violations: a rate that is no positive number, a port above its capacity, a transfer that could be faster, a transfer
#: whose rate is not the largest at any full port.
RATE, FULL, IDLE, UNFAIR = range(1, 5)
#: Relative tolerance: a port within it of its rate is full, and its load may exceed the rate by it.
CLOSE = 1e-6


@njit(cache=True)
def check(net, groups, held, conserving, fair, thorough):
    """Check the rates of `net.running`; fill `net.used`. Return 0 or the violation (`net.numbers` has the offender).

    Parameters
    ----------
    groups
        Groups with active transfers.
    held
        (F,) transfers that the policy holds back on purpose, exempt from work conservation.
    conserving, fair
        Whether the policy must be work-conserving; whether rates must be max-min fair.
    thorough
        Whether to check every transfer of a paced group instead of its port loads, and the ports of every group.
    """
    ports = len(net.rate_of_port)
    net.used[:] = 0.0
    largest = np.zeros(ports)
    for k in range(net.numbers[RUNNING]):
        i = net.running[k]
        if net.numbers[PAIRS]:
            out, into, many = net.first[i], net.split[i], net.alive[i]
            copy = net.copy[net.row[net.start[out]]]
        else:
            out, into, many, copy = net.out_at[i], net.in_at[i], 1, net.copy[i]
        rate = net.rate[i]
        if not 0.0 < rate < np.inf:
            net.numbers[OFFENDER] = i
            return RATE
        for p in (net.port[out], net.port[into]):
            net.used[copy, p] += rate * many
            largest[p] = max(largest[p], rate)
    for k in range(net.numbers[PACED]):
        wrong = _add_paced(net, net.paced[k], thorough)
        if wrong:
            return wrong
    total = net.used[0] + net.used[1]
    for p in range(ports):
        if total[p] > net.rate_of_port[p] * (1 + CLOSE):
            net.numbers[OFFENDER] = p
            return FULL
    full = total >= net.rate_of_port * (1 - CLOSE)
    if conserving and not fair:  # a transfer with a full port is not idle
        spare = np.zeros((2, net.bits.shape[2]), np.int64)
        for p in range(ports):
            if not full[p]:
                flip(spare, p, ports // 2)
        for g in groups:
            if not thorough and not (common(net.bits[g, 0], spare[0]) and common(net.bits[g, 1], spare[1])):
                continue
            f = _idle(net, g, full, held)
            if f >= 0:
                net.numbers[OFFENDER] = f
                return IDLE
    if fair:
        return _unfair(net, groups, full, largest)
    return 0


@njit(cache=True)
def _add_paced(net, g, thorough):
    """Add the rates of a paced group to the loads of its ports."""
    share = net.scale[g] / net.pace[g]
    copy = -1
    for e in range(net.first[g], net.split[g]):
        if not net.members[e]:
            continue
        if copy < 0:
            copy = net.copy[net.row[net.start[e]]]
        if not thorough:
            net.used[copy, net.port[e]] += net.load[e] * share
            continue
        for at in range(net.start[e], net.start[e] + net.members[e]):
            f = net.row[at]
            if not 0.0 < net.left[f] * share < np.inf:
                net.numbers[OFFENDER] = f
                return RATE
            for p in (net.port[e], net.port[net.in_at[f]]):
                net.used[copy, p] += net.left[f] * share
    if not thorough:
        for e in range(net.split[g], net.first[g + 1]):
            if net.members[e]:
                net.used[copy, net.port[e]] += net.load[e] * share
    return 0


@njit(cache=True)
def _idle(net, g, full, held):
    """Return a transfer of the group with free capacity at both its ports, or -1."""
    room = False
    for e in range(net.split[g], net.first[g + 1]):
        room = room or (net.members[e] > 0 and not full[net.port[e]])
    if not room:
        return -1
    for e in range(net.first[g], net.split[g]):
        if not full[net.port[e]]:
            for at in range(net.start[e], net.start[e] + net.members[e]):
                f = net.row[at]
                if not full[net.port[net.in_at[f]]] and not held[f]:
                    return f
    return -1


@njit(cache=True)
def _unfair(net, groups, full, largest):
    """Check the max-min certificate: every transfer has a full port at which no other has a larger rate."""
    for g in groups:
        for e in range(net.first[g], net.split[g]):
            for at in range(net.start[e], net.start[e] + net.members[e]):
                f = net.row[at]
                rate = net.rate[g] if net.numbers[PAIRS] else net.rate[f]
                p, q = net.port[e], net.port[net.in_at[f]]
                if not (
                    (full[p] and rate >= largest[p] * (1 - CLOSE)) or (full[q] and rate >= largest[q] * (1 - CLOSE))
                ):
                    net.numbers[OFFENDER] = f
                    return UNFAIR
                if net.numbers[PAIRS]:
                    break
    return 0
