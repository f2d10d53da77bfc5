"""Model files (.mps, .lp) through HiGHS, with every complaint of its taken as an error."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.instances.base import InstanceError
from flowlex.validation.unimodularity.matrix import NamedMatrix, Program, canonical

__all__ = ["model_matrix", "open_model", "without_integers"]


def open_model(data: bytes, kind: str) -> Any:
    """Read a model with HiGHS, from a plain copy, and take every complaint of its as an error."""
    import highspy

    if kind == "mps":
        _check_mps(data)
    if b"\0" in data:
        raise InstanceError("not a text file (it holds zero bytes)")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"model.{kind}"
        copy.write_bytes(data)
        solver = highspy.Highs()
        complaints: list[str] = []
        solver.cbLogging.subscribe(lambda event: complaints.append(event.message))
        solver.setOptionValue("log_to_console", False)
        status = solver.readModel(str(copy))
    said = [text.strip() for text in complaints if text.startswith(("WARNING", "ERROR"))]
    if status != highspy.HighsStatus.kOk or said:
        reason = "; ".join(said).replace(str(copy), "the file") or "it cannot be parsed"
        raise InstanceError(f"HiGHS does not accept this {kind.upper()} file: {reason}")
    if solver.getNumRow() == 0:
        raise InstanceError("the model has no rows, so there is no constraint matrix to test")
    return solver


def model_matrix(solver: Any) -> NamedMatrix:
    """The constraint matrix of a model that HiGHS holds, with its program."""
    model = solver.getModel()
    return _named(model.lp_, nonlinear_part(model))


def without_integers(solver: Any, columns: tuple[int, ...], kind: str) -> bytes:
    """Declare columns continuous in the model that HiGHS holds, and write it as ``mps`` or ``lp`` text."""
    import highspy

    for column in columns:
        solver.changeColIntegrality(column, highspy.HighsVarType.kContinuous)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"relaxed.{kind}"
        if solver.writeModel(str(copy)) == highspy.HighsStatus.kError:
            raise InstanceError(f"HiGHS cannot write this model as {kind.upper()}")
        return copy.read_bytes()


def nonlinear_part(model: Any) -> str:
    """Why an optimum of a HiGHS model need not be a vertex of its rows and bounds; empty for a linear program."""
    import highspy

    if model.hessian_.dim_ > 0 and len(model.hessian_.value_):
        return "the objective is quadratic"
    jumps = (highspy.HighsVarType.kSemiContinuous, highspy.HighsVarType.kSemiInteger)
    return "it has semi-continuous variables" if any(kind in jumps for kind in model.lp_.integrality_) else ""


def _named(program: Any, nonlinear: str) -> NamedMatrix:
    import highspy

    held = program.a_matrix_
    values = np.asarray(held.value_, dtype=float)
    arrays = (values, np.asarray(held.index_, dtype=np.int64), np.asarray(held.start_, dtype=np.int64))
    shape = (program.num_row_, program.num_col_)
    by_column = held.format_ == highspy.MatrixFormat.kColwise
    matrix = sp.csc_array(arrays, shape=shape) if by_column else sp.csc_array(sp.csr_array(arrays, shape=shape))
    rows, columns = list(program.row_names_), list(program.col_names_)
    kinds = list(program.integrality_) or [highspy.HighsVarType.kContinuous] * shape[1]
    whole = (highspy.HighsVarType.kInteger, highspy.HighsVarType.kSemiInteger)
    sign = -1.0 if program.sense_ == highspy.ObjSense.kMaximize else 1.0
    return NamedMatrix(
        canonical(matrix),
        (lambda: rows) if len(rows) == shape[0] else None,
        (lambda: columns) if len(columns) == shape[1] else None,
        Program(
            sides=np.array([program.row_lower_, program.row_upper_], dtype=float),
            bounds=np.array([program.col_lower_, program.col_upper_], dtype=float),
            integer=np.array([kind in whole for kind in kinds], dtype=bool),
            cost=sign * np.array(program.col_cost_, dtype=float),
            offset=sign * float(program.offset_),
            nonlinear=nonlinear,
        ),
    )


_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eEdD][+-]?\d+)?$")


def _check_mps(data: bytes) -> None:
    """Look at what HiGHS lets pass: coefficients that are no numbers, and files that just stop."""
    section = b""
    for number, line in enumerate(data.splitlines(), 1):
        words = line.split()
        if not words or line.startswith(b"*"):
            continue
        if not line[:1].isspace():
            section = words[0].upper()
            continue
        if section not in (b"COLUMNS", b"RHS") or b"'MARKER'" in words:
            continue
        pairs = words[1:] if len(words) % 2 else words
        for word in pairs[1::2]:
            if not _NUMBER.match(word):
                text = word.decode("utf-8", "replace")[:40]
                raise InstanceError(f"{text!r} is no finite number", place=f"line {number}")
    if section != b"ENDATA":
        raise InstanceError("the MPS file has no ENDATA line at its end; is it cut off?")
