"""False answers and forged proofs of allocations are refused under every policy, with and without all pairs listed."""

import copy

import pytest

from flowlex import Allocation
from flowlex.instances import generate
from flowlex.validation.certificates import verify
from flowlex.validation.restated import allocation as restated_allocation
from tests.models.allocation.cases import random_instance
from tests.validation.faults.restated import solved


@pytest.mark.usefixtures("few_columns")
def test_a_full_job_that_can_rise_and_a_lost_step_are_refused() -> None:
    instance = generate("gavel-like", seed=3, jobs=8, gpus=8, models=4, entities=3)
    for policy in ("water_filling", "hierarchical"):
        document = solved(instance, policy=policy)
        full = document["answer"]["full"]
        assert verify(document, instance).claim == "optimal" and len(full) > 1
        joined = [[name for part in full for name in part]]
        moved = [[*full[0], full[1][0]], full[1][1:], *full[2:]]
        for order in (joined, full[1:], full[::-1], [part for part in moved if part]):
            made = copy.deepcopy(document) | {"certificate": None}
            made["answer"]["full"] = order
            assert not verify(made, instance).ok


def test_with_many_pairs_multipliers_are_of_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier objectives have coefficients in pairs that are left out, and their multipliers would not count there."""
    instance = generate("gavel-like", seed=3, jobs=8, gpus=8, models=4, entities=3, sharing=True)
    document = solved(instance, policy="water_filling")
    monkeypatch.setattr(restated_allocation, "_WRITTEN_OUT", 0)
    assert verify(document, instance).claim == "optimal"
    for more in ({"earlier": {"full_1": -1}}, {"earlier": -1}):
        made = copy.deepcopy(document) | {"certificate": None}
        made["proof"]["stages"]["rise_2"][0] |= more
        assert not verify(made, instance).ok


def test_deadlines_that_could_be_kept_are_not_proven_impossible() -> None:
    hard = random_instance(2, tight=3.0)
    document = Allocation(hard, policy="max_throughput").solve("highs").to_dict()
    assert (document["status"], verify(document, hard).ok) == ("infeasible", True)
    easy = random_instance(2, tight=0.1)
    assert not verify(document | {"fingerprint": easy.fingerprint, "certificate": None}, easy).ok
