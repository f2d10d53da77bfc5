"""Results of the claims and their helper functions."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowlex.instances.generators.gpu import paper_jobs
from flowlex.instances.generators.registry import generate
from flowlex.models.gpu.round_eligibility import base_shares
from flowlex.models.jit.latest_arrival import latest_arrival_times
from flowlex.validation.claims import (
    gpu_paper_claims,
    jit_forest,
    jit_latest_arrivals,
    jit_lemma_3,
    jit_lemmas,
    sirius_priority_weights,
)
from flowlex.validation.claims.claim_interface import Outcome
from flowlex.validation.claims.full_windows import full_window_rule
from flowlex.validation.claims.gpu_paper_claims import paper_sizes
from flowlex.validation.claims.registry import CLAIMS
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.determinant import determinant
from flowlex.validation.unimodularity.examples import jit_matrix
from flowlex.validation.unimodularity.proof_types import Answer

PAPER_TWO_SLOTS = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2))


OUTCOMES = {
    "gpu-graph-size": Outcome.HOLDS,
    "gpu-inputs": Outcome.HOLDS,
    "gpu-figure-1": Outcome.HOLDS,
    "gpu-greedy-unfair": Outcome.HOLDS,
    "sirius-strict-weight": Outcome.FAILS,
    "jit-lemma-2": Outcome.HOLDS,
    "jit-no-delay": Outcome.HOLDS,
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_claims_come_out_as_found(name: str) -> None:
    finding = CLAIMS[name].check()
    assert finding.outcome is OUTCOMES[name], finding.evidence
    assert finding.evidence


#: Changed evidence that must reverse a claim: claim, module, name in it, replacement.
OTHER_EVIDENCE: list[tuple[str, Any, str, Any, Outcome]] = [
    ("gpu-graph-size", gpu_paper_claims, "paper_sizes", lambda gpus, tasks: (23, 79), Outcome.FAILS),
    ("gpu-inputs", gpu_paper_claims, "paper_jobs", lambda: paper_jobs()[:18], Outcome.FAILS),
    ("gpu-figure-1", gpu_paper_claims, "_gpu", lambda name, seed=0: generate("gpu-random", seed=1), Outcome.FAILS),
    (
        "gpu-greedy-unfair",
        gpu_paper_claims,
        "base_shares",
        lambda view: 0 * base_shares(view),
        Outcome.NOT_REPRODUCIBLE,
    ),
    ("sirius-strict-weight", sirius_priority_weights, "search", lambda: None, Outcome.NOT_REPRODUCIBLE),
    ("jit-lemma-2", jit_lemmas, "disorder", lambda entries, largest: ((1,), (0,)), Outcome.FAILS),
    ("jit-lemma-3", jit_lemma_3, "lemma_3_verdict", lambda: check(jit_matrix(PAPER_TWO_SLOTS[:2], 2)), Outcome.HOLDS),
    (
        "jit-no-delay",
        jit_latest_arrivals,
        "latest_arrival_times",
        lambda instance, rule: replace(times := latest_arrival_times(instance, rule), offset_s=times.offset_s + 2),
        Outcome.FAILS,
    ),
    ("jit-forest", jit_forest, "agreement", lambda samples: {"tu": 9, "disagree": 1, "unproven": 0}, Outcome.FAILS),
]


@pytest.mark.parametrize(
    ("name", "module", "place", "other", "outcome"), OTHER_EVIDENCE, ids=[case[0] for case in OTHER_EVIDENCE]
)
def test_other_evidence_gives_another_finding(
    monkeypatch: pytest.MonkeyPatch, name: str, module: Any, place: str, other: Any, outcome: Outcome
) -> None:
    monkeypatch.setattr(module, place, other)
    finding = CLAIMS[name].check()
    assert finding.outcome is outcome, finding.evidence


def test_every_claim_is_seen_to_come_out_two_ways() -> None:
    assert set(CLAIMS) == {case[0] for case in OTHER_EVIDENCE}


def test_the_counter_example_of_strict_weights_by_hand() -> None:
    never = sirius_priority_weights.NEVER
    cost = np.array([[0, never, never], [0, 10, never], [never, 0, 10], [never, never, 0]])
    important = np.array([True, True, True, False])
    assert sirius_priority_weights.waiting_by_class(cost, important, 11) == (1, 0)
    assert sirius_priority_weights.waiting_by_class(cost, important, 1000) == (0, 1)
    assert sirius_priority_weights.search(samples=3) is None


def test_figure_4_ends_no_later_by_its_latest_times_if_ports_are_shared_by_transfers_of_a_pass() -> None:
    data = CLAIMS["jit-no-delay"].check().data
    assert data["at_once_s"] == 13  # arrivals at 4, 8, 8, 4: computations end at 5, 10, 9, 12, 13
    assert data["at_latest_s"] == {"paper": 12, "paper-job": 22}  # 1, 6, 6, 9: 2, 8, 7, 11, 12; or 4, 13, 13, 19
    assert jit_lemmas.disorder(1, 2) is not None
    assert paper_sizes(1, [1]) == (6, 6)


def test_lemma_3_fails_with_the_seven_by_seven() -> None:
    verdict = jit_lemma_3.lemma_3_verdict()
    assert verdict.shape == (16, 12)
    assert verdict.witness is not None
    assert len(verdict.witness.rows) == 7
    assert abs(verdict.witness.determinant) == 2
    assert not check(jit_matrix(PAPER_TWO_SLOTS, 2)).is_tu


def test_smallest_failing_cases_by_search() -> None:
    assert list(jit_lemma_3.flow_sets(1)) == [((0, 0),)]
    assert len(list(jit_lemma_3.flow_sets(2))) == 3  # parallel, sharing one end, disjoint
    smallest = jit_lemma_3.smallest_failing_cases(transfers=4, slots=3)
    assert set(smallest) == {3}
    assert len(smallest[3]) == 4
    assert check(jit_matrix(smallest[3], 3)).answer is Answer.NOT_TU
    assert all(check(jit_matrix(flows, 3)).is_tu for flows in jit_lemma_3.flow_sets(3))


@pytest.mark.parametrize("flows", list(jit_lemma_3.flow_sets(3)) + list(jit_lemma_3.flow_sets(4)))
def test_the_forest_rule_is_exact_on_all_small_sets(flows: tuple[tuple[int, int], ...]) -> None:
    rule = full_window_rule(flows, 3)
    matrix = jit_matrix(flows, 3)
    assert rule.tu == check(matrix).is_tu
    if not rule.tu:
        assert abs(determinant(matrix.tocsr()[list(rule.rows)][:, list(rule.columns)])) == 2


def test_failing_share_grows_with_transfers_and_slots() -> None:
    share = jit_lemma_3.failing_share((2, 6, 12), (1, 2, 3), machines=4, samples=8)
    assert share[:, 0].tolist() == [0, 0, 0]  # one slot: demand rows are units, the rest is bipartite
    assert share[0].tolist() == [0, 0, 0]
    assert np.all(np.diff(share[2]) >= 0)
    assert share[2, 2] > 0.5
