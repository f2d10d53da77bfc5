"""The solver's multipliers and values in exact numbers, for the checker.

Multipliers come from the solver as floats. They become multiples of one small fraction where all are near to such
multiples (duals of combinatorial problems are), else binary fractions. Where these prove too little, equations that
hold at the vertex are solved in fractions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from flowlex.formulations.lexicographic import branch_and_bound_leaves as found
from flowlex.formulations.lexicographic.scaling import ScaledOutcome
from flowlex.formulations.program_arrays import Floats
from flowlex.models.exact_vertices import Budget, exact_leaf, exact_ray, exact_values
from flowlex.models.scaled_proofs import ScaledProofs
from flowlex.validation.certificates import proof_time_budget
from flowlex.validation.proofs.checker import Checker, OutOfTime, Verdict, judge
from flowlex.validation.proofs.exact_program import Exact, ExactProgram, Objective
from flowlex.validation.proofs.proof import Branch, Derived, Leaf, Proof, ProofError

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
#: Up to this many columns, equations of vertices are solved in fractions.
_MOST_COLUMNS = 5000
#: Columns times leaves up to which a proof within the tolerance is made exact.
_MOST_WORK = 30_000
#: Values this near to a bound or side are taken to lie there, first; if that does not help, only nearer ones.
_NEAR_BOUND, _AT_BOUND = 1e-7, 1e-14
#: Units beyond this that are no tenth of another are of binary numbers, not of decimals.
_DECIMAL = 10**6
#: The bound of a leaf without an answer.
_ENDLESS = Fraction(10**300)
#: Trees of more leaves have short multipliers, of at most so many binary digits after the point.
_FEW, _MOST_DIGITS = 8, 44
#: Multipliers are near a fraction within this share of their size.
_NEAR = 1e-9
#: Coefficients beyond this are large: multipliers of theirs would be rounded to 0.
_LARGE = 2**20


def proven(
    program: ExactProgram,
    outcome: found.StagesOutcome,
    values: Floats | None,
    time: proof_time_budget.Budget | None = None,
) -> tuple[Exact | None, Proof, Verdict]:
    """The answer and the proof of an outcome in exact numbers, and what they prove.

    Parameters
    ----------
    program
        The problem.
    outcome
        Of its stages.
    values
        (n,) floats of the answer; None: there is none.
    time
        For all of it; once it has passed, what is proven by then holds.
    """
    budget = Budget(time=time or proof_time_budget.Budget())
    claimed, whole = str(outcome.status), True
    if isinstance(outcome, ScaledOutcome):
        units, inner = ScaledProofs(program, outcome.scaling), outcome.inner
        scaled, found_proof, verdict = proven(units.scaled(), inner, None if values is None else inner.values, time)
        answer, proof = None if scaled is None else units.values(scaled), units.proof(found_proof)
        return answer, proof, replace(judge(program, answer, proof, claimed, budget.time), late=verdict.late)
    try:
        proof = exact_proof(program, outcome, budget.time)
    except OutOfTime:  # a large tree: its root is proven
        roots = (s if s.root is None else replace(s, leaves=(s.root,)) for s in outcome.stages)
        proof, whole = exact_proof(program, replace(outcome, stages=tuple(roots), empty=(), cuts=outcome.cuts)), False
    exact = snapped(program, values) if values is not None else None
    verdict = judge(program, exact, proof, claimed, budget.time)
    verdict = verdict if whole else replace(verdict, late=True)
    root_leaf = outcome.stages[0].root if outcome.stages else None
    if exact is not None and verdict.stages and verdict.stages[0].bound is None and root_leaf is not None:
        first = replace(outcome.stages[0], leaves=(root_leaf,))
        root = exact_proof(program, replace(outcome, stages=(first,), cuts=()))
        other = replace(judge(program, exact, root, claimed), late=verdict.late)
        if other.stages and other.stages[0].bound is not None:
            proof, verdict = root, other
    if program.count > _MOST_COLUMNS or not all(stage.proven for stage in outcome.stages):
        return exact, proof, verdict
    if values is None or exact is None:
        proofless = claimed == "infeasible" and verdict.certificate.verdict != "proven"
        if proofless and (divided := _without_integers(program)) is not None:
            return None, divided, judge(program, None, divided, claimed, budget.time)
        if not verdict.certificate.ok:
            proof = _exact_without_answer(program, outcome, proof, budget)
            verdict = judge(program, None, proof, claimed, budget.time)
            if not verdict.certificate.ok:  # only the solver's word is left
                proof = Proof()
                verdict = judge(program, None, proof, claimed)
        return None, proof, verdict
    size = program.count * (sum(map(len, proof.stages.values())) + 2 * len(proof.derived))
    for _ in range(2 * len(program.objectives) + 1):
        if verdict.claim == "optimal" and (verdict.certificate.exact or size > _MOST_WORK):
            break
        if budget.time.spent:
            break
        better = _better(program, outcome, values, exact, proof, verdict, budget)
        if better is None:
            break
        exact, proof, verdict = better
    return exact, proof, verdict


def _better(
    program: ExactProgram,
    outcome: found.StagesOutcome,
    values: Floats,
    exact: Exact,
    proof: Proof,
    verdict: Verdict,
    budget: Budget,
) -> tuple[Exact, Proof, Verdict] | None:
    """Answer and proof with the first thing solved in fractions that was not exact; None if nothing gets better."""
    tried: list[tuple[Exact, Proof]] = []
    bounds = [
        (o, o.sign * s.bound)
        for o, s in zip(program.objectives, verdict.stages, strict=False)
        if s.bound is not None and s.proven and not o.within
    ]
    if not verdict.certificate.ok or any(check.worst for check in verdict.certificate.checks) or bounds:
        tried += [(x, proof) for x in _answers(program, values, bounds, budget) if x is not None]
        points = {
            name: next(_answers(program, result.values, bounds[:k], budget))
            for k, (name, result) in enumerate(zip([o.name for o in program.objectives], outcome.stages, strict=False))
            if result.values is not None
        }
        if any(points.values()):
            kept = {**proof.points, **{name: x for name, x in points.items() if x is not None}}
            tried += [(x, replace(proof, points=kept)) for x, _ in [(exact, 0), *tried]]
    if verdict.certificate.ok:
        improved = _exact_stage(program, exact, proof, verdict, budget)
        if improved is not None:
            tried.append((exact, improved))
    best = verdict
    answer = None
    for each in tried:
        judged = judge(program, *each, budget=budget.time)
        if _rank(judged) > _rank(best):
            best, answer = judged, (*each, judged)
    return answer


def _rank(verdict: Verdict) -> tuple[int, ...]:
    """What is better comes later: holds, proven stages, exact, proven bounds."""
    exact = not any(check.worst for check in verdict.certificate.checks)
    return (
        int(verdict.certificate.ok),
        sum(stage.proven for stage in verdict.stages),
        int(exact),
        int(verdict.certificate.exact),
        sum(s.bound is not None and s.bound == s.value for s in verdict.stages),
    )


def _answers(
    program: ExactProgram, values: Floats, kept: Sequence[tuple[Objective, Fraction]], budget: Budget
) -> Iterator[Exact | None]:
    for objectives, zero in [(kept, _NEAR_BOUND), *([((), _NEAR_BOUND)] if kept else []), (kept, _AT_BOUND)]:
        try:
            yield exact_values(program, values, objectives, zero, budget.time)
        except ArithmeticError:
            yield None


def _exact_stage(program: ExactProgram, exact: Exact, proof: Proof, verdict: Verdict, budget: Budget) -> Proof | None:
    """The proof with exact multipliers in the first stage, and the derived rows before it, that prove too little."""
    checker = Checker(program, budget.time)
    place = next(
        (k for k, s in enumerate(verdict.stages) if not s.proven or s.bound != s.value),
        None,
    )
    if place is None or not (leaves := proof.stages.get(program.objectives[place].name)):
        return None
    limits = {o.name: (o, s.limit) for o, s in zip(program.objectives[:place], verdict.stages, strict=False)}
    objectives = {o.name: o for o in program.objectives}
    rows: list[Derived] = []
    for k, row in enumerate(proof.derived):
        if row.stage <= place:
            kept = dict(list(limits.items())[: row.stage])
            cost = Objective("", row.column, row.value, 0, Fraction(1))
            row, side = _provable(checker, row, cost, kept, objectives, rows, k, budget)
            checker.derived.append((row, side))
        rows.append(row)
    objective = program.objectives[place]
    mine = objective.sign * (checker.value(objective, exact) - objective.constant * objective.unit)
    fresh = []
    for leaf in leaves:
        now = _leaf_bound(checker, leaf, objective, limits, place, None)
        if now is None or checker.rounded(now, objective) < mine:
            other = _solved(program, leaf, objective, objectives, rows, budget)
            then = _leaf_bound(checker, other, objective, limits, place, None) if other is not None else None
            if other is not None and then is not None and (now is None or then > now):
                leaf = other
        fresh.append(leaf)
    return replace(proof, stages={**proof.stages, objective.name: tuple(fresh)}, derived=tuple(rows))


def _provable(
    checker: Checker,
    row: Derived,
    cost: Objective,
    kept: Mapping[str, tuple[Objective, Fraction]],
    objectives: Mapping[str, Objective],
    rows: Sequence[Derived],
    k: int,
    budget: Budget,
) -> tuple[Derived, Fraction]:
    """The derived row with cases that prove it, and its side; ``0 >= 0`` in its place if none are found."""
    cases = []
    for case in row.cases:
        if _leaf_bound(checker, case, cost, kept, row.stage, k) is None:
            case = _solved(checker.program, case, cost, objectives, rows, budget) or case
        cases.append(case)
    row = replace(row, cases=tuple(cases))
    try:
        side = checker.bound(row.cases, cost, kept, row.stage, known=k)
    except ProofError:
        side = None
    nothing = Derived(row.column[:0], row.value[:0], (Leaf(),), row.stage)
    return (row, side) if side is not None else (nothing, Fraction(0))


def _solved(
    program: ExactProgram,
    leaf: Leaf,
    cost: Objective,
    objectives: Mapping[str, Objective],
    rows: Sequence[Derived],
    budget: Budget,
) -> Leaf | None:
    if budget.left <= 0 or budget.time.spent:
        return None
    try:
        return exact_leaf(program, leaf, cost, objectives, rows, budget)
    except ArithmeticError:
        return None


def _leaf_bound(
    checker: Checker,
    leaf: Leaf,
    cost: Objective,
    before: Mapping[str, tuple[Objective, Fraction]],
    stage: int,
    known: int | None,
) -> Fraction | None:
    """What the multipliers of a leaf prove; a large number for leaves without an answer."""
    if checker.crossed(leaf.branches):
        return _ENDLESS
    try:
        total = checker.leaf_bound(leaf, cost, before, stage, known)
    except (ProofError, ArithmeticError):
        return None
    if leaf.own or total is None:
        return total
    return _ENDLESS if total > 0 else None


def _without_integers(program: ExactProgram) -> Proof | None:
    """A proof from one equation whose integer coefficients have a divisor that its side has not; None: there is none.

    The equation divided by its divisor is rounded up from both sides: ``2 x - 2 y = 1`` says that ``x - y >= 1`` and
    that ``y - x >= 0``.
    """
    for name, block in program.rows.items():
        if block.relation != "==" or not len(block.column):
            continue
        divisor = np.zeros(block.count, block.value.dtype)
        np.gcd.at(divisor, block.row, block.value)
        whole = np.ones(block.count, bool)
        np.logical_and.at(whole, block.row, program.integer[block.column])
        for k in np.flatnonzero(whole & (divisor != 0)).tolist():
            if block.rhs[k] % divisor[k] == 0:
                continue
            at = block.row == k
            columns, values = block.column[at], block.value[at] // divisor[k]
            if len(np.unique(columns)) < len(columns):
                continue
            both = []
            for sign in (1, -1):
                y = np.zeros(block.count, np.int64)
                y[k] = sign
                case = Leaf({name: Exact(y, 1 / (int(divisor[k]) * block.unit))})
                both.append(Derived(columns, sign * values, (case,)))
            return Proof(derived=tuple(both), empty=(Leaf(derived={0: Fraction(1), 1: Fraction(1)}, own=0),))
    return None


def _exact_without_answer(program: ExactProgram, outcome: found.StagesOutcome, proof: Proof, budget: Budget) -> Proof:
    """The proof that there is no answer or no optimum, solved in fractions."""
    if outcome.ray is not None:
        try:
            ray = exact_ray(program, outcome.ray, budget.time)
            point = exact_values(program, outcome.values, time=budget.time) if outcome.values is not None else None
        except ArithmeticError:
            return proof
        listed = () if point is None else tuple(point[k] for k in range(program.count))
        return Proof(ray=tuple(ray[k] for k in range(program.count)), point=listed)
    checker = Checker(program, budget.time)
    nothing = Objective("", np.zeros(0, np.int64), np.zeros(0, np.int64), 0, Fraction(1))
    rows: list[Derived] = []
    for k, row in enumerate(proof.derived):
        cost = Objective("", row.column, row.value, 0, Fraction(1))
        row, side = _provable(checker, row, cost, {}, {}, rows, k, budget)
        checker.derived.append((row, side))
        rows.append(row)
    fresh = []
    for leaf in proof.empty:
        if _leaf_bound(checker, leaf, nothing, {}, 0, None) != _ENDLESS:
            leaf = _solved(program, leaf, nothing, {}, rows, budget) or leaf
        fresh.append(leaf)
    return replace(proof, empty=tuple(fresh), derived=tuple(rows))


def exact_proof(
    program: ExactProgram, outcome: found.StagesOutcome, time: proof_time_budget.Budget | None = None
) -> Proof:
    """The proof of an outcome of stages; `OutOfTime` once the time has passed."""
    if isinstance(outcome, ScaledOutcome):
        units = ScaledProofs(program, outcome.scaling)
        return units.proof(exact_proof(units.scaled(), outcome.inner, time))
    starts = np.cumsum([0, *(block.count for block in program.rows.values())]).tolist()
    every = [*(leaf for result in outcome.stages for leaf in result.leaves), *outcome.empty]
    used = {int(k) for leaf in every for k in np.flatnonzero(leaf.cuts)}
    for k in range(len(outcome.cuts) - 1, -1, -1):
        if k in used:
            used |= {int(j) for cuts in outcome.cuts[k].cuts for j in np.flatnonzero(cuts)}
    kept = np.array(sorted(used), np.int64)  # cuts that no leaf uses, in the end, are left out
    grains = [outcome.cuts[k].grain for k in kept.tolist()]

    def of_kept(cuts: Floats) -> Floats:
        return cuts[kept[kept < len(cuts)]]

    cuts = [outcome.cuts[k] for k in kept.tolist()]

    def leaves(given: Sequence[found.Leaf], unit: Fraction, needed: float = math.inf) -> tuple[Leaf, ...]:
        mine = [replace(x, cuts=of_kept(x.cuts)) for x in given]
        short = _Short(program, cuts) if len(mine) > _FEW and any(x.bound > needed for x in mine) else None
        made = []
        for k, leaf in enumerate(mine):
            if k % _FEW == _FEW - 1 and time is not None and time.spent:
                raise OutOfTime
            small = None if short is None else short.leaf(leaf, leaf.bound - needed)
            made.append(_leaf(program, starts, leaf, grains, unit) if small is None else small)
        return tuple(made)

    checker, stages = Checker(program), {}
    for o, s in zip(program.objectives, outcome.stages, strict=False):
        step = float(checker.step(o))
        stages[o.name] = leaves(s.leaves, o.unit, s.bound - 0.99 * step if s.proven else s.bound)
    cuts = [replace(cut, cuts=(of_kept(cut.cuts[0]), of_kept(cut.cuts[1]))) for cut in cuts]
    derived = tuple(_derived(program, starts, cut, grains) for cut in cuts)
    empty = leaves(outcome.empty, Fraction(1))
    ray: tuple[Fraction, ...] = ()
    if outcome.ray is not None:
        size = float(np.abs(outcome.ray).max(initial=0)) or 1.0
        ray = tuple(_near(v / size) for v in outcome.ray.tolist())
    point = () if outcome.ray is None or outcome.values is None else tuple(map(_near, outcome.values.tolist()))
    points = {
        o.name: snapped(program, result.values)
        for o, result in zip(program.objectives, outcome.stages, strict=False)
        if result.values is not None
    }
    return Proof(stages, derived, empty, point, ray, points)


@dataclass
class _Short:
    """Multipliers with as few binary digits as the bound of a leaf needs."""

    program: ExactProgram
    cuts: Sequence[found.Cut]

    @cached_property
    def sizes(self) -> tuple[list[Floats], Floats]:
        """Of each row and each cut: how far its sides and what columns make of it are from 0 at most."""
        low, high = Checker(self.program).implied
        reach = np.maximum(np.abs(low), np.abs(high))
        rows: list[Floats] = []
        for block in self.program.rows.values():
            value = np.abs(Exact(block.value, block.unit).floats)
            side = np.abs(Exact(block.rhs, block.unit).floats)
            rows.append(side + np.bincount(block.row, value * reach[block.column], block.count).astype(np.float64))
        return rows, np.array([cut.grain * abs(cut.side) + np.abs(cut.whole) @ reach[cut.columns] for cut in self.cuts])

    def leaf(self, leaf: found.Leaf, spare: float) -> Leaf | None:
        """The leaf with a bound that is lower by less than ``spare``; None: rounding may cost more."""
        if leaf.earlier.any() or not leaf.own or not 0 < spare < math.inf:
            return None
        of_rows, of_cuts = self.sizes
        at = np.flatnonzero(leaf.cuts)
        size = float(np.concatenate(of_rows)[np.flatnonzero(leaf.rows)].sum() + of_cuts[at].sum())
        if not math.isfinite(size):
            return None
        digits = max(math.ceil(math.log2(max(size, 1e-9) / spare)), 4)
        if digits > _MOST_DIGITS or np.abs(leaf.rows).max(initial=0) * 2.0**digits > 2.0**52:
            return None
        unit, rows, start = Fraction(1, 2**digits), {}, 0
        for block in self.program.rows.values():
            numbers = np.rint(leaf.rows[start : start + block.count] * 2.0**digits).astype(np.int64)
            start += block.count
            if block.relation != "==":
                numbers = np.minimum(numbers, 0) if block.relation == "<=" else np.maximum(numbers, 0)
            if numbers.any():
                rows[block.name] = Exact(numbers, unit)
        derived = {k: round(leaf.cuts[k] / self.cuts[k].grain * 2.0**digits) * unit for k in at.tolist()}
        branches = tuple(Branch.single(b.column, b.upper, b.side) for b in leaf.branches)
        return Leaf(rows, {}, {k: v for k, v in derived.items() if v}, branches)


def _near(value: float) -> Fraction:
    small = Fraction(value).limit_denominator(_SINGLE)
    return small if abs(float(small) - value) <= _NEAR * max(1.0, abs(value)) else Fraction(value)


def _leaf(
    program: ExactProgram, starts: Sequence[int], leaf: found.Leaf, grains: Sequence[int], unit: Fraction
) -> Leaf:
    own = _measure(unit) if leaf.own else Fraction(1)
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
    units = [_measure(block.unit, block.smallest) for block in blocks]
    per_row = [rows[s : s + b.count] * float(u / own) for b, u, s in zip(blocks, units, starts, strict=False)]
    before = [(o.name, _measure(o.unit, o.smallest)) for o in program.objectives[: len(earlier)]]
    per_earlier = np.array([e * float(u / own) for e, (_, u) in zip(earlier.tolist(), before, strict=False)])
    per_cut = cuts * float(1 / own)  # of rows in units of 1 / grain
    side = np.array([of_split * float(1 / own)])
    everything = np.concatenate([*per_row, per_earlier, per_cut, side])
    denominator, whole = in_fractions(everything)
    place = 0
    found_rows: dict[str, Exact] = {}
    for block, unit, part in zip(blocks, units, per_row, strict=True):
        numbers = whole[place : place + len(part)]
        place += len(part)
        if block.relation == "<=":
            numbers = np.minimum(numbers, 0)
        elif block.relation == ">=":
            numbers = np.maximum(numbers, 0)
        if numbers.any():
            found_rows[block.name] = Exact(numbers, own / (denominator * unit))
    found_earlier = {
        name: Fraction(min(int(v), 0)) * own / (denominator * unit)
        for (name, unit), v in zip(before, whole[place : place + len(per_earlier)].tolist(), strict=True)
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


def _measure(unit: Fraction, smallest: int = 0) -> Fraction:
    """The unit in which multipliers are measured: that of the data; 1 if it is fine and the numbers are large."""
    if max(unit.numerator, unit.denominator) <= _DECIMAL:
        return unit
    return unit if unit.denominator % 5 == 0 and 0 < smallest <= _LARGE else Fraction(1)


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
        together, near = 1, []
        for v in used.tolist():
            each = Fraction(v).limit_denominator(_SINGLE)
            together = math.lcm(together, each.denominator)
            if abs(float(each) - v) > _NEAR * max(1.0, abs(v)) or together > _TOGETHER:
                together = 0
                break
            near.append(each)
        if together and top * together < 2.0**60:
            numbers = np.zeros(len(values), np.int64)
            numbers[values != 0] = [int(each * together) for each in near]
            return together, numbers
    power = int(np.floor(np.log2(2.0**52 / top)))
    power = max(min(power, 40), 0)
    return 2**power, np.rint(values * 2.0**power).astype(np.int64)


def answer_of(program: ExactProgram, outcome: found.StagesOutcome) -> Exact | None:
    """The values of an outcome in exact numbers; None: it has none."""
    if isinstance(outcome, ScaledOutcome) and outcome.inner.values is not None:
        units = ScaledProofs(program, outcome.scaling)
        return units.values(snapped(units.scaled(), outcome.inner.values))
    return None if outcome.values is None else snapped(program, outcome.values)


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
