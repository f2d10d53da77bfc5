"""Model files (.mps, .lp) through HiGHS, which must read all of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.formulations.program_arrays import LinearProgramArrays
from flowlex.instances.instance_base import InstanceError
from flowlex.validation.unimodularity.model_text import check_mps, failing_line, without_comments
from flowlex.validation.unimodularity.named_matrix import NamedMatrix, program_matrix

#: What HiGHS reports about a file that it reads completely.
_HARMLESS = (
    "switching to fixed format parser",
    "so assume fixed format",
    "values summed to",
    "repeated variable in constraints: summing them",
)


def open_model(data: bytes, kind: str) -> Any:
    """Read a model with HiGHS, from a plain copy; what HiGHS would silently drop or misread is an error."""
    if b"\0" in data:
        raise InstanceError("not a text file (it holds zero bytes)")
    data = without_comments(data) if kind == "mps" else data
    solver, good, said = _read(data, kind)
    if kind == "mps":
        check_mps(data, fixed=any(_HARMLESS[0] in text for text in said))
    said = [text for text in said if not any(harmless in text for harmless in _HARMLESS)]
    if not good or said:
        reason = "; ".join(said) or "it cannot be parsed"
        place = failing_line(data, lambda part: _read(part, kind)[1]) if kind == "lp" and not good else ""
        raise InstanceError(f"HiGHS does not accept this {kind.upper()} file: {reason}", place=place)
    if solver.getNumRow() == solver.getNumCol() == 0:
        raise InstanceError("the model has no rows and no columns")
    return solver


def _read(data: bytes, kind: str) -> tuple[Any, bool, list[str]]:
    """The solver, whether it read the file without an error, and its warnings and errors."""
    import highspy

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"model.{kind}"
        copy.write_bytes(data)
        solver = highspy.Highs()
        complaints: list[str] = []
        solver.cbLogging.subscribe(lambda event: complaints.append(event.message))
        solver.setOptionValue("log_to_console", False)
        status = solver.readModel(str(copy))
    said = [text.strip() for text in complaints if text.startswith(("WARNING", "ERROR"))]
    return solver, status != highspy.HighsStatus.kError, [text.replace(str(copy), "the file") for text in said]


def model_matrix(solver: Any) -> NamedMatrix:
    """The constraint matrix of a model that HiGHS holds, with its program."""
    model = solver.getModel()
    program = model.lp_
    rows, columns = list(program.row_names_), list(program.col_names_)
    return program_matrix(
        highs_arrays(program),
        (lambda: rows) if len(rows) == program.num_row_ else None,
        (lambda: columns) if len(columns) == program.num_col_ else None,
        nonlinear_part(model),
    )


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


def highs_arrays(program: Any) -> LinearProgramArrays:
    """The arrays of a ``highspy.HighsLp``; a semi-integer column counts as integer."""
    import highspy

    held = program.a_matrix_
    values = np.asarray(held.value_, dtype=float)
    parts = (values, np.asarray(held.index_, dtype=np.int64), np.asarray(held.start_, dtype=np.int64))
    kind = sp.csc_array if held.format_ == highspy.MatrixFormat.kColwise else sp.csr_array
    kinds = list(program.integrality_) or [highspy.HighsVarType.kContinuous] * program.num_col_
    integer = (highspy.HighsVarType.kInteger, highspy.HighsVarType.kSemiInteger)
    return LinearProgramArrays(
        matrix=sp.csc_array(kind(parts, shape=(program.num_row_, program.num_col_))),
        row_lower=np.array(program.row_lower_, dtype=float),
        row_upper=np.array(program.row_upper_, dtype=float),
        column_lower=np.array(program.col_lower_, dtype=float),
        column_upper=np.array(program.col_upper_, dtype=float),
        cost=np.array(program.col_cost_, dtype=float),
        offset=float(program.offset_),
        integrality=np.array([kind in integer for kind in kinds], dtype=bool),
        maximize=program.sense_ == highspy.ObjSense.kMaximize,
    )
