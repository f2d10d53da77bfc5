"""A problem in the units in which it was solved, and its answers and proofs in those in which it was stated.

Values and multipliers of a solver become exact by tolerances that mean something in its units alone (see
`flowlex.formulations.lexicographic.scaling`). All factors are powers of two, so nothing is rounded on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from flowlex.formulations.lexicographic.scaling import Scaling
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.validation.proofs.exact_program import Bounds, Exact, ExactProgram, narrow
from flowlex.validation.proofs.proof import Leaf, Proof


class ScaledProofs:
    """Conversion of a problem, of its answers and of its proofs between the units of a scaling and its own."""

    def __init__(self, program: ExactProgram, scaling: Scaling) -> None:
        self.program = program
        self.columns = _exponents(np.ones(program.count) if scaling.columns is None else scaling.columns)
        of_rows, ends = _exponents(scaling.rows), np.cumsum([block.count for block in program.rows.values()]).tolist()
        self.rows = {
            block.name: of_rows[end - block.count : end] for block, end in zip(program.rows.values(), ends, strict=True)
        }
        self.stages = dict(zip((o.name for o in program.objectives), _exponents(scaling.stages).tolist(), strict=True))

    def scaled(self) -> ExactProgram:
        """The problem in the units of the solver."""
        rows = {}
        for name, block in self.program.rows.items():
            of_rows = self.rows[name]
            shifts = np.concatenate([of_rows[block.row] + self.columns[block.column], of_rows])
            both = _times(Exact(np.concatenate([block.value, block.rhs]), block.unit), shifts)
            value, rhs = np.split(both.numbers, [len(block.value)])
            rows[name] = replace(block, value=value, rhs=rhs, unit=both.unit)
        objectives = []
        for o in self.program.objectives:
            by = self.stages[o.name]
            numbers = np.append(o.value, o.constant)
            both = _times(Exact(numbers, o.unit), np.append(self.columns[o.column], 0) + by)
            within = o.within if o.relative else o.within * Fraction(2) ** by
            constant = int(both.numbers[-1])
            objectives.append(replace(o, value=both.numbers[:-1], constant=constant, unit=both.unit, within=within))
        bounds = [
            Bounds(_times(side.at, -self.columns), side.missing) for side in (self.program.lower, self.program.upper)
        ]
        return replace(self.program, lower=bounds[0], upper=bounds[1], rows=rows, objectives=objectives)

    def values(self, found: Exact) -> Exact:
        """Values of the columns in the units of the problem."""
        return _times(found, self.columns)

    def proof(self, found: Proof) -> Proof:
        """A proof in the units of the problem."""
        return Proof(
            stages={
                name: tuple(self._leaf(leaf, self.stages[name]) for leaf in each) for name, each in found.stages.items()
            },
            derived=tuple(replace(d, cases=tuple(self._leaf(case, 0) for case in d.cases)) for d in found.derived),
            empty=tuple(self._leaf(leaf, 0) for leaf in found.empty),
            point=self._each(found.point),
            ray=self._each(found.ray),
            points={name: self.values(point) for name, point in found.points.items()},
        )

    def _leaf(self, leaf: Leaf, stage: int) -> Leaf:
        """A leaf that bounds a stage of such an exponent, or a derived row: integer columns keep their unit."""
        by = stage if leaf.own else 0
        return replace(
            leaf,
            rows={name: _times(y, self.rows[name] - by) for name, y in leaf.rows.items()},
            earlier={name: e * Fraction(2) ** (self.stages[name] - by) for name, e in leaf.earlier.items()},
            derived={k: e * Fraction(2) ** -by for k, e in leaf.derived.items()},
        )

    def _each(self, values: Sequence[Fraction]) -> tuple[Fraction, ...]:
        return tuple(v * Fraction(2) ** by for v, by in zip(values, self.columns.tolist(), strict=False))


def _exponents(factors: Floats) -> Integers:
    return (np.frexp(factors)[1] - 1).astype(np.int64)


def _times(vector: Exact, exponents: Integers) -> Exact:
    """Each number times its power of two."""
    numbers = vector.numbers
    if not len(numbers):
        return vector
    least = int(exponents.min())
    places, unit = exponents - least, vector.unit * Fraction(2) ** least
    if not places.any():
        return Exact(numbers, unit)
    if numbers.dtype != object and np.log2(np.maximum(np.abs(numbers), 1).astype(float)).max() + places.max() < 62:
        numbers = numbers << places
    else:
        numbers = np.array([v << p for v, p in zip(numbers.tolist(), places.tolist(), strict=True)], object)
    divisor = int(np.gcd.reduce(numbers))
    return Exact(narrow((numbers // divisor).tolist()), unit * divisor) if divisor > 1 else Exact(numbers, unit)
