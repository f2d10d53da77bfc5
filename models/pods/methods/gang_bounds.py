r"""Stronger admission bounds by gangs and spreads.

Without it a gang that fits no domain, and spreads beyond what their domains hold, are not proven to wait
(`tests/models/pods/test_gang_bounds.py`).

A node holds at most as many pods of a set S as of its smallest ones fit by cores, by memory, by GPU memory, or by cards
for pods with more than half a card; c_d is the sum of these bounds over the nodes of domain d. Then

    a gang is infeasible if no domain has c_d >= |S| and enough resources for the total demand of its pods,
    a spread places at most sum_d min(c_d, most, skew + min_d c_d) pods,
    the value of a level is a sum of whole gangs and of single pods: a bound is rounded down to the largest such sum.

Running pods may break a rule (`flowlex.instances.pod_rule_arrays`), so rules with running pods are ignored.
"""

from __future__ import annotations

import numpy as np

from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.instances.pod_rule_arrays import GANG, MOST, SKEW
from flowlex.instances.pods import PodArrays

#: Largest (bound x number of distinct summands) for which sums are enumerated.
_SUMS = 5_000_000
#: Relative tolerance of sums.
_ROUNDING = 1e-12


def _members(view: PodArrays, rule: int) -> Integers:
    """Pods of a rule; empty if one of them runs."""
    pods: Integers = np.repeat(np.arange(len(view.cpu)), np.diff(view.rules.start))[view.rules.rule == rule]
    return pods if (view.running[pods] < 0).all() else pods[:0]


def _held(view: PodArrays, pods: Integers, *, cards: bool) -> tuple[Integers, Floats]:
    """(N,) upper bound on these pods by node; (N, 3) cores, memory and GPU memory of nodes that can hold any."""
    size, kind = view.exact, view.load.column
    _, first, of = np.unique(kind, return_index=True, return_inverse=True)
    most, room = np.zeros(len(first), np.int64), np.zeros((len(first), 3))
    for k, n in enumerate(first.tolist()):
        many, has = view.gpu_cards[pods], view.cards[n]
        mine = pods[view.allowed[pods, n] & ((many <= has) | ((not cards) & (has > 0)))]
        gpu = size.gpu[mine, n].astype(np.float64) * view.gpu_cards[mine]
        large = view.gpu_cards[mine] * (2 * size.gpu[mine, n] > size.card[n])
        whole = [*size.node[n].tolist(), float(size.card[n]) * float(view.cards[n])]
        asked = [size.cpu[mine].astype(np.float64), size.memory[mine].astype(np.float64), gpu]
        if cards:
            asked, whole = [*asked, large.astype(np.float64)], [*whole, float(view.cards[n])]
        fits = np.all([used <= has for used, has in zip(asked, whole, strict=True)], axis=0)
        sums = [np.cumsum(np.sort(used[fits])) * (1 - _ROUNDING) for used in asked]
        most[k] = min(int(np.searchsorted(each, has, "right")) for each, has in zip(sums, whole, strict=True))
        room[k] = whole[:3] if most[k] else 0.0
    return most[of], room[of]


def gangs_out(view: PodArrays, *, cards: bool) -> Booleans:
    """(P,) whether each pod belongs to a gang that fits no domain, even an empty one."""
    rules, out = view.rules, np.zeros(len(view.cpu), np.bool_)
    for r in np.flatnonzero(rules.what == GANG).tolist():
        pods, domain = _members(view, r), rules.domain[rules.topology[r]]
        if not len(pods):
            continue
        most, room = _held(view, pods, cards=cards)
        there, many = domain >= 0, int(domain.max()) + 1
        enough = np.bincount(domain[there], most[there], many) >= len(pods)
        least = np.min([view.exact.gpu[pods, n] for n in np.unique(view.load.column, return_index=True)[1]], axis=0)
        for i, asked in enumerate((view.exact.cpu[pods], view.exact.memory[pods], least * view.gpu_cards[pods])):
            held = np.bincount(domain[there], room[there, i], many)
            enough &= held >= asked.astype(np.float64).sum() * (1 - _ROUNDING)
        out[pods] = not enough.any()
    return out


def most_of_spreads(view: PodArrays, *, cards: bool) -> Floats:
    """(R,) upper bound on the pods of a spread in all domains, at each of its rules; infinite for other rules."""
    rules, found = view.rules, np.full(len(view.rules.what), np.inf)
    for name in {rules.names[r] for r in np.flatnonzero(np.isin(rules.what, (MOST, SKEW)))}:
        mine = [r for r in range(len(rules.what)) if rules.names[r] == name]
        pods, domain = _members(view, mine[0]), rules.domain[rules.topology[mine[0]]]
        if not len(pods) or not (domain >= 0).any():
            continue
        most, _ = _held(view, pods, cards=cards)
        each = np.bincount(domain[domain >= 0], most[domain >= 0])
        for r in sorted(mine, key=lambda r: int(rules.what[r])):  # MOST first, then SKEW
            limit = int(rules.limit[r])
            if rules.what[r] == SKEW:
                usable = rules.counted[rules.offset[r] : rules.offset[r] + len(each)]
                limit += int(each[usable].min(initial=len(pods)))
            each = np.minimum(each, limit)
        found[mine] = each.sum()
    return found


def largest_sum(gang: Integers, worth: Integers, bound: int) -> int:
    """Largest sum up to ``bound`` of the values of whole gangs ((n,), -1: none) and single pods."""
    _, of = np.unique(gang[gang >= 0], return_inverse=True)
    whole = [sum(worth[gang >= 0][of == g].tolist()) for g in range(of.max(initial=-1) + 1)]
    parts = np.unique([*whole, *worth[gang < 0].tolist()], return_counts=True)
    if not whole or bound * len(parts[0]) > _SUMS:
        return bound
    sums, mask = 1, (1 << (bound + 1)) - 1  # bit n: n is a sum of some of them
    for each, many in zip(*parts, strict=True):
        left, step = int(many), 1
        while left > 0 and each > 0:
            step = min(step, left)
            sums |= (sums << (int(each) * step)) & mask
            left, step = left - step, 2 * step
    return sums.bit_length() - 1
