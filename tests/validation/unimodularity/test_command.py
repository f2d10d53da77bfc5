"""``flowlex tu`` and ``flowlex claims``: exit codes, JSON, stored proofs, pictures."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app

INTERVAL = "2 3\n1 1 0\n0 1 1\n"
TRIANGLE = "3 3\n1 0 1\n1 1 0\n0 1 1\n"


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    good, bad = tmp_path / "interval.txt", tmp_path / "triangle.txt"
    good.write_text(INTERVAL)
    bad.write_text(TRIANGLE)
    return good, bad


def test_exit_codes_and_sentences(files: tuple[Path, Path]) -> None:
    good, bad = files
    result = run("tu", good)
    assert result.exit_code == 0
    assert "totally unimodular (2 x 3" in result.output
    result = run("tu", bad)
    assert result.exit_code == 1
    assert "3 x 3 submatrix of determinant" in result.output
    assert run("tu", bad, "--method", "sums").exit_code == 3
    assert run("tu", bad.with_name("missing.txt")).exit_code == 2
    assert run("tu", good, "--time-limit", "-1").exit_code == 2
    assert run("tu", good, "--method", "guess").exit_code == 2


def test_json_is_one_object(files: tuple[Path, Path]) -> None:
    good, bad = files
    document = json.loads(run("tu", bad, "--json").stdout)
    assert document["verdict"] == "not_tu"
    assert sorted(document["witness"]["rows"]) == sorted(document["witness"]["columns"]) == [0, 1, 2]
    assert abs(document["witness"]["determinant"]) == 2
    assert document["shape"] == [3, 3]
    assert document["nonzeros"] == 6
    document = json.loads(run("tu", good, "--json").stdout)
    assert document["verdict"] == "tu"
    assert document["witness"] is None
    assert document["certificate"]["kind"] == "network"


def test_stored_proofs_are_checked_again(files: tuple[Path, Path], tmp_path: Path) -> None:
    good, bad = files
    for file in files:
        stored = tmp_path / f"{file.stem}.json"
        run("tu", file, "-o", stored)
        assert run("tu", file, "--verify", stored).exit_code == 0
    stored = tmp_path / "triangle.json"
    result = run("tu", good, "--verify", stored)
    assert result.exit_code == 2
    assert "another matrix" in result.output
    document = json.loads(stored.read_text())
    document["witness"]["determinant"] = 5
    stored.write_text(json.dumps(document))
    result = run("tu", bad, "--verify", stored)
    assert result.exit_code == 1
    assert "refused: " in result.output
    stored.write_text("{}")
    assert run("tu", bad, "--verify", stored).exit_code == 2
    assert run("tu", bad, "--method", "sums", "-o", stored, "--force").exit_code == 3
    assert run("tu", bad, "--verify", stored).exit_code == 3


def test_families_are_explained(files: tuple[Path, Path]) -> None:
    output = run("tu", files[1], "--explain").output
    assert "families of rows" in output
    assert "breaks total unimodularity" in output
    assert json.loads(run("tu", files[1], "--explain", "--json").stdout)["verdict"] == "not_tu"


def test_claims_by_name() -> None:
    document = json.loads(run("claims", "jit-no-delay", "--json").stdout)
    assert document["jit-no-delay"]["outcome"] == "holds"
    result = run("claims", "no-such-claim")
    assert result.exit_code == 2
    assert "jit-lemma-3" in result.output
