"""Determinants of more digits than Python converts are witnesses like others."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app
from flowlex.validation.unimodularity.json_documents import read, write
from flowlex.validation.unimodularity.proof_types import Witness, in_digits


@pytest.mark.parametrize(
    "value",
    [3, -(7**6000), Fraction(7**6000, 3), Fraction(1, 7**6000)],
    ids=["short", "long", "numerator", "denominator"],
)
def test_numbers_of_documents_are_exact(value: int | Fraction) -> None:
    witness = Witness((0,), (0,), value, "entry")  # type: ignore[call-arg]
    assert read(Witness, json.loads(json.dumps(write(witness)))).determinant == value
    assert len(in_digits(value)) < 70


def test_the_command_says_not_tu_of_equations(tmp_path: Path) -> None:
    """600 equations ``10^9 x = 10^9``: their only basis has a determinant of 5 401 digits."""
    rows = [f" E  r{k}" for k in range(600)]
    columns = [f"    x{k}  r{k}  1000000000" for k in range(600)]
    sides = [f"    RHS  r{k}  1000000000" for k in range(600)]
    text = ["NAME wide", "ROWS", " N  cost", *rows, "COLUMNS", *columns, "RHS", *sides, "ENDATA", ""]
    file, proof = tmp_path / "wide.mps", tmp_path / "proof.json"
    file.write_text("\n".join(text))
    for more in ((), ("--json",), ("-o", str(proof))):
        done = CliRunner().invoke(app, ["tu", str(file), *more])
        assert done.exit_code == 1, done.output
    assert CliRunner().invoke(app, ["tu", str(file), "--verify", str(proof)]).exit_code == 0


def test_a_defect_is_no_verdict() -> None:
    code = (
        "import flowlex.cli.app as a, flowlex.cli as c\n"
        "def fails(): raise RuntimeError('defect')\n"
        "a.app = fails\n"
        "c.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 70 and "RuntimeError: defect" in done.stderr
