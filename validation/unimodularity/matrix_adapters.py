"""Convert every object that holds a constraint matrix to the canonical form of `named_matrix`.

Each kind of object is recognised by its attributes, so that pandas, PuLP, networkx and highspy are imported only by
those who use them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.named_matrix import (
    LeftOut,
    MatrixError,
    NamedMatrix,
    Program,
    canonical,
    exact,
    program_matrix,
)

if TYPE_CHECKING:
    from flowlex.formulations.program_files import NamedProgram


def matrix_of(source: Any) -> NamedMatrix:
    """Convert ``source`` to the canonical form.

    Parameters
    ----------
    source
        SciPy sparse matrix or array, NumPy 2-d array or nested lists (integers, floats, ``Fraction``, ``Decimal``),
        pandas ``DataFrame``, `NamedMatrix`, `LinearProgram`, `FlowNetwork`, a model with a ``formulation``,
        ``pulp.LpProblem``, ``highspy.Highs``, a networkx graph (its incidence matrix: +1 at the tail, -1 at the head of
        a directed edge; a minimum-cost flow if nodes have a ``demand``), an instance, or a path (see `read_matrix`).

    Raises
    ------
    MatrixError
        Empty, complex, NaN or infinite entries, integers too large to be exact, or an unknown kind of object.
    InstanceError
        A file that cannot be read.
    """
    if isinstance(source, NamedMatrix):
        return source
    if sp.issparse(source) or isinstance(source, np.ndarray | list | tuple):
        return NamedMatrix(canonical(source))
    if isinstance(source, str | Path):
        return read_matrix(source)
    for offers, read in _KINDS:
        if all(hasattr(source, name) for name in offers):
            return read(source)
    raise MatrixError(
        f"cannot take a matrix from {type(source).__name__}; give a SciPy sparse or NumPy matrix, a DataFrame, a "
        "LinearProgram, a FlowNetwork, a model or instance of this project, a pulp.LpProblem, a highspy.Highs, a "
        "networkx graph, or the path of a file"
    )


def constraints_of(source: Any) -> NamedMatrix:
    """Reduce a program to its constraints: free rows are left out, and fixed columns become constants.

    A row without a finite side restricts nothing, and a column with equal bounds is a number. A column that is declared
    integer and fixed at a fraction stays: no point meets both. Errors are those of `matrix_of`.
    """
    named = matrix_of(source)
    program = named.program
    if program is None:
        return named
    fixed = (program.bounds[0] == program.bounds[1]) & np.isfinite(program.bounds[0])
    fixed &= ~program.integer | (program.bounds[0] == np.rint(program.bounds[0]))
    bound = np.isfinite(program.sides).any(axis=0)
    if bound.all() and not fixed.any():
        return named
    rows, columns = np.flatnonzero(bound), np.flatnonzero(~fixed)
    by_row = named.matrix.tocsr()[rows]
    constants = _constants(by_row, fixed, program.bounds[0])
    return NamedMatrix(
        canonical(by_row[:, columns]) if len(rows) + len(columns) else sp.csc_array((0, 0), dtype=np.int64),
        lambda: named.names_of_rows(rows.tolist()),
        lambda: named.names_of_columns(columns.tolist()),
        replace(
            program,
            sides=program.sides[:, rows],
            bounds=program.bounds[:, columns],
            integer=program.integer[columns],
            cost=program.cost[columns],
            constants=constants,
            left_out=LeftOut(int((~bound).sum()), int(fixed.sum()), int((fixed & program.integer).sum())),
        ),
    )


def _constants(by_row: Any, fixed: Any, value: Any) -> dict[int, Any]:
    """Amounts other than 0 that the fixed columns add to each row."""
    found: dict[int, Any] = {}
    entries = by_row[:, np.flatnonzero(fixed)].tocoo()
    values = value[fixed]
    for row, column, entry in zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True):
        found[row] = found.get(row, 0) + exact(entry) * exact(values[column])
    return {row: exact(total) for row, total in sorted(found.items()) if total}


def _of_pulp(problem: Any) -> NamedMatrix:
    from flowlex.formulations.pulp_adapter import program_of_pulp

    return _of_named(program_of_pulp(problem, beyond=True))


def _of_named(program: NamedProgram) -> NamedMatrix:
    return program_matrix(program.arrays, lambda: program.row_names, lambda: program.column_names, program.beyond)


def read_matrix(path: str | Path) -> NamedMatrix:
    """Read the constraint matrix of a file: a model, a matrix, a network or an instance.

    What a reader might silently repair (NaN coefficients, unknown rows) is an error here, so that a proof is about the
    matrix in the file.

    ``path``: see `FORMATS`; the kind follows from the name's ending, and by the content for everything else.
    Raises `InstanceError`: the file cannot be read or holds no matrix; names file, place and reason.
    """
    from flowlex.instances.instance_base import InstanceError

    path = Path(path)
    from flowlex.formulations.program_files import ProgramFileError

    try:
        return _of_file(path)
    except InstanceError as error:
        raise error.at(path) from error.__cause__
    except ProgramFileError as error:
        raise InstanceError(error.reason, place=error.place, path=path) from error.__cause__
    except ValueError as error:  # no matrix, or an instance that its model refuses
        raise InstanceError(str(error), path=path) from error


def _of_file(path: Path) -> NamedMatrix:
    from flowlex.formulations.program_files import parse_program, program_format
    from flowlex.instances.file_storage import read_bytes
    from flowlex.instances.files import read_instance
    from flowlex.validation.unimodularity.matrix_files import parse_matrix

    name, data = path.name.lower().removesuffix(".gz"), read_bytes(path)
    if name.endswith((".mps", ".lp")):
        return _of_named(parse_program(data, program_format(name), beyond=True))
    matrix = parse_matrix(data, name)
    return _of_instance(read_instance(path)) if matrix is None else NamedMatrix(matrix)


def _of_instance(instance: Any) -> NamedMatrix:
    """The matrix of the instance's model; models import this package, so they are imported when called."""
    model_for = pkgutil.resolve_name("flowlex.models.registry:model_for")
    return matrix_of(model_for(instance).formulation)


