"""The solver's multipliers in exact numbers, for the checker.

Multipliers come from the solver as floats. They become multiples of one small fraction where all are near to such
multiples (duals of combinatorial problems are), else binary fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.formulations.lexicographic import branch_and_bound_leaves as found
from flowlex.formulations.program_arrays import Floats
from flowlex.validation.proofs.exact_program import Exact, ExactProgram
from flowlex.validation.proofs.proof import Branch, Derived, Leaf, Proof

#: Denominators that are tried for all multipliers of a leaf at once.
_DENOMINATORS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    12,
    14,
    15,
    16,
    20,
    24,
    30,
    36,
    40,
    60,
    64,
    100,
    120,
    360,
    720,
    840,
    1000,
    2520,
    5040,
)
#: Largest denominator of a single multiplier, and of all of them together.
_SINGLE, _TOGETHER = 1000, 2**40
#: Multipliers are near a fraction within this share of their size.
_NEAR = 1e-9


def exact_proof(program: ExactProgram, outcome: found.StagesOutcome) -> Proof:
    """The proof of an outcome of stages."""
    starts = np.cumsum([0, *(block.count for block in program.rows.values())]).tolist()
    grains = [cut.grain for cut in outcome.cuts]
    stages = {}
    for objective, result in zip(program.objectives, outcome.stages, strict=False):
        stages[objective.name] = tuple(_leaf(program, starts, leaf, grains, objective.unit) for leaf in result.leaves)
    derived = tuple(_derived(program, starts, cut, grains) for cut in outcome.cuts)
    empty = tuple(_leaf(program, starts, leaf, grains, Fraction(1)) for leaf in outcome.empty)
    ray: tuple[Fraction, ...] = ()
    if outcome.ray is not None:
        size = float(np.abs(outcome.ray).max(initial=0)) or 1.0
        ray = tuple(_near(v / size) for v in outcome.ray.tolist())
    point = () if outcome.ray is None or outcome.values is None else tuple(map(_near, outcome.values.tolist()))
    return Proof(stages, derived, empty, point, ray)


def _near(value: float) -> Fraction:
    small = Fraction(value).limit_denominator(_SINGLE)
    return small if abs(float(small) - value) <= _NEAR * max(1.0, abs(value)) else Fraction(value)


def _leaf(
    program: ExactProgram, starts: Sequence[int], leaf: found.Leaf, grains: Sequence[int], unit: Fraction
) -> Leaf:
    own = unit if leaf.own else Fraction(1)
    branches = tuple(Branch.single(b.column, b.upper, b.side) for b in leaf.branches)
    return _multipliers(program, starts, leaf.rows, leaf.earlier, leaf.cuts, grains, own, branches, leaf.own)


def _multipliers(
    program: ExactProgram,
    starts: Sequence[int],
    rows: Floats,
    earlier: Floats,
    cuts: Floats,
    grains: Sequence[int],
    own: Fraction,
    branches: tuple[Branch, ...] = (),
    is_own: int = 1,
    of_split: float = 0.0,
) -> Leaf:
    """A leaf with its multipliers in exact numbers, measured in the unit ``own``."""
    blocks = list(program.rows.values())
    per_row = [rows[s : s + b.count] * float(b.unit / own) for b, s in zip(blocks, starts, strict=False)]
    before = program.objectives[: len(earlier)]
    per_earlier = np.array([e * float(o.unit / own) for e, o in zip(earlier.tolist(), before, strict=False)])
    per_cut = cuts * float(1 / own)  # of rows in units of 1 / grain
    side = np.array([of_split * float(1 / own)])
    everything = np.concatenate([*per_row, per_earlier, per_cut, side])
    denominator, whole = in_fractions(everything)
    place = 0
    found_rows: dict[str, Exact] = {}
    for block, part in zip(blocks, per_row, strict=True):
        numbers = whole[place : place + len(part)]
        place += len(part)
        if block.relation == "<=":
            numbers = np.minimum(numbers, 0)
        elif block.relation == ">=":
            numbers = np.maximum(numbers, 0)
        if numbers.any():
            found_rows[block.name] = Exact(numbers, own / (denominator * block.unit))
    found_earlier = {
        o.name: Fraction(min(int(v), 0)) * own / (denominator * o.unit)
        for o, v in zip(before, whole[place : place + len(per_earlier)].tolist(), strict=True)
        if v < 0
    }
    place += len(per_earlier)
    found_cuts = {
        k: Fraction(int(v)) * own / (denominator * grains[k])
        for k, v in enumerate(whole[place : place + len(per_cut)].tolist())
        if v > 0
    }
    if of_split and branches:
        last = branches[-1]
        multiplier = Fraction(int(whole[-1])) * own / denominator
        branches = (*branches[:-1], Branch(last.column, last.value, last.upper, last.side, multiplier))
    return Leaf(found_rows, found_earlier, found_cuts, branches, is_own)


def _derived(program: ExactProgram, starts: Sequence[int], cut: found.Cut, grains: Sequence[int]) -> Derived:
    """A cut as a derived row with its integer coefficients."""
    columns, values, floor = cut.split
    cases = []
    for k, upper in enumerate((True, False)):
        branch = Branch(columns, values, upper, floor if upper else floor + 1)
        times = float(cut.grain)  # the derived row is so many times the cut
        multipliers = (cut.rows[k] * times, cut.earlier[k] * times, cut.cuts[k] * times)
        cases.append(
            _multipliers(program, starts, *multipliers, grains, Fraction(1), (branch,), 1, cut.of_split[k] * times)
        )
    return Derived(cut.columns, cut.whole, tuple(cases), cut.stage)


def in_fractions(values: Floats) -> tuple[int, Any]:
    """A denominator, and integers whose quotients by it are the values or near them."""
    values = np.where(np.abs(values) < 1e-12, 0.0, values)
    used = values[values != 0]
    size = np.maximum(1.0, np.abs(used))
    top = float(size.max(initial=1.0))
    if not np.isfinite(top) or top > 2.0**52:
        return 1, np.zeros(len(values), np.int64)
    for denominator in _DENOMINATORS:
        scaled = used * denominator
        if (
            np.abs(scaled - np.rint(scaled)) <= 1e-7 * np.minimum(size * denominator, 1e3)
        ).all() and top * denominator < 2.0**52:
            return denominator, np.rint(values * denominator).astype(np.int64)
    if len(used) <= 2000:
        together = 1
        near = [Fraction(v).limit_denominator(_SINGLE) for v in used.tolist()]
        for v, each in zip(used.tolist(), near, strict=True):
            if abs(float(each) - v) > _NEAR * max(1.0, abs(v)):
                together = 0
                break
            together = together * each.denominator // np.gcd(together, each.denominator)
            if together > _TOGETHER:
                together = 0
                break
        together = int(together)
        if together and top * together < 2.0**60:
            numbers = np.zeros(len(values), np.int64)
            numbers[values != 0] = [int(each * together) for each in near]
            return together, numbers
    power = int(np.floor(np.log2(2.0**52 / top)))
    power = max(min(power, 40), 0)
    return 2**power, np.rint(values * 2.0**power).astype(np.int64)


def snapped(program: ExactProgram, values: Floats) -> Exact:
    """Values of a solver: integer columns rounded, all of them small fractions if they are near to such."""
    values = np.where(program.integer, np.rint(values), values)
    denominator, whole = in_fractions(values)
    if np.abs(whole / denominator - values).max(initial=0) <= 1e-8 * max(1.0, float(np.abs(values).max(initial=0))):
        at_bounds = Exact(whole, Fraction(1, denominator))
        if denominator <= 5040:
            return at_bounds
    if (values == np.rint(values)).all() and np.abs(values).max(initial=0) < 2.0**62:
        return Exact(values.astype(np.int64))
    return Exact.of_floats(values)
