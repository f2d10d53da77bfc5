"""Placement one after another by a policy; gangs go whole or not at all, skewed spreads fill their emptiest domains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.arrays import Booleans, Integers
from flowlex.instances.pod_rules import GANG, SKEW
from flowlex.instances.pods import PodArrays
from flowlex.models.pods.problem.cluster import Cluster
from flowlex.models.pods.problem.rules import room
from flowlex.models.pods.search.policies import EVEN, Scores
from flowlex.models.pods.search.state import SearchState

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["place_by", "tied"]


def tied(view: PodArrays) -> Booleans:
    """(P,) pods that searches must not take out one by one: of gangs and of spreads with a skew."""
    return view.rules.members(GANG, SKEW)


def place_by(policy: int, start: Cluster, pods: Sequence[int] | Integers, *, seed: int = 0) -> Cluster:
    """Place pods in this order, gangs whole; those that fit nowhere wait."""
    from flowlex.models.pods.search.scoring import place_all

    state, scores = SearchState.of(start), Scores.of(start, keep=policy != EVEN)
    order, rng = np.asarray(pods, np.int64), np.random.default_rng(seed)
    if tied(start.view).any():
        _place_ruled(start.view, state, scores, policy, order, rng)
    else:
        place_all(state, scores, policy, order, rng)
    return state.cluster(start)


def _place_ruled(
    view: PodArrays, state: SearchState, scores: Scores, policy: int, pods: Integers, rng: np.random.Generator
) -> None:
    """Place pods in this order as `place_all` does, a gang when the first of its pods comes."""
    from flowlex.models.pods.search.scoring import place_all

    alone = tied(view)
    skewed = view.rules.members(SKEW)
    cuts = np.flatnonzero(alone[pods])
    begin, done = 0, set[int]()
    for cut in cuts.tolist():
        if cut > begin:
            place_all(state, scores, policy, pods[begin:cut], rng)
        begin, pod = cut + 1, int(pods[cut])
        gang = int(view.rules.gang[pod])
        if gang < 0:
            if place_all(state, scores, policy, pods[cut : cut + 1], rng):
                _refresh(view, state)
        elif gang not in done:
            done.add(gang)
            _place_gang(view, state, scores, policy, gang, pods, rng, bool(skewed[view.rules.gang == gang].any()))
    if begin < len(pods):
        place_all(state, scores, policy, pods[begin:], rng)


def _refresh(view: PodArrays, state: SearchState) -> None:
    """What spreads with a skew may take follows their emptiest domain."""
    skew = (view.rules.what == SKEW)[view.rules.of]
    state.room[skew] = room(view, state.node)[skew]


def _place_gang(
    view: PodArrays,
    state: SearchState,
    scores: Scores,
    policy: int,
    gang: int,
    wanted: Integers,
    rng: np.random.Generator,
    skewed: bool,
) -> None:
    """Place all pods of a gang in the tightest domain that takes them, or none."""
    from flowlex.models.pods.search.moving import depart
    from flowlex.models.pods.search.scoring import place_all

    rules = view.rules
    members = np.flatnonzero((rules.gang == gang) & (state.node < 0))
    if len(members) < rules.limit[gang] or not np.isin(members, wanted).all():
        return
    members = members[np.argsort(-view.load.most()[members], kind="stable")]
    none = np.zeros((1, len(scores.full)), np.bool_)
    for d in _domains(view, state, gang, members):
        spot = rules.offset[gang] + d
        state.room[spot] = rules.limit[gang]
        for k in range(len(members)):
            if not place_all(state, scores, policy, members[k : k + 1], rng):
                break
            if skewed:
                _refresh(view, state)
        if (state.node[members] >= 0).all():
            return
        depart(state, scores, members, none)
        state.room[spot] = 0
        if skewed:
            _refresh(view, state)


def _domains(view: PodArrays, state: SearchState, gang: int, members: Integers) -> list[int]:
    """Domains whose free cores and memory suffice in sum, the one with the least free first."""
    rules, exact = view.rules, view.exact
    of_node = rules.domain[rules.topology[gang]]
    there = of_node >= 0
    free = np.zeros((int(of_node.max(initial=-1)) + 1, 3))
    np.add.at(free[:, :2], of_node[there], state.free[there].astype(np.float64))
    np.add.at(free[:, 2], of_node[there], np.maximum(state.card_free, 0).sum(axis=1)[there].astype(np.float64))
    asked = np.array([exact.cpu[members].sum(dtype=float), exact.memory[members].sum(dtype=float)])
    enough = np.all(free[:, :2] >= asked * (1 - 1e-9), axis=1)
    order = np.lexsort((free[:, 0], free[:, 2]))
    return [int(d) for d in order if enough[d]]
