"""Gangs, spreads and quotas in one form: the amount of each rule in each domain, and its limit.

Rules only restrict placements, so bounds without them are valid. Searches use `room`, what a
domain may still take while no pod leaves it (0 for closed gangs); `broken_rules` checks every placement.
"""

from __future__ import annotations

import numpy as np

from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.instances.pod_rule_arrays import GANG, MOST, QUOTA, SKEW
from flowlex.instances.pods import PodArrays


def _counts(view: PodArrays, node: Integers) -> tuple[Integers, Integers, Integers]:
    """(F,) what every domain of every rule holds and may hold, and (R,) pods of each rule that are outside of all."""
    rules = view.rules
    pod = np.repeat(np.arange(len(node)), np.diff(rules.start))
    held, outside = np.zeros(len(rules.of), np.int64), np.zeros(len(rules.what), np.int64)
    placed = node[pod] >= 0
    pod, rule, amount = pod[placed], rules.rule[placed], rules.amount[placed]
    domain = rules.domain[rules.topology[rule], node[pod]]
    there = domain >= 0
    np.add.at(held, rules.offset[rule[there]] + domain[there], amount[there])
    strange = ~there & (node[pod] != view.running[pod])
    np.add.at(outside, rule[strange], 1)
    return held, limits_of(view) + np.where(rules.what == SKEW, _least(view, held), 0)[rules.of], outside


def _least(view: PodArrays, held: Integers) -> Integers:
    """(R,) least amount over the domains that count for a rule."""
    rules = view.rules
    least = np.full(len(rules.what), np.iinfo(np.int64).max)
    np.minimum.at(least, rules.of[rules.counted], held[rules.counted])
    return np.where(least == np.iinfo(np.int64).max, 0, least)


def limits_of(view: PodArrays) -> Integers:
    """(F,) limit of each domain, or the amount of its running pods if larger; for a skew, above the emptiest domain."""
    rules = view.rules
    base = rules.base - np.where(rules.what == SKEW, _least(view, rules.base), 0)[rules.of]
    slack: Integers = np.maximum(rules.capacity, base)  # a gang never has more pods than its size
    return slack


def in_domains(view: PodArrays, pod: Integers, node: Integers) -> tuple[Integers, Integers, Integers]:
    """Columns (a pod on a node) that count in domains of rules, with the amounts, and the domains over all rules."""
    rules = view.rules
    many = np.diff(rules.start)[pod]
    column = np.repeat(np.arange(len(pod)), many)
    place = rules.start[pod[column]] + np.arange(len(column)) - np.repeat(np.cumsum(many) - many, many)
    rule = rules.rule[place]
    domain = rules.domain[rules.topology[rule], node[column]]
    there = domain >= 0
    return column[there], rules.amount[place][there], rules.offset[rule[there]] + domain[there]


def shares(view: PodArrays, fixed: Integers) -> tuple[list[str], Floats, Floats]:
    """Valid inequalities of quotas and spreads: names, (R, P) share of each pod, and (R,) right-hand sides.

    The domains of a rule are summed. Pods in ``fixed`` ((P,) nodes, -1: none) are already subtracted from the
    right-hand sides.
    """
    rules = view.rules
    total = np.bincount(rules.of, limits_of(view), len(rules.what))
    pod = np.repeat(np.arange(len(fixed)), np.diff(rules.start))
    home = view.running[pod]
    there = (home < 0) | (rules.domain[rules.topology[rules.rule], home] >= 0)  # running outside does not count
    table = np.zeros((len(total), len(fixed)))
    table[rules.rule[there], pod[there]] = rules.amount[there]
    kept = np.flatnonzero(np.isin(rules.what, (MOST, QUOTA)) & (total > 0))
    table = table[kept] / total[kept][:, None]
    return [rules.names[r] for r in kept], table, 1.0 - table[:, fixed >= 0].sum(axis=1)


def room(view: PodArrays, node: Integers) -> Integers:
    """(F,) amount that each domain may still take, while no pod of the rule leaves.

    It is 0 in all domains of a gang without placed pods.
    """
    rules = view.rules
    held, most, _ = _counts(view, node)
    closed = (rules.what[rules.of] == GANG) & (held == 0)
    return np.where(closed, 0, most - held)


def broken_rules(view: PodArrays, node: Integers) -> tuple[str, ...]:
    """Names of the rules that a placement ((P,) nodes, -1: waits) breaks."""
    rules = view.rules
    if not len(rules.what):
        return ()
    held, most, outside = _counts(view, node)
    broken = outside > 0
    broken[rules.of[held > most]] = True
    some, whole = np.zeros(len(rules.what), np.bool_), np.zeros(len(rules.what), np.bool_)
    some[rules.of[held > 0]] = True
    whole[rules.of[held == rules.limit[rules.of]]] = True
    broken |= (rules.what == GANG) & some & ~whole
    return tuple(rules.names[r] for r in np.flatnonzero(broken))


def may_use(view: PodArrays, pods: Integers) -> Booleans:
    """(n, N) whether each pod may run on a node by the domains of its rules."""
    rules = view.rules
    allowed = np.ones((len(pods), len(view.cards)), np.bool_)
    for k, p in enumerate(pods.tolist()):
        for r in rules.rule[rules.start[p] : rules.start[p + 1]].tolist():
            there = rules.domain[rules.topology[r]] >= 0
            if view.running[p] >= 0:
                there = there | (np.arange(len(there)) == view.running[p])
            allowed[k] &= there
    return allowed


def rule_reason(view: PodArrays, node: Integers, pod: int) -> str | None:
    """Return the rule that prevents a waiting pod from running now; None if none does."""
    rules = view.rules
    mine = slice(rules.start[pod], rules.start[pod + 1])
    left = room(view, node)
    for r, amount in zip(rules.rule[mine].tolist(), rules.amount[mine].tolist(), strict=True):
        if rules.what[r] == GANG:
            return f"{rules.names[r]} does not fit whole"
        if left[rules.of == r].max(initial=0) < amount:
            return f"{rules.names[r]} has no room left"
    return None
