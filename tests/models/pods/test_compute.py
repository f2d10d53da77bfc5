"""Compute shares of cards in addition to memory: cases by hand, and enumeration of tiny instances."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from flowlex.formulations.solver_outcome import SolveOptions
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.pods.baselines import BASELINES, place
from flowlex.models.pods.model import PodPlacement
from flowlex.validation.restated.pods.instance_data import PodData
from flowlex.validation.restated.pods.verifier import check_placement
from tests.models.pods.oracles import BySearch, failing

NODES = (
    PodNode(name="a", cpu_cores=8, memory_gb=16, cards=2, card_gb=8),
    PodNode(name="b", cpu_cores=8, memory_gb=16, cards=1, card_gb=16),
)


def test_shares_of_compute_sum_to_one_on_a_card() -> None:
    pods = [Pod(name=f"p{k}", gpu_memory_gb=1, gpu_compute=c) for k, c in enumerate((0.6, 0.6, 0.3, 0.3))]
    solution = PodPlacement(PodInstance(nodes=NODES[:1], pods=tuple(pods))).solve("highs")
    assert solution.certificate.ok and solution.queue == ()
    assert {tuple(cards) for cards in solution.cluster.used_cards.values()} == {(0,), (1,)}
    # Memory is there, compute is not.
    more = (*pods, Pod(name="more", gpu_memory_gb=1, gpu_compute=0.2))
    waits = PodPlacement(PodInstance(nodes=NODES[:1], pods=more)).solve("highs")
    assert len(waits.queue) == 1 and waits.certificate.ok
    assert waits.reasons()[waits.queue[0]] == "not enough GPU compute on a"
    whole = PodPlacement(PodInstance(nodes=NODES[:1], pods=more), cards=False).solve("highs")
    assert whole.queue == () and whole.certificate.ok  # counted per node, as the paper does


asked = st.lists(
    st.tuples(
        st.sampled_from([0, 2, 4, 8]), st.sampled_from([0.0, 0.3, 0.5, 0.7]), st.integers(1, 2), st.integers(0, 1)
    ),
    max_size=5,
)


def drawn(pods: Any) -> PodInstance:
    made = [
        Pod(name=f"p{k}", cpu_cores=1, gpu_memory_gb=g, gpu_compute=c * (g > 0), gpu_cards=m if g else 1, priority=top)
        for k, (g, c, m, top) in enumerate(pods)
    ]
    return PodInstance(nodes=NODES, pods=tuple(made))


@settings(max_examples=15, deadline=None)
@given(asked)
def test_searches_and_baselines_keep_compute(pods: Any) -> None:
    instance = drawn(pods * 2)
    found = BySearch(instance)._admit("highs", SolveOptions()).cluster
    assert found is not None
    for cluster in (found, *(place(instance, name) for name in BASELINES)):
        on = {p: list(map(int, cards)) for p, cards in cluster.used_cards.items()}
        placed = {p: (n, on.get(p, ())) for p, n in enumerate(cluster.node.tolist()) if n >= 0}
        assert all(check.ok for check in check_placement(PodData(instance, {}), placed))


def test_a_certificate_refuses_too_much_compute() -> None:
    instance = drawn([(2, 0.7, 1, 0), (2, 0.7, 1, 0)])
    failed = failing(instance, lambda d: d.update(placement={"p0": "a", "p1": "a"}, cards={"p0": [0], "p1": [0]}))
    assert "compute[a,0] is off" in failed


def test_compute_without_memory_is_refused() -> None:
    with pytest.raises(ValidationError, match="gives gpu_compute but wants no GPU memory; give gpu_memory_gb"):
        Pod(name="p", gpu_compute=0.5)
    assert np.array_equal(drawn([(2, 0.5, 1, 0), (2, 0.3, 1, 0)]).arrays.exact.compute, [5, 3])