def _of_highs(model: Any) -> NamedMatrix:
    """The matrix of a solver with its model, or of a model (``HighsModel``, ``HighsLp``) alone."""
    from flowlex.formulations.highs_adapter import program_of_highs

    return _of_named(program_of_highs(model, beyond=True))


def _of_frame(frame: Any) -> NamedMatrix:
    rows, columns = ([str(label) for label in axis] for axis in (frame.index, frame.columns))
    return NamedMatrix(canonical(frame.to_numpy()), lambda: rows, lambda: columns)


def _of_graph(graph: Any) -> NamedMatrix:
    """Incidence of nodes and edges; with demands, the program of the minimum-cost flow (as networkx reads it)."""
    nodes, directed = {node: row for row, node in enumerate(graph.nodes)}, graph.is_directed()
    edges = list(graph.edges(keys=True)) if graph.is_multigraph() else list(graph.edges)
    number = np.arange(len(edges))
    tail, head = (np.array([nodes[edge[end]] for edge in edges], dtype=np.int64) for end in (0, 1))
    ones = np.ones(len(edges), dtype=np.int64)
    entries = np.concatenate([ones, -ones if directed else ones])
    places = (np.concatenate([tail, head]), np.concatenate([number, number]))
    matrix = canonical(sp.coo_array((entries, places), shape=(len(nodes), len(edges))))
    program = None
    if directed and any("demand" in data for _, data in graph.nodes(data=True)):
        held = [graph.edges[edge] for edge in edges]
        supply = np.array([-float(data.get("demand", 0)) for _, data in graph.nodes(data=True)])
        program = Program(
            sides=np.stack([supply, supply]),
            bounds=np.array([[0.0] * len(edges), [float(data.get("capacity", np.inf)) for data in held]]),
            integer=np.zeros(len(edges), dtype=bool),
            cost=np.array([float(data.get("weight", 0)) for data in held]),
        )
    return NamedMatrix(matrix, lambda: list(map(str, nodes)), lambda: list(map(str, edges)), program)


#: What an object offers, and who reads such objects; the first that fits.
_KINDS: tuple[tuple[tuple[str, ...], Callable[[Any], NamedMatrix]], ...] = (
    (("formulation",), lambda model: matrix_of(model.formulation)),
    (("arrays", "row_names"), lambda it: program_matrix(it.arrays(), it.row_names, it.column_names)),
    (("getLp", "getModel"), _of_highs),
    (("lp_", "hessian_"), _of_highs),
    (("a_matrix_", "col_cost_"), _of_highs),
    (("kind", "fingerprint", "summary"), _of_instance),
    (("nodes", "edges", "is_directed"), _of_graph),
    (("to_numpy", "index", "columns"), _of_frame),
    (("constraints", "variables"), _of_pulp),
)
