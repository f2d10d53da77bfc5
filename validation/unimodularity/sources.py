"""Whatever holds a constraint matrix, brought to the canonical form of `matrix`.

Accepted: SciPy sparse, NumPy, our `LinearProgram`, `FlowNetwork` and models, and any object that speaks PuLP's
public protocol.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.matrix import MatrixError, NamedMatrix, Program, canonical

__all__ = ["matrix_of", "with_bounds"]


def matrix_of(source: Any, *, bounds: bool = False) -> NamedMatrix:
    """Bring ``source`` to the canonical form.

    Parameters
    ----------
    source
        SciPy sparse matrix or array, NumPy 2-d array or nested lists, `NamedMatrix`, `LinearProgram`,
        `FlowNetwork`, a model with a ``formulation``, or a ``pulp.LpProblem``.
    bounds
        Append one unit row per finite variable bound, as the polyhedron has it. (It never changes the
        answer: unit rows keep total unimodularity. It changes what a picture shows.)

    Raises
    ------
    MatrixError
        Empty, complex, NaN or infinite entries, integers too large to be exact, or an unknown kind of object.
    """
    if isinstance(source, NamedMatrix):
        named = source
    elif sp.issparse(source) or isinstance(source, np.ndarray | list | tuple):
        named = NamedMatrix(canonical(source))
    elif (formulation := getattr(source, "formulation", None)) is not None:
        named = matrix_of(formulation() if callable(formulation) else formulation)
    elif hasattr(source, "incidence") and hasattr(source, "tail"):
        named = _of_network(source)
    elif hasattr(source, "arrays") and hasattr(source, "row_names"):
        named = _of_program(source)
    elif hasattr(source, "constraints") and hasattr(source, "variables"):
        named = _of_pulp(source)
    else:
        raise MatrixError(
            f"cannot take a matrix from {type(source).__name__}; give a SciPy sparse or NumPy matrix, a "
            "LinearProgram, a FlowNetwork, a model of this project or a pulp.LpProblem"
        )
    return with_bounds(named) if bounds else named


def with_bounds(named: NamedMatrix) -> NamedMatrix:
    """Append one unit row for every finite lower bound, then one for every finite upper bound."""
    if named.program is None:
        return named
    columns, program = named.shape[1], named.program
    chosen = [np.flatnonzero(np.isfinite(side)) for side in program.bounds]
    unit = sp.eye_array(columns, format="csr", dtype=named.matrix.dtype)
    stacked = sp.vstack([named.matrix.tocsr(), *(unit[indices] for indices in chosen)])

    def rows() -> list[str]:
        names = named.names_of_columns(range(columns))
        base = list(named.names_of_rows(range(named.shape[0])))
        return base + [
            f"{kind}({names[index]})"
            for kind, indices in zip(("lower", "upper"), chosen, strict=True)
            for index in indices
        ]

    lower, upper = (np.full((2, len(indices)), np.inf) for indices in chosen)
    lower[0], upper[1] = program.bounds[0, chosen[0]], program.bounds[1, chosen[1]]
    upper[0] = -np.inf
    sides = np.concatenate([program.sides, lower, upper], axis=1)
    return replace(named, matrix=canonical(stacked), row_names=rows, program=replace(program, sides=sides))


def _of_network(network: Any) -> NamedMatrix:
    arcs = len(network.tail)
    program = Program(
        sides=np.stack([network.supply, network.supply]).astype(float),
        bounds=_bounds(network.lower, network.upper),
        integer=np.zeros(arcs, dtype=bool),
        cost=np.asarray(network.cost, dtype=float),
    )
    return NamedMatrix(canonical(network.incidence()), _lazily(network.node_names), _lazily(network.arc_names), program)


def _bounds(lower: Any, upper: Any) -> Any:
    """Bounds of a network; its infinity is the largest integer."""
    both = np.stack([lower, upper]).astype(float)
    both[np.abs(both) >= 2.0**62] = np.inf
    return both


def _lazily(names: Any) -> Any:
    return names if callable(names) else lambda: list(names)


def _of_program(program: Any) -> NamedMatrix:
    arrays = program.arrays()
    return NamedMatrix(
        canonical(arrays.matrix),
        program.row_names,
        program.column_names,
        Program(
            sides=np.stack([arrays.row_lower, arrays.row_upper]).astype(float),
            bounds=np.stack([arrays.column_lower, arrays.column_upper]).astype(float),
            integer=np.asarray(arrays.integrality, dtype=bool),
            cost=np.asarray(arrays.cost, dtype=float) * (-1 if arrays.maximize else 1),
            offset=float(arrays.offset) * (-1 if arrays.maximize else 1),
        ),
    )


def _of_pulp(problem: Any) -> NamedMatrix:
    """Read PuLP's public protocol: ``variables()``, and ``constraints`` mapping names to expressions."""
    variables = problem.variables()
    place = {variable: index for index, variable in enumerate(variables)}
    held = problem.constraints
    items = [(item.name, item) for item in held()] if callable(held) else list(held.items())
    entries = [
        (row, place[variable], value)
        for row, (_, expression) in enumerate(items)
        for variable, value in expression.items()
    ]
    rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
    matrix = sp.csc_array((np.asarray(values, dtype=float), (rows, columns)), shape=(len(items), len(variables)))
    side = np.array([-float(expression.constant) for _, expression in items])
    sense = np.array([int(expression.sense) for _, expression in items])
    cost = np.zeros(len(variables))
    for variable, value in (problem.objective or {}).items():
        cost[place[variable]] = value
    program = Program(
        sides=np.stack([np.where(sense >= 0, side, -np.inf), np.where(sense <= 0, side, np.inf)]),
        bounds=np.array(
            [
                [-np.inf if v.lowBound is None else v.lowBound for v in variables],
                [np.inf if v.upBound is None else v.upBound for v in variables],
            ],
            dtype=float,
        ),
        integer=np.array([variable.cat == "Integer" for variable in variables], dtype=bool),
        cost=cost * int(problem.sense),
        offset=float(getattr(problem.objective, "constant", 0.0)) * int(problem.sense),
        nonlinear="it has SOS constraints" if getattr(problem, "sos1", None) or getattr(problem, "sos2", None) else "",
    )
    return NamedMatrix(
        canonical(matrix), lambda: [name for name, _ in items], lambda: [v.name for v in variables], program
    )
