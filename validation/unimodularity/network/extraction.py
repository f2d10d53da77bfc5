r"""From a program to the network inside it: a minimum-cost flow with the same optimum, or the largest part that is one.

A network matrix A has a tree arc per row and a further arc per column, and D_tree A = D_arcs for their incidence
matrices. So the row activities r = A x are flows on the tree arcs: x on the columns' arcs and r back on the rows'
arcs is a circulation, D_arcs x - D_tree r = 0, whose bounds are those of the columns and the sides of the rows.
Equations have a fixed flow, which goes into the supplies; lower bounds are moved to 0. Fractions are cleared by
common factors, which the answer states.

Duals: with potentials p, the dual value of a row is p[tail] - p[head] of its tree arc.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.validation.unimodularity.matrix_adapters import matrix_of
from flowlex.validation.unimodularity.named_matrix import MatrixError, NamedMatrix, Program, exact, ternary
from flowlex.validation.unimodularity.network.largest_network_part import network_part
from flowlex.validation.unimodularity.network.network_matrix import NetworkResult, network_matrix
from flowlex.validation.unimodularity.proof_types import Number, listed
from flowlex.validation.unimodularity.row_scaling import unit_scaling
from flowlex.validation.unimodularity.time_limit import Clock

#: Largest integer that a bound or a cost may become when fractions are cleared.
LARGEST = 2**53


@dataclass(frozen=True, eq=False)
class Extraction:
    """A network with the optimum of a program."""

    #: The minimum-cost flow; arcs stand for columns (``flow``) and for rows that are no equations (``row``).
    network: FlowNetwork
    #: Row i says ``row_scales[i]`` times the network's equation; ``column_scales[j] * x[j]`` is a flow of the network
    #: (where they are not 1).
    row_scales: dict[int, Number]
    column_scales: dict[int, Number]
    #: One unit of x is ``flow_scale`` units of flow; a cost of 1 is ``cost_scale`` per unit of flow.
    flow_scale: int
    cost_scale: int
    #: What the objective has on top of the network's cost (of lower bounds moved to 0, and its own), in the program's
    #: unit.
    constant: Fraction
    shift: tuple[Fraction, ...]
    column_of_arc: Integers
    sign_of_arc: Integers
    tree: tuple[Integers, Integers]

    def objective(self, cost: int) -> Fraction:
        """The program's objective (to be minimised) for a total cost of the network."""
        return self.constant + Fraction(cost, self.flow_scale * self.cost_scale)

    def values(self, flow: Integers) -> Floats:
        """The program's columns for a flow."""
        moved = np.zeros(len(self.shift), np.int64)
        arcs = np.flatnonzero(self.column_of_arc >= 0)
        np.add.at(moved, self.column_of_arc[arcs], self.sign_of_arc[arcs] * flow[arcs])
        start = np.array([float(value) for value in self.shift])
        return np.asarray((start + moved / self.flow_scale) / _factors(self.column_scales, len(start)))

    def duals(self, potentials: Integers) -> Floats:
        """The program's dual values (of its minimisation) for potentials of the nodes."""
        tail, head = self.tree
        price = (potentials[tail] - potentials[head]) / self.cost_scale
        return np.asarray(price / _factors(self.row_scales, len(tail)))

    def __str__(self) -> str:
        scales = [
            f"{what} scaled: {listed(tuple(f'{line} by {value}' for line, value in held.items()))}"
            for what, held in (("rows", self.row_scales), ("columns", self.column_scales))
            if held
        ]
        scales += [f"flows in 1/{self.flow_scale}"] if self.flow_scale != 1 else []
        scales += [f"costs times {self.cost_scale}"] if self.cost_scale != 1 else []
        scales += [f"objective = cost / {self.flow_scale * self.cost_scale} + {self.constant}"]
        return f"{self.network.node_count} nodes, {self.network.arc_count} arcs; " + "; ".join(scales)


def extract_network(source: Any, *, time_limit: float = 60.0) -> Extraction:
    """Convert a program with a network matrix to an equivalent minimum-cost flow.

    Raises `MatrixError` if the source is no linear program, if its matrix is no network matrix (the message names the
    rows that stand in the way), or if its numbers cannot be made integers of a sensible size.
    """
    named = matrix_of(source)
    program = named.program
    if program is None:
        raise MatrixError("a bare matrix has no costs and sides; give a program")
    if program.nonlinear:
        raise MatrixError(f"no minimum-cost flow is this program: {program.nonlinear}")
    scaling = unit_scaling(named.matrix)
    with Clock(time_limit) as clock:
        if scaling is not None:
            signs = sp.csc_array((np.sign(named.matrix.data), named.matrix.indices, named.matrix.indptr), named.shape)
            result = network_matrix(ternary(signs), clock=clock)
            if result.status == "network":
                return _Flow(named, program, scaling, result).extraction()
        part = network_part(named, clock=clock)
    raise MatrixError(f"the matrix is no network matrix; {part or 'no row of it is part of one'}")


