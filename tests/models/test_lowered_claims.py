"""A solve returns a correct answer with an invalid proof as feasible; a wrong answer is an error."""

import json

import pytest

from flowlex import generate, model_for
from flowlex.models.min_cost_flow import NetworkFlow
from flowlex.models.model_base import UNPROVEN
from flowlex.validation.certificates import CertificateError, verify


def test_a_proof_that_does_not_hold_lowers_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = generate("network-random", nodes=12, arcs=40)
    true = model_for(instance).solve("network")
    monkeypatch.setattr(
        NetworkFlow, "_proof", lambda _: {"format": 3, "stages": {"cost": [{"rows": {"node": {"at": {"0": 1}}}}]}}
    )
    found = model_for(instance).solve("network")
    assert (found.status, found.objective, found.bound) == ("feasible", true.objective, None)
    assert found.certificate is not None and found.certificate.claim == "feasible" and UNPROVEN in found.message
    assert verify(json.loads(json.dumps(found.to_dict())), instance).verdict == "proven"


def test_an_answer_that_is_wrong_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = generate("network-random", nodes=12, arcs=40)
    monkeypatch.setattr(NetworkFlow, "_answer", lambda _: {"flow": [1] * 40})
    with pytest.raises(CertificateError, match="every row holds"):
        model_for(instance).solve("network")
