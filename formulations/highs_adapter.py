"""Programs as HiGHS models, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from flowlex.formulations.program_arrays import LinearProgramArrays
from flowlex.formulations.program_files.named_program import SEMI, NamedProgram, switched

if TYPE_CHECKING:
    import highspy


def to_highs(
    arrays: LinearProgramArrays, name: str, column_names: Sequence[str], row_names: Sequence[str]
) -> highspy.HighsLp:
    """Return a HiGHS model object with names."""
    import highspy

    model = highspy.HighsLp()
    model.model_name_ = name
    model.num_col_, model.num_row_ = len(arrays.cost), len(arrays.row_lower)
    model.col_cost_, model.offset_ = arrays.cost, arrays.offset
    model.col_lower_, model.col_upper_ = arrays.column_lower, arrays.column_upper
    model.row_lower_, model.row_upper_ = arrays.row_lower, arrays.row_upper
    model.sense_ = highspy.ObjSense.kMaximize if arrays.maximize else highspy.ObjSense.kMinimize
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = arrays.matrix.indptr
    model.a_matrix_.index_ = arrays.matrix.indices
    model.a_matrix_.value_ = arrays.matrix.data
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    if arrays.is_mip:
        model.integrality_ = [kinds[int(flag)] for flag in arrays.integrality]
    model.col_names_, model.row_names_ = list(column_names), list(row_names)
    return model


def program_of_highs(source: Any, *, beyond: bool = False) -> NamedProgram:
    """The program of a solver with its model (``highspy.Highs``), or of a model alone (``HighsModel``, ``HighsLp``).

    A column or row without a name gets its number: ``c0``, ``r0``.

    Parameters
    ----------
    source
        What holds the model.
    beyond
        Also take models with a quadratic objective, as far as they are linear, and keep semi-continuous columns; see
        `NamedProgram`.

    Raises
    ------
    TypeError
        The model is not linear, and ``beyond`` is not set.
    """
    import highspy

    model = source.getModel() if hasattr(source, "getModel") else source
    program = getattr(model, "lp_", model)
    hessian = getattr(model, "hessian_", None)
    jumps = (highspy.HighsVarType.kSemiContinuous, highspy.HighsVarType.kSemiInteger)
    semi = tuple(k for k, kind in enumerate(program.integrality_) if kind in jumps)
    said = SEMI if semi and beyond else ""
    if hessian is not None and hessian.dim_ > 0 and np.any(hessian.value_):
        said = "the objective is quadratic"
    if said and not beyond:
        raise TypeError(
            f"{program.model_name_ or 'the HiGHS model'}: {said}; only linear and integer programs are taken"
        )
    columns = list(program.col_names_) or [""] * program.num_col_
    rows = list(program.row_names_) or [""] * program.num_row_
    found = NamedProgram(
        arrays_of_highs(program),
        [name or f"c{index}" for index, name in enumerate(columns)],
        [name or f"r{index}" for index, name in enumerate(rows)],
        program.model_name_,
        beyond=said,
        semi=semi,
    )
    return switched(found) if semi and not beyond else found


def arrays_of_highs(program: highspy.HighsLp) -> LinearProgramArrays:
    """The arrays of a ``highspy.HighsLp``; a semi-integer column counts as integer."""
    import highspy

    held = program.a_matrix_
    values = np.asarray(held.value_, dtype=float)
    parts = (values, np.asarray(held.index_, dtype=np.int64), np.asarray(held.start_, dtype=np.int64))
    by_column = held.format_ == highspy.MatrixFormat.kColwise
    kind = scipy.sparse.csc_array if by_column else scipy.sparse.csr_array
    matrix = scipy.sparse.csc_array(kind(parts, shape=(program.num_row_, program.num_col_)))
    kinds = list(program.integrality_) or [highspy.HighsVarType.kContinuous] * program.num_col_
    integer = (highspy.HighsVarType.kInteger, highspy.HighsVarType.kSemiInteger)
    return LinearProgramArrays(
        matrix=matrix,
        row_lower=np.array(program.row_lower_, dtype=float),
        row_upper=np.array(program.row_upper_, dtype=float),
        column_lower=np.array(program.col_lower_, dtype=float),
        column_upper=np.array(program.col_upper_, dtype=float),
        cost=np.array(program.col_cost_, dtype=float),
        offset=float(program.offset_),
        integrality=np.array([kind in integer for kind in kinds], dtype=bool),
        maximize=program.sense_ == highspy.ObjSense.kMaximize,
    )
