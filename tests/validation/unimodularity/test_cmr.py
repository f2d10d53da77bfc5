"""CMR: its recorded answers are translated; the live tests run where passagemath-cmr is installed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flowlex.validation.unimodularity import cmr, zoo
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.proof import Answer
from flowlex.validation.unimodularity.sums import operands

#: What CMR 1.4 (passagemath-cmr 10.8.13) answered for the 2-sum of R10 with itself.
TWO_R10 = json.dumps(
    {
        "status": "tu",
        "tree": {
            "kind": "TwoSum",
            "labels": [f"r{k}" for k in range(9)] + [f"c{k}" for k in range(9)],
            "children": [
                {
                    "kind": "R10",
                    "labels": ["r5", "r6", "r7", "r8", "r0", "c4", "c5", "c6", "c7", "c8"],
                    "children": [],
                },
                {
                    "kind": "R10",
                    "labels": ["r0", "r1", "r2", "r3", "r4", "c4", "c0", "c1", "c2", "c3"],
                    "children": [],
                },
            ],
        },
    }
)


def test_a_recorded_decomposition_becomes_our_two_sum() -> None:
    matrix = zoo.two_sum(zoo.r10(), zoo.r10())
    answer = cmr.read_answer(TWO_R10)
    assert answer.status == "tu"
    split = cmr.separation_from(matrix, answer.tree)
    assert split is not None
    assert split.other_row == -1
    assert [piece.shape for piece in operands(matrix, split)] == [(5, 5), (5, 5)]


def test_recorded_refusals_are_told() -> None:
    error = cmr.read_answer('{"status": "error", "reason": "RuntimeError: User input error"}')
    assert (error.status, error.reason) == ("error", "RuntimeError: User input error")
    assert cmr.read_answer("Segmentation fault").status == "error"
    witness = cmr.read_answer('{"status": "not tu", "rows": [2, 1, 0], "columns": [2, 1, 0]}').witness
    assert witness == ([2, 1, 0], [2, 1, 0])


def test_without_the_extra_the_verdict_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cmr.VARIABLE, raising=False)
    monkeypatch.setattr(cmr, "find_spec", lambda name: None)
    verdict = check(zoo.r10(), method="cmr")
    assert verdict.answer is Answer.UNDECIDED
    assert "flowlex[tu]" in " ".join(step.outcome for step in verdict.steps)


def stand_in(tmp_path: Path, body: str) -> str:
    """An interpreter that behaves as a failing CMR does."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ("echo boom >&2; exit 3", "error", "exit code 3: boom"),
        ("sleep 300", "time limit", "killed"),
        ("echo nonsense", "error", "unreadable"),
    ],
)
def test_a_failing_process_is_contained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, status: str, reason: str
) -> None:
    monkeypatch.setenv(
        cmr.VARIABLE, stand_in(tmp_path, f"exec 0<&-; {body}" if "sleep" not in body else f"exec {body}")
    )
    answer = cmr.ask_cmr(zoo.r10(), seconds=1 if status == "time limit" else 60, start_up_s=0)
    assert answer.status == status
    assert reason in answer.reason


def test_an_interpreter_that_is_not_there_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cmr.VARIABLE, "/no/such/python")
    assert cmr.ask_cmr(zoo.r10()).status == "missing"


@pytest.mark.slow
@pytest.mark.skipif(cmr.cmr_python() is None, reason="passagemath-cmr is not installed")
def test_agreement_with_cmr_on_thousands_of_random_matrices() -> None:
    from benchmarks.unimodularity import cmr_many

    generator = np.random.default_rng(0)
    matrices = [
        generator.choice([-1, 0, 1], size=generator.integers(3, 13, 2), p=[0.15, 0.7, 0.15]) for _ in range(1000)
    ]
    matrices += [zoo.jit_matrix(zoo.random_flows(int(k), 4, seed=s), 3).toarray() for s, k in enumerate([4] * 1000)]
    for seed in range(1000):
        dense = zoo.network(8, 14, seed=seed).toarray()
        if seed % 2:
            row, column = generator.integers(8), generator.integers(14)
            dense[row, column] = (dense[row, column] + 2) % 3 - 1
        matrices.append(dense)
    answers = cmr_many(matrices)
    assert sum(theirs is None for theirs in answers) < 30  # CMR's own errors
    for matrix, theirs in zip(matrices, answers, strict=True):
        verdict = check(matrix)
        assert verdict.verify(matrix)
        assert theirs is None or verdict.is_tu == theirs
