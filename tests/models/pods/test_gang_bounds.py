"""Bounds with gangs and spreads: cases by hand, valid for all placements of tiny instances, and refused inputs."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.instances.group_rules import PodGang, PodSpread
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.pods.methods.gang_bounds import gangs_out, largest_sum, most_of_spreads
from flowlex.models.pods.problem.cluster import Cluster
from flowlex.validation.certificates import verify
from flowlex.validation.restated.pods.instance_data import rules_of
from flowlex.validation.restated.pods.kinds import Kinds
from tests.models.pods.enumeration import hold
from tests.models.pods.oracles import BySearch


def racks(*cores: float, cards: int = 0) -> tuple[PodNode, ...]:
    """Two equal nodes in each rack."""
    gpu: dict[str, Any] = {"cards": cards, "card_gb": 8} if cards else {}
    return tuple(
        PodNode(name=f"n{r}{k}", cpu_cores=each, memory_gb=64, labels={"rack": f"r{r}"}, **gpu)
        for r, each in enumerate(cores)
        for k in range(2)
    )


def pods_of(many: int, name: str = "p", **fields: Any) -> list[Pod]:
    return [Pod(name=f"{name}{k}", **({"cpu_cores": 2, "memory_gb": 1} | fields)) for k in range(many)]


def too_large() -> PodInstance:
    """Nine pods of two cores in racks of sixteen cores: eight fit in a rack; four more fit."""
    pods = [*pods_of(9, gang="g"), *pods_of(4, "q")]
    return PodInstance(nodes=racks(8, 8), pods=tuple(pods), gangs=(PodGang(name="g", within="rack"),))


def in_threes() -> PodInstance:
    """Room for eight pods, and three gangs of three."""
    pods = [pod for g in "abc" for pod in pods_of(3, g, gang=g)]
    return PodInstance(nodes=racks(8), pods=tuple(pods), gangs=tuple(PodGang(name=g) for g in "abc"))


def on_cards() -> PodInstance:
    """A gang of seven pods of 5 GB, and racks with four cards of 8 GB: six fit by total memory, four by cards."""
    pods = [*pods_of(5, gang="g", gpu_memory_gb=5), *pods_of(2, "q")]
    return PodInstance(nodes=racks(16, 16, cards=2), pods=tuple(pods), gangs=(PodGang(name="g", within="rack"),))


def skewed() -> PodInstance:
    """Racks for eight, eight and two of a spread by two: no more than four, four and two."""
    spread = PodSpread(name="s", over="rack", skew=2)
    return PodInstance(nodes=racks(8, 8, 2), pods=tuple(pods_of(20, spreads=("s",))), spreads=(spread,))


@pytest.mark.parametrize(
    ("instance", "most", "wanted"), [(too_large(), 4, 13), (in_threes(), 6, 9), (on_cards(), 2, 7), (skewed(), 10, 20)]
)
def test_bounds_count_gangs_whole_and_spreads_by_domain(instance: PodInstance, most: int, wanted: int) -> None:
    solution = BySearch(instance).solve("highs")
    assert solution.certificate is not None and solution.certificate.claim != "feasible"
    assert solution.admitted[0] == (most, wanted, most)
    document = json.loads(json.dumps(solution.to_dict()))
    document["answer"]["admitted"]["0"]["most"] = most - 1
    assert not verify(document, instance).ok
    loose = instance.model_copy(
        update={"pods": tuple(p.model_copy(update={"gang": None, "spreads": ()}) for p in instance.pods)}
    )
    free = BySearch(loose.model_copy(update={"gangs": (), "spreads": ()})).solve("highs")
    assert free.admitted[0][2] > most  # without the rules more fit: nothing else keeps them out


def test_a_bound_that_breaks_a_gang_is_only_quoted_as_the_most() -> None:
    document = json.loads(json.dumps(BySearch(skewed()).solve("highs").to_dict()))
    document["proof"]["admission"]["0"]["rows"].pop("rule")
    found = verify(document, skewed())
    assert [check.how for check in found.checks if check.name == "most pods of priority 0"] == ["quoted"]
    assert found.claim == "feasible"


asked = st.tuples(
    st.integers(1, 5),
    st.sampled_from([0, 0, 3, 5, 8]),
    st.sampled_from([None, "g", "h"]),
    st.sampled_from([(), ("s",), ("t",), ("s", "t")]),
    st.sampled_from([None, None, None, "n00"]),
)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.lists(asked, min_size=1, max_size=5),
    st.sampled_from([None, "node", "rack"]),
    st.sampled_from([(1, None), (None, 1), (2, 1)]),
    st.booleans(),
)
def test_no_placement_exceeds_what_rules_leave(pods: Any, within: Any, limits: Any, cards: bool) -> None:
    """Enumerate all placements of up to five pods on three nodes, checked by independent code."""
    nodes = (*racks(6, cards=1), PodNode(name="c", cpu_cores=4, memory_gb=64, labels={"rack": "r9"}))
    runs = [None if g or c > 1 else at for c, g, _, _, at in pods]
    made = tuple(
        Pod(name=f"p{k}", cpu_cores=c, gpu_memory_gb=g, gang=None if at else gang, spreads=spreads, node=at)
        for k, ((c, g, gang, spreads, _), at) in enumerate(zip(pods, runs, strict=True))
    )
    instance = PodInstance(
        nodes=nodes,
        pods=made,
        gangs=(PodGang(name="g", within=within), PodGang(name="h", within="rack")),
        spreads=(PodSpread(name="s", over="rack", most=limits[0], skew=limits[1]), PodSpread(name="t", skew=1)),
    )
    view, bounds = instance.arrays, Kinds(instance, {"cards": cards}).bounds
    out, most = gangs_out(view, cards=cards), most_of_spreads(view, cards=cards)
    assert {made[p].gang for p in np.flatnonzero(out)} == bounds.nowhere
    for r, name in enumerate(view.rules.names):
        if name.startswith("spread"):
            told = bounds.of_spread(name.split("'")[1])
            assert most[r] == (np.inf if told is None else told)
    rules, counted = rules_of(instance), set()
    for at in itertools.product(range(-1, len(nodes)), repeat=len(made)):
        if any(pod.node and n < 0 for pod, n in zip(made, at, strict=True)) or not hold(rules, at):
            continue
        cluster = Cluster(view, cards=cards)
        if not all(n < 0 or (cluster.fits_node(p, n) and cluster.add(p, n) is None) for p, n in enumerate(at)):
            continue
        placed = [p for p, n in enumerate(at) if n >= 0]
        assert not out[placed].any()
        for r, name in enumerate(view.rules.names):
            if name.startswith("spread"):
                assert sum(f"spread {s!r}" == name for p in placed for s in made[p].spreads) <= most[r]
        counted.add(sum(made[p].node is None for p in placed))
    fresh = np.array([pod.node is None for pod in made])
    for n in counted:  # rounding a bound never goes below a feasible number
        assert largest_sum(view.rules.gang[fresh], np.ones(fresh.sum(), np.int64), n) == n
        if fresh.any():
            assert bounds.largest("0", n) == n


def test_sums_of_gangs_and_single_pods() -> None:
    gang, worth = np.array([0, 0, 1, 1, 1, -1]), np.array([2, 2, 3, 3, 3, 1])
    assert [largest_sum(gang, worth, n) for n in (0, 3, 5, 8, 9, 13, 99)] == [0, 1, 5, 5, 9, 13, 14]
    assert largest_sum(np.array([-1, -1]), np.array([5, 5]), 7) == 7  # without gangs all pods are equal
