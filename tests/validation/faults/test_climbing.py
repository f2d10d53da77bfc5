"""Random local search for stronger proofs: no bound ever exceeds the optimum."""

import contextlib
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from pydantic import TypeAdapter

from flowlex.models.pods.methods.admission import SearchLimits
from flowlex.models.pods.model import PodPlacement
from flowlex.validation.restated.pods.kinds import Kinds
from flowlex.validation.restated.pods.verifier import Piece, least_balance, most_of_level
from tests.validation.faults.restated import Document, solved
from tests.validation.faults.test_restated import PACKED, PODS
from tests.validation.proofs.forging import spoilt

STEPS = [60, pytest.param(2000, marks=pytest.mark.slow)]


def climb(proof: Any, worth: Callable[[Any], float], steps: int) -> float:
    """Return the strongest claim that random changes of a proof reach; unreadable proofs are skipped."""
    rng, best = random.Random(0), worth(proof)
    for _ in range(steps):
        made = spoilt(proof, rng)
        with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError):
            if (found := worth(made)) >= best:
                proof, best = made, found
    return best


def admitted(document: Document) -> dict[str, Fraction]:
    return {key: Fraction(each["admitted"]) for key, each in document["answer"]["admitted"].items()}


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("measure", ["deviation", "mean_absolute", "max_load"])
def test_no_proof_of_the_balance_climbs_above_the_optimum(
    measure: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # small instances are proven as stated; these proofs are those of larger ones
    monkeypatch.setattr(PodPlacement, "limits", SearchLimits(proven=-1))
    document = solved(PODS, balance=measure)
    assert document["certificate"]["claim"] in ("optimal", "bounded")
    kinds, true = Kinds(PODS, document["options"]), document["objective"]
    pieces = TypeAdapter(list[Piece])

    def worth(proof: Any, near: float = 1.01 * true) -> float:
        made = pieces.validate_python(proof, strict=True)
        return least_balance(kinds, measure, made, admitted(document), near)

    assert worth(document["proof"]["balance"], true) > document["bound"] - 2e-6 > 0
    assert climb(document["proof"]["balance"], worth, steps) <= true + 1e-6


@pytest.mark.parametrize("steps", STEPS)
def test_no_proof_of_the_admission_falls_below_the_optimum(steps: int) -> None:
    document = solved(PACKED)
    assert document["certificate"]["claim"] == "optimal"
    kinds = Kinds(PACKED, document["options"])

    def worth(made: Any) -> float:
        most = most_of_level(kinds, "0", {}, made)
        return -len(PACKED.pods) if most is None else -float(most)

    assert climb(document["proof"]["admission"]["0"], worth, steps) == -float(admitted(document)["0"])


def test_a_price_of_the_mean_proves_no_largest_load() -> None:
    """Regression test: the mean is not known there, but a piece with a mean once proved any load."""
    document = solved(PODS, balance="max_load")
    kinds, (piece,) = Kinds(PODS, document["options"]), document["proof"]["balance"]
    piece["leaf"]["rows"]["mean"] = {"at": {"": 1000}}
    with pytest.raises(ValueError, match="rows 'mean', which do not exist"):
        least_balance(kinds, "max_load", [Piece(**piece | {"low": 1.0, "high": 0.9})], admitted(document), 0.9)
