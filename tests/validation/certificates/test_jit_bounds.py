"""Bounds of certificates are sound: no multipliers, even wrong ones, give a bound above a schedule's level."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowlex.models.jit.model import JitBandwidth
from flowlex.validation.certificates.jit.duality_proof import Board
from flowlex.validation.certificates.jit.prices_and_windows import LevelProof
from tests.models.jit.test_unequal_ports import LOADS, NARROW, THROUGH, made


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("problem", [NARROW, THROUGH])
def test_no_prices_prove_more_than_is_true(monkeypatch: pytest.MonkeyPatch, problem: Any, load: Any) -> None:
    rng, true, bounds = np.random.default_rng(1), Board.prove, list[bool]()

    def moved(prices: Any) -> Any:
        return prices + rng.integers(-1, 2, len(prices)) * (rng.random(len(prices)) < 0.4)

    def prove(self: Board, proof: LevelProof, value: int, counts: dict[int, int], lateness: int) -> int:
        for _ in range(0 if proof.mu else 40):
            board = copy.copy(self)
            board.low, board.high, board.room_low = ([*each] for each in (self.low, self.high, self.room_low))
            loads, ports = (replace(each, price=moved(each.price), last=None) for each in (proof.load, proof.port))
            wrong = replace(proof, lam=moved(proof.lam), load=loads, port=ports)
            bound = true(board, wrong, value, counts, lateness)
            assert bound <= proof.scale * value
            bounds.append(bound == proof.scale * value)
        return true(self, proof, value, counts, lateness)

    monkeypatch.setattr(Board, "prove", prove)
    solution = JitBandwidth(made(*problem), share=1.0, load=load, presolve=False).solve("highs")
    assert solution.certificate is not None and solution.certificate.ok
    assert any(bounds) and not all(bounds)