class _Flow:
    """Builds the circulation: arcs with lower bounds moved to 0, and supplies that compensate for that."""

    def __init__(
        self,
        named: NamedMatrix,
        program: Program,
        scaling: tuple[dict[int, Number], dict[int, Number]],
        result: NetworkResult,
    ) -> None:
        assert result.tree_tail is not None and result.tree_head is not None
        assert result.arc_tail is not None and result.arc_head is not None
        self.named, self.program = named, program
        self.row_scales, self.column_scales = scaling
        self.tree = result.tree_tail, result.tree_head
        self.arcs = result.arc_tail, result.arc_head
        columns, rows = named.shape[1], named.shape[0]
        scale = [Fraction(self.column_scales.get(column, 1)) for column in range(columns)]
        self.cost = [Fraction(exact(c)) / s for c, s in zip(program.cost, scale, strict=True)] + [Fraction(0)] * rows
        self.low, self.high = (
            [None if b is None else b * s for b, s in zip(map(_fraction, program.bounds[end]), scale, strict=True)]
            + [self._side(end, row) for row in range(rows)]
            for end in (0, 1)
        )
        self.tail = np.concatenate([self.arcs[0], self.tree[1]])  # a row's flow runs back along its tree arc
        self.head = np.concatenate([self.arcs[1], self.tree[0]])
        self.columns = columns

    def _side(self, which: int, row: int) -> Fraction | None:
        side = _fraction(self.program.sides[which, row])
        return None if side is None else side / self.row_scales.get(row, 1)

    def extraction(self) -> Extraction:
        """Clear fractions and assemble the network."""
        flow_scale = _common([*self.low, *self.high])
        cost_scale = _common(self.cost)
        supply = [Fraction(0)] * (self.named.shape[0] + 1)
        shift: list[Fraction] = []
        table: list[tuple[int, int, int, int, int, int]] = []  # tail, head, upper, cost, line, sign
        for line, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            tail, head, price = int(self.tail[line]), int(self.head[line]), self.cost[line] * cost_scale
            base = low if low is not None else (high if high is not None else Fraction(0))
            shift.append(base)
            supply[tail] -= base
            supply[head] += base
            room = UNBOUNDED if low is None or high is None else _integer((high - low) * flow_scale)
            if low is not None and room > 0:
                table.append((tail, head, room, int(price), line, 1))
            elif low is None:
                table.append((head, tail, UNBOUNDED, -int(price), line, -1))
                if high is None:
                    table.append((tail, head, UNBOUNDED, int(price), line, 1))
        moved = sum((c * s for c, s in zip(self.cost, shift, strict=True)), Fraction(0))
        columns = np.array(table, dtype=np.int64).reshape(-1, 6)
        network = FlowNetwork.from_arrays(
            columns[:, 0],
            columns[:, 1],
            upper=columns[:, 2],
            cost=columns[:, 3],
            supply=np.array([_integer(units * flow_scale) for units in supply], dtype=np.int64),
            name="extracted",
        )
        of_column = columns[:, 4] < self.columns
        return Extraction(
            network=network,
            row_scales=self.row_scales,
            column_scales=self.column_scales,
            flow_scale=flow_scale,
            cost_scale=cost_scale,
            constant=moved + Fraction(exact(self.program.offset)),
            shift=tuple(shift[: self.columns]),
            column_of_arc=np.where(of_column, columns[:, 4], -1),
            sign_of_arc=columns[:, 5],
            tree=self.tree,
        )


def _fraction(value: float) -> Fraction | None:
    return Fraction(exact(value)) if np.isfinite(value) else None


def _factors(scales: dict[int, Number], count: int) -> Floats:
    factors = np.ones(count)
    factors[list(scales)] = [float(value) for value in scales.values()]
    return factors


def _common(values: list[Any]) -> int:
    known = [value for value in values if value is not None]
    scale = lcm(*(value.denominator for value in known)) if known else 1
    if scale > LARGEST or any(abs(value * scale) > LARGEST for value in known):
        raise MatrixError("the program's numbers have no common factor that makes them integers of a sensible size")
    return scale


def _integer(value: Fraction) -> int:
    if abs(value) > LARGEST:
        raise MatrixError("a supply or a capacity becomes too large to be exact")
    return int(value)
