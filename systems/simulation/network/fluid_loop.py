"""The compiled loop of a fluid network, which advances time between two decisions of the policy.

Rates hold until a transfer ends. Then, unless something happened that the policy must see, its instruction is applied
again to the remaining transfers.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import njit
from flowlex.systems.simulation.network.fair_rates import (
    backfill,
    backfill_listed,
    fair_coflow,
    fair_pairs,
    open_ports,
    reserve,
)
from flowlex.systems.simulation.network.network_arrays import BIN, ENDED, EVENTS, NOW, PACED, PAIRS, RUNNING, finish
from flowlex.systems.simulation.network.rate_checks import check

#: Instructions: rates as given; max-min fair; in order of groups: greedy, MADD, SEBF (reorders, then MADD), fair inside
#: a group, greedy by the group's list.
RATES, FAIR, GREEDY, MADD, SEBF, SPLIT, LISTED = range(7)
#: Reasons to leave the loop, besides failed checks: the policy must be asked; nothing moves and nothing will.
ASK, STUCK = 0, 9
#: Transfers that end within a nanosecond end together.
TOGETHER_S = 1e-9
#: A scale below this is multiplied into the scaled values and reset to 1.
SMALL = 1e-6


@njit(cache=True)
def set_rates(net, transfers, rates):
    """Set the given rates; transfers without a rate are not sent."""
    _clear(net)
    for k in range(len(transfers)):
        if rates[k] != 0.0:
            net.rate[transfers[k]] = rates[k]
            net.running[net.numbers[RUNNING]] = transfers[k]
            net.numbers[RUNNING] += 1


@njit(cache=True)
def bottlenecks(net, groups):
    """Return the seconds that the remainder of each group needs alone, on its busiest port."""
    longest = np.zeros(len(groups))
    for k in range(len(groups)):
        g = groups[k]
        for e in range(net.first[g], net.first[g + 1]):
            longest[k] = max(longest[k], net.load[e] * net.scale[g] / net.rate_of_port[net.port[e]])
    return longest


@njit(cache=True)
def _clear(net):
    for k in range(net.numbers[RUNNING]):
        net.rate[net.running[k]] = 0.0
    for k in range(net.numbers[PACED]):
        net.pace[net.paced[k]] = np.inf
    net.numbers[RUNNING] = net.numbers[PACED] = 0


@njit(cache=True)
def _share(net, kind, order):
    """Set the rates by an instruction."""
    if kind == RATES:
        return
    _clear(net)
    free = net.rate_of_port.copy()
    if kind == FAIR:
        fair_pairs(net, order, free)
        return
    has_room = open_ports(net, free)
    if kind in (MADD, SEBF):
        for g in order:
            reserve(net, g, free, has_room)
    for g in order:
        if kind == SPLIT:
            fair_coflow(net, g, free, has_room)
        elif kind == LISTED:
            backfill_listed(net, g, free, has_room)
        else:
            backfill(net, g, free, has_room)


@njit(cache=True)
def _pass(net, step):
    """Send at the present rates for a time, record MB by bin of time, and end the transfers that are complete."""
    now = net.clock[NOW] + step
    for k in range(net.numbers[PACED]):
        _shrink(net, net.paced[k], step)
    for k in range(net.numbers[RUNNING]):
        i = net.running[k]
        if net.numbers[PAIRS]:
            if net.fresh[i]:
                _begin(net, i)
            net.served[i] += net.rate[i] * step
            continue
        if net.begin[i] != net.begin[i]:
            net.begin[i] = net.clock[NOW]
        scale = net.scale[net.group[i]]
        sent = min(net.rate[i] * step / scale, net.left[i]) if scale > 0.0 else 0.0
        net.left[i] -= sent
        for e in (net.out_at[i], net.in_at[i]):
            net.load[e] = max(net.load[e] - sent, 0.0)
    _note(net, now)
    net.clock[NOW] = now
    net.numbers[EVENTS] += 1
    _end_running(net, now)
    for k in range(net.numbers[PACED]):
        g = net.paced[k]
        if net.pace[g] - step <= TOGETHER_S:
            for e in range(net.first[g], net.split[g]):
                while net.members[e]:
                    finish(net, net.row[net.start[e] + net.members[e] - 1], now)


@njit(cache=True)
def _end_running(net, now):
    """End the transfers with a rate of their own and less left than they send in a nanosecond."""
    for k in range(net.numbers[RUNNING]):
        i = net.running[k]
        crumbs = net.rate[i] * TOGETHER_S
        if not net.numbers[PAIRS]:
            if net.left[i] * net.scale[net.group[i]] <= crumbs:
                finish(net, i, now)
            continue
        start = net.start[net.first[i]]
        while net.alive[i] and net.left[net.row[start]] - net.served[i] <= crumbs:
            finish(net, net.row[start], now)


@njit(cache=True)
def _begin(net, g):
    """Record that all transfers of a group have begun."""
    net.fresh[g] = False
    for e in range(net.first[g], net.split[g]):
        for at in range(net.start[e], net.start[e] + net.members[e]):
            if net.begin[net.row[at]] != net.begin[net.row[at]]:
                net.begin[net.row[at]] = net.clock[NOW]


@njit(cache=True)
def _shrink(net, g, step):
    """Let a paced group send the same fraction of every transfer's remainder."""
    if net.fresh[g]:
        _begin(net, g)
    net.scale[g] *= max(1.0 - step / net.pace[g], 0.0)
    if 0.0 < net.scale[g] < SMALL:
        for e in range(net.first[g], net.first[g + 1]):
            net.load[e] *= net.scale[g]
        for e in range(net.first[g], net.split[g]):
            for at in range(net.start[e], net.start[e] + net.members[e]):
                net.left[net.row[at]] *= net.scale[g]
        net.scale[g] = 1.0


@njit(cache=True)
def _note(net, until):
    """Add the port loads from now to ``until`` to the bins; double the width of the bins if time exceeds them."""
    bins = len(net.bins)
    while until > bins * net.clock[BIN]:
        for b in range(bins // 2):
            net.bins[b] = net.bins[2 * b] + net.bins[2 * b + 1]
        net.bins[bins // 2 :] = 0.0
        net.clock[BIN] *= 2
    width, at = net.clock[BIN], net.clock[NOW]
    b = int(at / width)
    while at < until and b < bins:
        end = min(until, (b + 1) * width)
        if end > at:
            net.bins[b] += net.used * (end - at)
            at = end
        b += 1


@njit(cache=True)
def _next_end(net):
    """Seconds until the next transfer ends."""
    step = np.inf
    for k in range(net.numbers[PACED]):
        step = min(step, net.pace[net.paced[k]])
    for k in range(net.numbers[RUNNING]):
        i = net.running[k]
        if net.numbers[PAIRS]:
            left, rate = net.left[net.row[net.start[net.first[i]]]] - net.served[i], net.rate[i]
        else:
            left = net.left[i] * net.scale[net.group[i]]
            rate = net.rate[i] + left / net.pace[net.group[i]]
        step = min(step, left / rate)
    return max(step, 0.0)


@njit(cache=True)
def _next_mark(net, marks):
    """Return the seconds until a coflow reaches a mark of the policy."""
    rate = np.zeros(len(net.alive))
    for k in range(net.numbers[RUNNING]):
        g = net.group[net.running[k]]
        if marks[g] < np.inf:
            rate[g] += net.rate[net.running[k]]
    step = np.inf
    for g in range(len(marks)):
        if rate[g] > 0.0 and marks[g] < np.inf:
            left = 0.0
            for e in range(net.first[g], net.split[g]):
                left += net.load[e] * net.scale[g]
            step = min(step, max(left - marks[g], 0.0) / rate[g])
    return step


@njit(cache=True)
def run_until_asked(net, kind, order, groups, until, marks, held, conserving, fair):
    """Apply an instruction until the policy must be asked; return the reason why the loop ended.

    Parameters
    ----------
    order
        Groups to serve, first served first (irrelevant for FAIR and RATES).
    groups
        All groups with active transfers.
    until
        Time of the next other event.
    marks
        (G,) remaining MB of a group at which to stop, or empty.
    held, conserving, fair
        See `check`.
    """
    net.numbers[ENDED] = 0
    thorough = True
    while True:
        if kind == SEBF:
            order = order[np.argsort(bottlenecks(net, order), kind="mergesort")]
        _share(net, kind, order)
        wrong = check(net, groups, held, conserving, fair, thorough)
        thorough = False
        if wrong:
            return wrong
        room = until - net.clock[NOW]
        step, mark = _next_end(net), np.inf
        if len(marks):
            mark = _next_mark(net, marks)
            step = min(step, mark)
        if step >= room:
            if until == np.inf:
                return STUCK
            _pass(net, max(room, 0.0))
            net.clock[NOW] = until
            return ASK
        _pass(net, step)
        if mark <= step + TOGETHER_S or _must_ask(net, kind):
            return ASK
        groups = _with_something(net, groups)
        order = groups if kind == FAIR else _with_something(net, order)


@njit(cache=True)
def _with_something(net, groups):
    """Return the groups with active transfers."""
    return groups[net.alive[groups] > 0]


@njit(cache=True)
def _must_ask(net, kind):
    """Return whether the loop must stop: a computation has its data, or the policy must see the end of a transfer."""
    if kind == RATES:
        return net.numbers[ENDED] > 0
    for k in range(net.numbers[ENDED]):
        f = net.ended[k]
        if net.feeds[f] >= 0 and not net.missing[net.feeds[f]]:
            return True
        if net.feeds[f] < 0 or (not net.numbers[PAIRS] and not net.alive[net.group[f]]):
            return True
    return False
