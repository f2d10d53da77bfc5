r"""Is it true? Rows and bounds recomputed from the values, and each objective bounded by adding up multipliers.

With multipliers y of the rows and e of the objectives before, every answer of a leaf satisfies

.. math::

    w c x \ge \sum_i y_i b_i + \sum_k e_k v_k + \sum_j \min_{l_j \le x_j \le u_j} r_j x_j,
    \quad r = w c - A'y - \sum_k e_k c_k,

with w > 0, or with w = 0 and a positive right-hand side if the leaf has no answer. All of it is computed in integers.
Multipliers of rows that share no column may be left out; the best ones are found from the reduced costs. So may those
of a leaf that an earlier objective has: as its value stays, all that has a reduced cost there keeps its bound.
Source: branch and bound with dual bounds as in VIPR (Cheung, Gleixner and Steffy, 2017).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from flowlex.validation.certificates.certificate import Certificate, Check, Claim
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.proofs.blocks import without_blocks
from flowlex.validation.proofs.exact_program import (
    MOST_BITS,
    SAFE,
    Exact,
    ExactProgram,
    Objective,
    Positions,
    RowBlock,
    Whole,
    common_unit,
    dot,
    labelled,
    largest,
    narrow,
    scaled,
    to_float,
)
from flowlex.validation.proofs.proof import Branch, Derived, Leaf, Proof, ProofError

Bound: TypeAlias = Fraction | int

#: An objective counts as optimal within this share of its size, where values or data are fractions.
_CLOSE = Fraction(1, 10**7)
#: How much a later objective may gain by what values within a tolerance leave of the earlier ones.
_REACH = 10**4
#: The largest share of a later objective that may be left open so.
_LOOSE = Fraction(1, 10**4)
#: How many times further than an optimum may be missed values within a tolerance may lie beyond the first one.
_BEYOND = 10
#: How much of an objective a row may be worth: values that miss a row by v are better than answers by this times v.
_AMPLIFIED = 10**5
#: Rows whose coefficients are all smaller are measured by the largest of them.
_TINY = 2.0**-10
#: What a violation counts that is too small for a float.
_LEAST = 5e-324
#: Numbers that are remembered of shared multipliers.
_REMEMBERED = 1 << 24
#: The number of a step at the end of an objective's name.
_STEP = re.compile(r"_[0-9]+$")
#: Sides that values miss within a tolerance are moved by multiples of a share of their unit.
_FINE = 2**44
#: Rounds in which bounds that rows imply are passed on.
_ROUNDS = 20


class OutOfTime(ProofError):
    """The time for the check has passed."""

    def __init__(self) -> None:
        super().__init__("the time limit passed before the proof was checked")


@dataclass(frozen=True)
class StageVerdict:
    """One objective: its value and the bound that is proven, in its own direction."""

    name: str
    value: Fraction
    bound: Fraction | None
    proven: bool
    reason: str = ""
    #: How much worse than its optimum the value is, for the sake of later objectives.
    given_away: Fraction = Fraction(0)
    #: How large the objective may be in later stages, as a minimisation.
    limit: Fraction = Fraction(0)


@dataclass(frozen=True)
class Verdict:
    """What holds of an answer.

    ``stages``: of the objectives, in order; those after the first unproven one have no bound. ``late``: the time for
    the check passed before its end.
    """

    claim: Claim
    certificate: Certificate
    stages: tuple[StageVerdict, ...] = ()
    late: bool = False


@dataclass(frozen=True, eq=False)
class _Base:
    """Reduced costs (without a cost) by shared and completed multipliers, what these add, and the least of them all."""

    reduced: Whole
    unit: Fraction
    total: Fraction
    least: Fraction | None  # over the bounds; None: a bound is missing
    rows: Mapping[str, Exact]  # kept, so that no other takes their place


@dataclass(frozen=True, eq=False)
class _Face:
    """What the only leaf of an objective adds up to, ``own * objective >= total + reduced costs``.

    ``reduced``: of columns, then of the slacks of inequalities. ``bound``: of it within the bounds of the columns.
    """

    reduced: Whole
    unit: Fraction
    total: Fraction
    own: Fraction
    bound: Fraction | None


@dataclass(eq=False)
class Checker:
    """A problem, made ready once for all leaves."""

    program: ExactProgram
    #: Time for all leaves; `OutOfTime` is raised once it has passed.
    budget: Budget = field(default_factory=Budget)
    #: Proven sides of derived rows, and how many objectives each of them takes as fixed.
    derived: list[tuple[Derived, Fraction]] = field(default_factory=list)
    #: Of shared multipliers, rows to complete and columns that branches have shut: what they make of the columns.
    bases: dict[tuple[int, tuple[str, ...], tuple[int, ...]], _Base] = field(default_factory=dict)
    #: Columns of rows that are completed, by the names of the rows.
    touched: dict[tuple[str, ...], NDArray[np.bool_]] = field(default_factory=dict)
    #: The earlier objectives that were added up last: names, columns, values, constant, limit.
    joined: tuple[tuple[str, ...], Positions, Whole, int, Fraction] | None = None
    #: How many earlier objectives were added up so, and the sum of their limits without constants.
    limits: tuple[int, Fraction] = (0, Fraction(0))
    #: Whether some leaf counts earlier ones; if so the leaf that was judged last, and those of objectives that stay.
    joins: bool = False
    face: _Face | None = None
    faces: list[_Face] = field(default_factory=list)
    #: The signs of their reduced costs, columns and slacks.
    signs: NDArray[np.int8] | None = None
    #: Bounds that follow with the objectives of a key, those asked for last.
    _with: tuple[Any, Any] | None = None
    #: Bounds of columns that are objectives of their own and keep their values.
    low: dict[int, Bound] = field(default_factory=dict)
    high: dict[int, Bound] = field(default_factory=dict)

    # ---- the answer

    def violations(self, x: Exact) -> list[Check]:
        """Checks that values satisfy bounds, rows and integrality.

        Rows of integer variables alone, and bounds of integer variables, have no tolerance.
        """
        p = self.program
        if len(x.numbers) != p.count:
            return [Check("one value for each variable", False, detail=f"{p.count} expected, got {len(x.numbers)}")]
        worst, where, holds = 0.0, "", True
        for block in p.rows.values():
            slack = self._slack(block, x)
            if slack is None:  # too long for exact sums
                floats, size = self._float_slack(block, x.floats)
                bad = np.flatnonzero(floats < 1e-12 * size)
                off = np.maximum(-floats[bad] / size[bad], _LEAST)
            elif slack.min(initial=0) >= 0:
                continue
            else:
                bad = np.flatnonzero(slack < 0)
                size = self._float_slack(block, x.floats)[1] if len(bad) else np.zeros(0)
                amounts = [to_float(-int(v) * block.unit * x.unit) for v in slack[bad].tolist()]
                off = np.maximum(np.array(amounts) / size[bad], _LEAST) if len(bad) else np.zeros(0)
            if not len(bad):
                continue
            k = int(np.argmax(off))
            if not off[k] <= worst:
                worst, where = float(off[k]), labelled(block.name, block.texts()[bad[k]])
            holds = holds and bool((off <= p.tolerance).all())
            if holds and slack is not None:
                free = np.zeros(block.count, bool)
                free[block.row[~p.integer[block.column]]] = True
                holds = bool(free[bad].all())
        detail = "" if worst == 0 else f"{where} is off by {worst:.3g} of its size"
        return [self._inside(x), self._integers(x), Check("every row holds", holds, worst, detail)]

    def _slack(self, block: RowBlock, x: Exact) -> Whole | None:
        """(rows,) distance to the side, times 1 / (unit of the block and of x); equations: minus the distance."""
        if x.numbers.dtype == object or largest(block.value) * largest(x.numbers) * max(block.widest, 1) >= SAFE:
            used = np.flatnonzero(x.numbers[block.column])
            if len(used) > 200_000:
                return None
            sums = np.zeros(block.count, object)
            each = block.value[used].astype(object) * x.numbers[block.column[used]].astype(object)
            np.add.at(sums, block.row[used], each)
        else:
            sums = np.zeros(block.count, np.int64)
            np.add.at(sums, block.row, block.value * x.numbers[block.column])
        ratio = 1 / x.unit
        side = (
            scaled(block.rhs, int(ratio))
            if ratio.denominator == 1
            else np.array([v * ratio for v in block.rhs.tolist()], object)
        )
        gap: Whole = sums - (side.astype(object) if largest(side) >= SAFE else side)
        return -gap if block.relation == "<=" else gap if block.relation == ">=" else -abs(gap)

    def _float_slack(self, block: RowBlock, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Distance to the side, and the size of the row: its terms and 1, or its largest coefficient if it is tiny."""
        value = Exact(block.value, block.unit).floats
        sums = np.bincount(block.row, value * x[block.column], block.count).astype(np.float64)
        size = np.bincount(block.row, np.abs(value * x[block.column]), block.count).astype(np.float64)
        most = np.zeros(block.count)
        np.maximum.at(most, block.row, np.abs(value))
        size += np.where((most > 0) & (most < _TINY), most, 1.0)
        gap = sums - Exact(block.rhs, block.unit).floats
        return (-gap if block.relation == "<=" else gap if block.relation == ">=" else -np.abs(gap)), size

    def _inside(self, x: Exact) -> Check:
        p = self.program
        share, detail, holds = 0.0, "", True
        whole = p.integer_bounds if x.unit == 1 and x.numbers.dtype != object else None
        if whole is not None and ((x.numbers >= whole[0]) & (x.numbers <= whole[1])).all():
            return Check("every variable is within its bounds", holds, share)
        for bounds, sign in ((p.lower, 1), (p.upper, -1)):
            unit = common_unit([bounds.at.unit, x.unit])
            side, mine = scaled(bounds.at.numbers, int(bounds.at.unit / unit)), scaled(x.numbers, int(x.unit / unit))
            off = (side if max(largest(side), largest(mine)) < SAFE else side.astype(object)) - mine
            bad = np.flatnonzero((off * sign > 0) & ~bounds.missing)
            for k, apart in zip(bad.tolist(), off[bad].tolist(), strict=True):
                amount = to_float(abs(int(apart)) * unit)
                size = max(amount / (1 + abs(to_float(x[k]))), _LEAST)
                holds = holds and size <= p.tolerance and not p.integer[k]
                if not size <= share:
                    share, detail = size, f"{labelled(*p.column_text(k))} is off by {amount:.3g}"
        return Check("every variable is within its bounds", holds, share, detail)

    def _integers(self, x: Exact) -> Check:
        name, columns, divisor = (
            "integer variables are integers",
            np.flatnonzero(self.program.integer),
            x.unit.denominator,
        )
        numbers = x.numbers[columns] if divisor < SAFE else x.numbers[columns].astype(object)
        broken = columns[numbers % divisor != 0].tolist()  # values are numbers times the unit, in lowest terms
        first = [f"{labelled(*self.program.column_text(k))} is {to_float(x[k])}" for k in broken[:1]]
        return Check(name, not broken, len(broken), "".join(first))

    def value(self, objective: Objective, x: Exact) -> Fraction:
        """The objective of values."""
        return (objective.constant + dot(objective.value, x.numbers[objective.column]) * x.unit) * objective.unit

    # ---- the bound

    def bound(
        self,
        leaves: Sequence[Leaf],
        cost: Objective | None,
        before: Mapping[str, tuple[Objective, Fraction]],
        stage: int,
        known: int | None = None,
        cutoff: Fraction | None = None,
    ) -> Fraction | None:
        """Lower bound on the cost (minimised, without its constant) over all leaves; None: nothing is proven.

        Without a cost: 0 if no leaf has an answer. ``before``: the objectives before with the values that they keep.
        ``known``: how many derived rows may be used. ``cutoff``: a value (as a minimisation) that an answer has; the
        bound holds of all answers that are no worse.

        Raises `ProofError`: the leaves do not cover all answers, or name what does not exist.
        """
        if not covers([leaf.branches for leaf in leaves]):
            raise ProofError("the leaves do not cover all answers")
        for branch in {id(b): b for leaf in leaves for b in leaf.branches}.values():
            if not self.program.integer[branch.column].all():
                raise ProofError("a branch on a variable that is not integer")
        found: Fraction | None = None
        for leaf in leaves:
            if self.crossed(leaf.branches):
                continue
            total = self.leaf_bound(leaf, cost, before, stage, known, cutoff)
            if total is None:
                return None
            if not leaf.own or cost is None:
                if total <= 0:
                    return None
                continue
            total /= leaf.own
            found = total if found is None else min(found, total)
        if cost is None:
            return Fraction(0)
        if found is None:
            raise ProofError("the leaves have no answer at all")
        return self.rounded(found, cost)

    def rounded(self, bound: Fraction, cost: Objective) -> Fraction:
        """A lower bound on a cost raised to the next value that it can have."""
        step = self.step(cost)
        return bound if not step else Fraction(math.ceil(bound / step)) * step

    def keep(self, objective: Objective, limit: Fraction) -> None:
        """Let an objective (minimised) be at most its limit from here on: of one column, that is a bound."""
        if len(objective.column) != 1 or not objective.value[0]:
            return
        column, rate = int(objective.column[0]), objective.sign * int(objective.value[0]) * objective.unit
        side = (limit - objective.sign * objective.constant * objective.unit) / rate
        if rate > 0:
            self.high[column] = min(self.high.get(column, side), side)
        else:
            self.low[column] = max(self.low.get(column, side), side)

    def step(self, cost: Objective) -> Fraction:
        """The unit of which values of the cost (without its constant) are multiples; 0 if they may be fractions."""
        if not len(cost.column) or not self.program.integer[cost.column].all():
            return Fraction(0)
        if cost.step:
            return cost.step * cost.unit
        return cost.divisor * cost.unit

    def leaf_bound(
        self,
        leaf: Leaf,
        cost: Objective | None,
        before: Mapping[str, tuple[Objective, Fraction]],
        stage: int,
        known: int | None,
        cutoff: Fraction | None = None,
    ) -> Fraction | None:
        """What the multipliers of one leaf add up to, before any rounding; parameters as in `bound`."""
        if self.budget.spent:
            raise OutOfTime
        total = Fraction(0)
        #: Vectors over columns, and the rational with which each counts in the reduced costs.
        parts: list[tuple[Fraction, Any, Whole]] = []
        if cost is not None and leaf.own:
            parts.append((leaf.own * cost.sign * cost.unit, cost.column, cost.value))
        blocks, given = self._blocks(leaf.rows, signed=not leaf.with_earlier)
        total += given
        if leaf.before > 0 or any(e > 0 or name not in before for name, e in leaf.earlier.items()):
            odd = [name for name, e in leaf.earlier.items() if e > 0 or name not in before] or [*before, "before"]
            raise ProofError(f"a multiplier of objective {odd[0]!r}, which comes later or has the wrong sign")
        earlier = [(e, *before[name]) for name, e in leaf.earlier.items()]
        earlier += [(leaf.before, objective, limit) for objective, limit in self._joined(before)] if leaf.before else []
        for e, objective, limit in earlier:
            total += e * (limit - objective.sign * objective.constant * objective.unit)
            parts.append((-e * objective.sign * objective.unit, objective.column, objective.value))
        for k, e in leaf.derived.items():
            if not 0 <= k < (len(self.derived) if known is None else known) or e < 0:
                raise ProofError(f"a multiplier of derived row {k}, which comes later or has the wrong sign")
            row, side = self.derived[k]
            if row.stage > stage:
                raise ProofError(f"derived row {k} holds only once later objectives are fixed")
            total += e * side
            parts.append((-e, row.column, row.value))
        low, high = _limits(leaf.branches, self.low, self.high)
        for branch in leaf.branches:
            if branch.multiplier and not branch.alone:
                if (branch.multiplier > 0) == branch.upper:
                    raise ProofError("the multiplier of a branch has the wrong sign")
                total += branch.multiplier * branch.side
                parts.append((-branch.multiplier, branch.column, branch.value))
        reduced, unit = self._reduced(parts, blocks)
        self.face = None
        if self.joins and not (leaf.branches or leaf.shared or leaf.blocks):
            return self._on_faces(leaf, cost, (reduced, unit, total), list(before.values()))
        if leaf.with_earlier:
            raise ProofError("a leaf with earlier ones has no branches, shared multipliers or blocks")
        kept = list(before.values())
        if cutoff is not None and cost is not None:
            kept.append((cost, cutoff))
        shut = tuple(c for c, side in high.items() if side <= 0)
        if not (leaf.shared or leaf.blocks):
            for name in leaf.complete:
                reduced, more = self._completed(name, reduced, shut)
                total += more * unit
            return self._least_within_bounds(None, reduced, unit, total, low, high, kept)
        if not leaf.blocks and not self._touched(leaf.complete)[np.flatnonzero(reduced)].any():
            base = self._base(leaf.shared, leaf.complete, shut)
            if base.least is not None:  # only these columns differ from the base
                differs = reduced != 0
                differs[[*low, *high]] = True
                columns = np.flatnonzero(differs)
                return self._least_of_base(base, columns, (reduced[columns], unit, total), low, high, kept)
        plain = self._base(leaf.shared, (), ())
        both = common_unit([unit, plain.unit])
        reduced = _sum(scaled(reduced, int(unit / both)), scaled(plain.reduced, int(plain.unit / both)))
        total += plain.total
        for name in leaf.complete:
            reduced, more = self._completed(name, reduced, shut)
            total += more * both
        for name in leaf.blocks:
            reduced, least = without_blocks(self.program.blocks[name], reduced, both)
            if least is None:
                return None
            total += least
        return self._least_within_bounds(None, reduced, both, total, low, high, kept)

    def _joined(self, before: Mapping[str, tuple[Objective, Fraction]]) -> Iterable[tuple[Objective, Fraction]]:
        """Earlier objectives with limits, added up if they have one unit and sense."""
        names, none = tuple(before), np.zeros(0, np.int64)
        done, column, value, constant, limit = self.joined or ((), none, none, 0, Fraction(0))
        if names[: len(done)] != done:
            done, column, value, constant, limit = (), none, none, 0, Fraction(0)
        new = [before[name] for name in names[len(done) :]]
        first = before[names[0]][0] if names else None
        if first is None or any((o.unit, o.maximize) != (first.unit, first.maximize) for o, _ in new):
            return before.values()
        if new:
            column = np.concatenate([column, *(o.column for o, _ in new)])
            value = np.concatenate([value, *(o.value for o, _ in new)])
            constant, limit = constant + sum(o.constant for o, _ in new), limit + sum(most for _, most in new)
        self.joined = names, column, value, constant, limit
        return [(Objective("", column, value, constant, first.unit, maximize=first.maximize), limit)]

    def optimal_together(
        self, k: int, stages: Mapping[str, tuple[Leaf, ...]], x: Exact, before: Sequence[tuple[Objective, Fraction]]
    ) -> list[StageVerdict]:
        """Verdicts of objectives from number ``k`` on that the same leaves show to be optimal, in one pass.

        Those are integer objectives of one unit without common columns, where leaves take -1 of each earlier one: then
        the reduced costs of the next objective differ in its own columns alone. Empty: `bound` has to judge.
        ``x``: an answer, without any tolerance.
        """
        p = self.program
        leaves, end = stages.get(p.objectives[k].name, ()), k
        while end < len(p.objectives) and stages.get(p.objectives[end].name) is leaves:
            end += 1
        # A leaf that later ones count among theirs is judged by itself.
        if not leaves or (self.joins and end - k < 2) or x.unit != 1 or x.numbers.dtype == object:
            return []
        if p.integer_bounds is None or any(not _only_before(leaf) for leaf in leaves):
            return []
        if self.budget.spent:
            raise OutOfTime
        column, value, start, step = p.separable_objectives
        end = min(end, len(start))
        if end <= k or not covers([leaf.branches for leaf in leaves]):
            return []
        if end < len(start):
            column, value, start, step = column[: start[end]], value[: start[end]], start[:end], step[:end]
        if largest(value) * largest(x.numbers) * len(column) >= SAFE:
            return []
        mine = np.add.reduceat(value * x.numbers[column], start)
        if (mine % step).any():
            return []
        unit, objectives = p.objectives[0].unit, p.objectives[:end]
        count, kept = self.limits
        more = before[count:]
        kept = sum((limit - o.sign * o.constant * o.unit if o.constant else limit for o, limit in more), kept)
        self.limits = len(before), kept
        # Of objectives from k on: what an answer that is better would have at most, and the ones before.
        better = mine[k:] - step[k:] + np.cumsum(np.append(0, mine[k:-1]))
        shown = np.ones(end - k, bool)
        for leaf in leaves:
            if self.crossed(leaf.branches):
                continue
            low, high = _limits(leaf.branches)
            shut = tuple(c for c, side in high.items() if side <= 0)
            base = self._base(leaf.shared, leaf.complete, shut)
            mixed = np.isin(column, [*low, *high]).any() if leaf.branches else False
            if (
                base.least is None
                or mixed
                or self._touched(leaf.complete)[column].any()
                or not p.integer[[*low, *high]].all()
            ):
                return []
            total = base.total + base.least
            if leaf.branches:
                branched = np.unique(np.array([*low, *high], np.int64))
                nothing = np.zeros(len(branched), np.int64), base.unit, Fraction(0)
                found = self._least_of_base(base, branched, nothing, low, high, ())
                if found is None:
                    return []
                total = found
            both = common_unit([unit, base.unit])
            bare = scaled(base.reduced[column], int(base.unit / both))
            least = (
                self._least_of_each(column, bare),
                self._least_of_each(column, _sum(scaled(value, int(unit / both)), bare)),
            )
            wanted = scaled(better, int(unit / both))
            if least[0] is None or least[1] is None or wanted.dtype == object or largest(wanted) >= SAFE / 2:
                return []
            gains = np.cumsum(np.add.reduceat(least[1] - least[0], start))[k:]
            top = math.ceil((total - kept) / both)
            if abs(top) >= SAFE:
                return []
            shown &= top > wanted - gains
        proven = end - k if shown.all() else int(np.argmin(shown))
        sign, verdicts = objectives[0].sign, list[StageVerdict]()
        for o, v in zip(objectives[k : k + proven], mine[k:].tolist(), strict=False):
            limit = Fraction(v + sign * o.constant) * unit if unit != 1 else Fraction(v + sign * o.constant)
            attained = limit if sign > 0 else -limit
            verdicts.append(StageVerdict(o.name, attained, attained, True, limit=limit))
        return verdicts

    def _least_of_each(self, at: Positions, reduced: Whole) -> Whole | None:
        """The least of each reduced cost times its column within the bounds; None: a bound is missing or too large."""
        bounds = self.program.integer_bounds
        if bounds is None or reduced.dtype == object or 4 * largest(reduced) * bounds[2] * len(at) >= SAFE:
            return None
        negative = np.minimum(reduced, 0)
        least: Whole = negative * bounds[1][at] + (reduced - negative) * bounds[0][at]
        return least

    def _blocks(
        self, rows: Mapping[str, Exact], *, signed: bool = True
    ) -> tuple[list[tuple[Fraction, RowBlock, Whole]], Fraction]:
        """Rows with their multipliers, and what these make of the right-hand sides."""
        blocks: list[tuple[Fraction, RowBlock, Whole]] = []
        total = Fraction(0)
        for name, y in rows.items():
            block = self.program.rows.get(name)
            if block is None or len(y.numbers) != block.count:
                raise ProofError(f"multipliers of rows {name!r}, which do not exist")
            if signed and block.relation != "==" and len(y.numbers):
                wrong = y.numbers > 0 if block.relation == "<=" else y.numbers < 0
                if wrong.any():
                    text = block.texts()[int(np.argmax(wrong))]
                    raise ProofError(f"the multiplier of row {name}[{text}] has the wrong sign")
            total += dot(y.numbers, block.rhs) * y.unit * block.unit
            blocks.append((y.unit * block.unit, block, y.numbers))
        return blocks, total

    def _on_faces(
        self,
        leaf: Leaf,
        cost: Objective | None,
        found: tuple[Whole, Fraction, Fraction],
        kept: Sequence[tuple[Objective, Fraction]],
    ) -> Fraction | None:
        """The bound of a leaf with those of earlier objectives added where reduced costs have the other sign there."""
        (reduced, unit, total), count = found, self.program.count
        for name in leaf.complete:
            reduced, more = self._completed(name, reduced, ())
            total += more * unit
        sides = [(block, leaf.rows.get(name)) for name, block in self.program.rows.items() if block.relation != "=="]
        both = common_unit([unit, *(y.unit for _, y in sides if y is not None)])
        parts = [scaled(reduced, int(unit / both))]
        for block, y in sides:
            times = 0 if y is None else int(y.unit / both) * (-1 if block.relation == "<=" else 1)
            parts.append(np.zeros(block.count, np.int64) if y is None else scaled(y.numbers, times))
        reduced, unit = np.concatenate(parts), both
        for face in reversed(self.faces) if leaf.with_earlier and self.signs is not None else ():
            signs = cast("NDArray[np.int8]", self.signs)
            other = np.flatnonzero(((reduced < 0) & (signs > 0)) | ((reduced > 0) & (signs < 0)))
            if not len(other):
                break
            both = common_unit([unit, face.unit])
            here = scaled(reduced[other], int(unit / both)), scaled(face.reduced[other], int(face.unit / both))
            other = np.flatnonzero(np.sign(here[0]) * np.sign(here[1]) < 0)
            if len(other):
                times = int((-(-abs(here[0][other]) // abs(here[1][other]))).max())
                theirs = scaled(face.reduced, times * int(face.unit / both))
                reduced, unit = _sum(scaled(reduced, int(unit / both)), theirs), both
                total += times * face.total
        if (reduced[count:] < 0).any():
            raise ProofError("multipliers of inequalities have the wrong sign, and no earlier leaf sets them right")
        bound = self._least_within_bounds(None, reduced[:count], unit, total, {}, {}, kept)
        self.face = _Face(reduced, unit, total, Fraction(leaf.own), bound)
        return bound

    def keep_face(self, objective: Objective, limit: Fraction) -> None:
        """Let later leaves count the leaf that was judged last, that of an objective that stays at most at a limit."""
        if self.face is not None:
            face, most = self.face, limit - objective.sign * objective.constant * objective.unit
            costs = face.bound != face.own * most  # then it takes away from other bounds: it comes last
            self.faces.insert(0 if costs else len(self.faces), replace(face, total=face.total - face.own * most))
            new = np.sign(face.reduced).astype(np.int8)
            self.signs = new if self.signs is None else np.where(self.signs == 0, new, self.signs)

    def _base(self, rows: Mapping[str, Exact], complete: tuple[str, ...], shut: tuple[int, ...]) -> _Base:
        """What multipliers that several leaves share take away from each column, and add; computed once."""
        key = id(rows) if rows else 0, complete, shut
        if key not in self.bases:
            blocks, total = self._blocks(rows)
            reduced, unit = self._reduced([], blocks)
            for name in complete:
                reduced, more = self._completed(name, reduced, shut)
                total += more * unit
            least = self._least_within_bounds(None, reduced, unit, Fraction(0), {}, {}, ())
            if len(self.bases) * len(reduced) > _REMEMBERED:
                self.bases.clear()
            self.bases[key] = _Base(reduced, unit, total, least, rows)
        return self.bases[key]

    def _least_of_base(
        self,
        base: _Base,
        columns: Positions,
        more: tuple[Whole, Fraction, Fraction],
        low: Mapping[int, Bound],
        high: Mapping[int, Bound],
        kept: Sequence[tuple[Objective, Fraction]],
    ) -> Fraction | None:
        """The bound of a base in which sorted columns, all that are branched on among them, have more reduced costs.

        ``more``: these, their unit, and what is added to the bound.
        """
        assert base.least is not None
        (added, unit, total), mine = more, base.reduced[columns]
        others = self._least_within_bounds(columns, mine, base.unit, total + base.total + base.least, {}, {}, (), -1)
        if others is None:
            return None
        both = common_unit([unit, base.unit])
        reduced = _sum(scaled(added, int(unit / both)), scaled(mine, int(base.unit / both)))
        return self._least_within_bounds(columns, reduced, both, others, low, high, kept)

    def _touched(self, complete: tuple[str, ...]) -> NDArray[np.bool_]:
        """Columns of rows that are completed."""
        if complete not in self.touched:
            self.touched[complete] = np.zeros(self.program.count, bool)
            for name in complete:
                if name in self.program.rows:
                    self.touched[complete][self.program.rows[name].column] = True
        return self.touched[complete]

    def _completed(self, name: str, reduced: Whole, shut: Sequence[int]) -> tuple[Whole, Fraction]:
        """The reduced costs after the best multipliers of rows that share no column, and what these add.

        Columns with a negative coefficient are left to rows that are completed later; those that branches have shut do
        not count.
        """
        block = self.program.rows.get(name)
        known = None if block is None else block.completion
        if block is None or known is None:
            raise ProofError(f"multipliers of rows {name!r} cannot be completed")
        times, columns, rows, filled, unit = known
        if not len(columns) or not reduced[block.column].any():
            return reduced, Fraction(0)
        if (1 + largest(times)) * largest(reduced) >= SAFE:
            reduced = reduced.astype(object)  # a difference could leave 64 bits
        if shut:
            left = ~np.isin(columns, shut)
            columns, rows = columns[left], rows[left]
            filled = np.zeros(block.count, bool)
            filled[rows] = True
        least = np.full(block.count, int(reduced.max()), reduced.dtype)
        np.minimum.at(least, rows, reduced[columns])
        least[~filled] = 0
        if block.relation != "==":
            least = np.minimum(least, 0) if block.relation == "<=" else np.maximum(least, 0)
        reduced = reduced.copy()
        reduced[block.column] -= times * least[block.row]
        return reduced, Fraction(dot(least, block.rhs), unit)

    def crossed(self, branches: Sequence[Branch]) -> bool:
        """Whether the branches leave no value for a column."""
        p = self.program
        low, high = _limits(branches)
        for column in low.keys() | high.keys():
            lows, highs = (
                ([given[column]] if column in given else []) + ([] if side.missing[column] else [side.at[column]])
                for given, side in ((low, p.lower), (high, p.upper))
            )
            if lows and highs and max(lows) > min(highs):
                return True
        return False

    def _reduced(
        self, parts: Sequence[tuple[Fraction, Any, Whole]], blocks: Sequence[tuple[Fraction, RowBlock, Whole]]
    ) -> tuple[Whole, Fraction]:
        """Cost minus what the multipliers of rows take away, of every column, as integers times a unit."""
        parts = [part for part in parts if part[0] and part[2].any()]
        blocks = [(f * b.coefficients[1], b, y) for f, b, y in blocks if b.size and y.any()]
        unit = common_unit([abs(f) for f, _, _ in parts] + [f for f, _, _ in blocks])
        if unit.denominator.bit_length() > 4 * MOST_BITS:
            raise ProofError("the multipliers have a common denominator of too many digits")
        often = [_most_often(c) for _, c, _ in parts]
        times = [_multiple(f, unit) for f, *_ in (*parts, *blocks)]
        size = sum(to_float(abs(t)) * largest(v) * n for t, (_, _, v), n in zip(times, parts, often, strict=False))
        more = zip(times[len(parts) :], blocks, strict=True)
        size += sum(to_float(t) * largest(y) * max(block.size, 1.0) for t, (_, block, y) in more)
        kind: Any = np.int64 if size < SAFE else object
        reduced = np.zeros(self.program.count, kind)
        for factor, (_, columns, values), most in zip(times, parts, often, strict=False):
            if most == 1:
                reduced[columns] += scaled(values.astype(kind, copy=False), factor)
            else:
                np.add.at(reduced, columns, scaled(values.astype(kind, copy=False), factor))
        for factor, (_, block, y) in zip(times[len(parts) :], blocks, strict=True):
            taken = (
                block.coefficients[0].astype(kind, copy=False) * scaled(y.astype(kind, copy=False), factor)[block.row]
            )
            if block.once:
                reduced[block.column] -= taken
            else:
                np.subtract.at(reduced, block.column, taken)
        return reduced, unit

    def _least_within_bounds(
        self,
        at: Positions | None,
        reduced: Whole,
        unit: Fraction,
        total: Fraction,
        low: Mapping[int, Bound],
        high: Mapping[int, Bound],
        kept: Sequence[tuple[Objective, Fraction]],
        sign: int = 1,
    ) -> Fraction | None:
        """``total`` plus (``sign``) the least of reduced costs of columns within the bounds; None: one is missing.

        ``at``: sorted columns; None: all. Missing bounds follow from rows, and from the objectives that are ``kept`` at
        most at their values.
        """
        p = self.program
        whole = p.integer_bounds
        if whole is not None and reduced.dtype != object and largest(reduced) * whole[2] * len(reduced) < SAFE:
            lower, upper = whole[:2] if at is None else (whole[0][at], whole[1][at])
            negative = np.minimum(reduced, 0)
            least: Fraction | int = int(negative @ upper) + int((reduced - negative) @ lower)
            for branched, bound, side in ((low, lower, 1), (high, upper, -1)):
                for c, limit in branched.items():
                    k = c if at is None else int(np.searchsorted(at, c))
                    if at is not None and (k == len(at) or at[k] != c):
                        continue
                    r, here = int(reduced[k]), int(bound[k])
                    if r * side > 0 and (limit - here) * side > 0:
                        least += r * (limit - here)
            return total + sign * least * unit
        at = np.arange(len(reduced)) if at is None else at
        for side in (0, 1):
            chosen = np.flatnonzero(reduced > 0 if side == 0 else reduced < 0)
            bounds, branched, pick = ((p.lower, low, max), (p.upper, high, min))[side]
            columns, values = at[chosen], reduced[chosen]
            if branched:
                own = np.isin(columns, list(branched))
                for c, r in zip(columns[own].tolist(), values[own].tolist(), strict=True):
                    limit = Fraction(branched[c])
                    if not bounds.missing[c]:
                        limit = pick(limit, bounds.at[c])
                    total += sign * r * unit * limit
                columns, values = columns[~own], values[~own]
            missing = bounds.missing[columns]
            if missing.any():
                implied = self.implied[side]
                if kept and not np.isfinite(implied[columns[missing]]).all():
                    implied = self._implied_with(kept)[side]
                if not np.isfinite(implied[columns[missing]]).all():
                    return None
                for c, r in zip(columns[missing].tolist(), values[missing].tolist(), strict=True):
                    total += sign * r * unit * Fraction(float(implied[c]))
                columns, values = columns[~missing], values[~missing]
            total += sign * dot(values, bounds.at.numbers[columns]) * unit * bounds.at.unit
        return total

    @cached_property
    def implied(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bounds of the columns that follow from rows, rounded outward; infinite where none does."""
        p = self.program
        low = np.where(p.lower.missing, -np.inf, np.nextafter(p.lower.at.floats, -np.inf))
        high = np.where(p.upper.missing, np.inf, np.nextafter(p.upper.at.floats, np.inf))
        return self._passed_on(low, high, ())

    def _implied_with(
        self, kept: Sequence[tuple[Objective, Fraction]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bounds that follow from rows and from objectives that keep their values."""
        key = tuple((id(objective), limit) for objective, limit in kept)
        if self._with is None or self._with[0] != key:
            low, high = self.implied
            self._with = key, self._passed_on(low.copy(), high.copy(), kept)
        return self._with[1]

    def _passed_on(
        self,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        kept: Sequence[tuple[Objective, Fraction]],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        p = self.program
        sides = []
        for objective, limit in kept:
            value = objective.sign * Exact(objective.value, objective.unit).floats
            rhs = np.array([to_float(limit - objective.sign * objective.constant * objective.unit)])
            sides.append((np.zeros(len(value), np.int64), objective.column, 1, value, rhs))
        for block in p.rows.values():
            value, rhs = Exact(block.value, block.unit).floats, Exact(block.rhs, block.unit).floats
            if block.relation in ("<=", "=="):
                sides.append((block.row, block.column, block.count, value, rhs))
            if block.relation in (">=", "=="):
                sides.append((block.row, block.column, block.count, -value, -rhs))
        for _ in range(_ROUNDS):
            before = int(np.isinf(low).sum() + np.isinf(high).sum())
            for side in sides:
                _pass_on(*side, low, high)
            if before == int(np.isinf(low).sum() + np.isinf(high).sum()):
                break
        return low, high


def _limits(
    branches: Iterable[Branch], low: Mapping[int, Bound] = {}, high: Mapping[int, Bound] = {}
) -> tuple[dict[int, Bound], dict[int, Bound]]:
    """Lower and upper bounds of columns: given ones, and branches on single columns."""
    low, high = dict(low), dict(high)
    for branch in branches:
        if branch.alone:
            column, side = int(branch.column[0]), branch.side
            if branch.upper:
                high[column] = min(high.get(column, side), side)
            else:
                low[column] = max(low.get(column, side), side)
    return low, high


def _only_before(leaf: Leaf) -> bool:
    """Whether a leaf has shared and completed multipliers, -1 of each earlier objective, bounds of columns, no more."""
    more = leaf.rows or leaf.earlier or leaf.derived or leaf.blocks or leaf.with_earlier
    return leaf.own == 1 and leaf.before == -1 and not more and all(branch.alone for branch in leaf.branches)


def _multiple(value: Fraction, unit: Fraction) -> int:
    """How often a unit goes into a multiple of it."""
    return value.numerator * unit.denominator // (value.denominator * unit.numerator)


def _most_often(columns: Positions) -> int:
    """How often the commonest column occurs: objectives that are added up may share columns."""
    return 1 if len(columns) < 2 else int(np.bincount(columns).max())


def _sum(a: Whole, b: Whole) -> Whole:
    wide = largest(a) + largest(b) >= SAFE
    return a.astype(object) + b if wide else a + b


def _pass_on(
    row: Positions,
    column: Positions,
    count: int,
    value: NDArray[np.float64],
    rhs: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> None:
    """Bound the columns that have none by rows ``value x <= rhs``; only missing bounds are changed."""
    least = np.where(value > 0, value * low[column], value * high[column])
    least[value == 0] = 0
    open_ = np.isinf(least)
    finite = np.where(open_, 0.0, least)
    sums = np.bincount(row, finite, count)
    size = np.bincount(row, np.abs(finite), count) + np.abs(rhs)
    others_open = np.bincount(row, open_, count)[row] - open_
    want = np.where(value > 0, np.isinf(high[column]), np.isinf(low[column])) & (others_open == 0) & (value != 0)
    k = np.flatnonzero(want)
    if not len(k):
        return
    room = rhs[row[k]] - (sums[row[k]] - finite[k]) + 1e-9 * (1 + size[row[k]])
    side = room / value[k]
    side = side + np.where(value[k] > 0, 1, -1) * 1e-9 * (1 + np.abs(side))
    up = value[k] > 0
    np.minimum.at(high, column[k][up], side[up])
    np.maximum.at(low, column[k][~up], side[~up])


def covers(paths: Sequence[Sequence[Branch]]) -> bool:
    """Whether every way to branch ends in exactly one path."""
    stack: list[tuple[list[Sequence[Branch]], int]] = [(list(paths), 0)]
    while stack:
        these, depth = stack.pop()
        if any(len(path) == depth for path in these):
            if len(these) != 1:
                return False
            continue
        if len({path[depth].what for path in these}) != 1:
            return False
        sides: dict[tuple[bool, int], list[Sequence[Branch]]] = {}
        for path in these:
            sides.setdefault((path[depth].upper, path[depth].side), []).append(path)
        below = [side for upper, side in sides if upper]
        above = [side for upper, side in sides if not upper]
        if not len(below) == len(above) == 1 or above[0] != below[0] + 1:
            return False
        stack += [(side, depth + 1) for side in sides.values()]
    return bool(paths)


def derive(
    checker: Checker, rows: Sequence[Derived], before: Sequence[tuple[Objective, Fraction]], done: int = 0
) -> int:
    """Find the sides of derived rows from number ``done`` on, as far as enough objectives are fixed."""
    for k in range(done, len(rows)):
        row = rows[k]
        if row.stage > len(before):
            return k
        cost = Objective(f"derived row {k}", row.column, row.value, 0, Fraction(1))
        kept = {o.name: (o, limit) for o, limit in before[: row.stage]}
        side = checker.bound(row.cases, cost, kept, row.stage, known=k)
        if side is None:
            raise ProofError(f"derived row {k} does not follow: a bound is missing")
        checker.derived.append((row, side))
    return len(rows)


def judge(
    program: ExactProgram,
    values: Exact | None,
    proof: Proof,
    claimed: str = "optimal",
    budget: Budget | None = None,
) -> Verdict:
    """What the data prove of an answer.

    ``values``: one for each column; None: there is said to be no answer. ``proof``: if it is empty, only the answer is
    judged. ``claimed``: ``optimal``, ``feasible``, ``infeasible`` or ``unbounded``. ``budget``: time for the proof; the
    answer itself is always judged, and objectives that are not reached have no bound.
    """
    checker = Checker(program, budget or Budget())
    checker.joins = any(leaf.with_earlier for leaves in proof.stages.values() for leaf in leaves)
    late = False
    if values is None:
        return _judge_none(checker, proof, claimed)
    checks = checker.violations(values)
    if not all(check.ok for check in checks):
        return Verdict("feasible", Certificate("feasible", False, tuple(checks), program.tolerance))
    exact = feasible = clean = all(not check.worst for check in checks)
    # What values within a tolerance leave of earlier objectives, in all; and the largest share of an optimum left open.
    given_up, loosest = Fraction(0), 0.0
    off = _AMPLIFIED * Fraction(max((check.worst for check in checks), default=0))
    if not feasible:
        checker.program, feasible = loosened(program, values)
    stages: list[StageVerdict] = []
    before: list[tuple[Objective, Fraction]] = []
    kept: dict[str, tuple[Objective, Fraction]] = {}
    done, reason = 0, ""
    tolerance = max(_CLOSE, Fraction(program.tolerance)) if program.tolerance else Fraction(0)
    for k, objective in enumerate(program.objectives):
        if k < len(stages):
            continue
        if clean and not reason:
            try:
                several = checker.optimal_together(k, proof.stages, values, before)
            except (ProofError, ArithmeticError, MemoryError):
                several = []  # what is wrong with it is said below
            if several:
                stages += several
                before += [(o, stage.limit) for o, stage in zip(program.objectives[k:], several, strict=False)]
                kept |= {o.name: (o, limit) for o, limit in before[k:]}
                if len(several) == 1:
                    checker.keep(objective, several[0].limit)
                continue
        value = checker.value(objective, values)
        bound: Fraction | None = None
        mine = objective.sign * value
        close = tolerance * (1 + abs(mine)) if tolerance else Fraction(0)
        attained, sharp = mine, feasible
        if not reason:
            try:
                done = derive(checker, proof.derived, before, done)
                leaves = proof.stages.get(objective.name, ())
                if objective.within and objective.name in proof.points:
                    attained, sharp = _attained(checker, objective, proof.points[objective.name], before)
                # An answer that is worse than this one obeys the bound anyway.
                best = min(mine, attained) + (0 if feasible and sharp else close)
                found = checker.bound(leaves, objective, kept, k, cutoff=best) if leaves else None
                bound = None if found is None else found + objective.sign * objective.constant * objective.unit
                reason = "" if leaves else "no proof is given"
                reason = reason or ("" if bound is not None else "a multiplier needs a bound that is missing")
                if k == 0 and not reason and checker.program is not program:
                    reason = _beyond(program, proof, best + _BEYOND * close, budget)
            except ProofError as error:
                reason, late = str(error), late or isinstance(error, OutOfTime)
            except (ArithmeticError, MemoryError) as error:
                reason = f"the proof cannot be computed: {error}"
        if clean and sharp and bound == mine == attained and not (reason or objective.within):  # exact, as it should be
            stages.append(StageVerdict(objective.name, value, value, True, limit=mine))
            before.append((objective, mine))
            kept[objective.name] = objective, mine
            checker.keep(objective, mine)
            if checker.joins and len(proof.stages.get(objective.name, ())) == 1:
                checker.keep_face(objective, mine)
            continue
        if bound is not None and bound > min(mine, attained) + close:
            # No answer can be better than a proven bound: only values within tolerances come here.
            short = to_float(bound - min(mine, attained))
            reason = f"the values lie {short:.3g} beyond the proven bound, within the tolerance of rows"
        # The optimum lies between the bound and what an answer attains; `limit` is convex.
        limits = [mine] if bound is None else [objective.limit(bound), objective.limit(attained)]
        near = max(close, min(_REACH * given_up, _LOOSE * (1 + abs(mine)))) if given_up else close
        tight = bound is not None and attained - bound <= near
        proven = tight and mine - min(limits) <= near and not reason
        if proven and bound is not None:
            loosest = max(loosest, to_float((attained - bound) / (1 + abs(mine))))
        if bound is not None and not proven and not reason:
            reason = (
                f"proven: {'at most' if objective.maximize else 'at least'} {to_float(objective.sign * bound):.10g}"
            )
        exact = exact and (not proven or (sharp and attained == bound and mine <= min(limits)))
        own = None if bound is None else objective.sign * min(bound, mine)
        given = max(mine - bound, Fraction(0)) if proven and bound is not None and objective.within else Fraction(0)
        # Values that satisfy rows within a tolerance only may be a little better than any answer.
        missed = close if objective.within else min(close, off * (1 + abs(mine)))
        slack = Fraction(0) if clean and sharp else missed
        top, given_up = max(*limits, mine) + slack, given_up + slack
        if step := checker.step(objective):
            base = objective.sign * objective.constant * objective.unit
            top = base + math.floor((top - base) / step) * step  # no answer has a value in between
        stages.append(StageVerdict(objective.name, value, own, proven, "" if proven else reason, given, top))
        before.append((objective, top))
        kept[objective.name] = objective, top
        checker.keep(objective, top)
        if len(proof.stages.get(objective.name, ())) == 1 and not reason:
            checker.keep_face(objective, top)
    checks += _stage_checks([stage for stage in stages if stage.proven or stage.bound is not None])
    first = stages[0] if stages else None
    claim: Claim = (
        "optimal" if all(s.proven for s in stages) else "bounded" if first and first.bound is not None else "feasible"
    )
    accepted = 0.0 if exact else max(float(_CLOSE), program.tolerance, loosest)
    return Verdict(claim, Certificate(claim, exact, tuple(checks), accepted), tuple(stages), late)


def loosened(program: ExactProgram, x: Exact) -> tuple[ExactProgram, bool]:
    """The problem with bounds and inequalities moved until values satisfy them, and whether nothing is broken then.

    It has all answers of the problem, so its bounds hold for these; and the values are one of its answers, so what they
    attain is what later objectives must keep, without a tolerance on top.
    """
    checker, rows = Checker(program), dict(program.rows)
    for name, block in program.rows.items():
        slack = None if block.relation == "==" else checker._slack(block, x)
        if slack is not None and (bad := np.flatnonzero(slack < 0)).size:
            sides, sign = block.rhs.astype(object) * _FINE, 1 if block.relation == "<=" else -1
            sides[bad] += [sign * math.ceil(-int(v) * x.unit * _FINE) for v in slack[bad].tolist()]
            rows[name] = replace(
                block, value=scaled(block.value, _FINE), rhs=narrow(sides.tolist()), unit=block.unit / _FINE
            )
    both = []
    for bounds, pick in ((program.lower, np.minimum), (program.upper, np.maximum)):
        unit = common_unit([bounds.at.unit, x.unit])
        side, mine = scaled(bounds.at.numbers, int(bounds.at.unit / unit)), scaled(x.numbers, int(x.unit / unit))
        inside = bounds.missing | (pick(side, mine) == side)
        both.append(bounds if inside.all() else replace(bounds, at=Exact(np.where(inside, side, mine), unit)))
    moved = replace(program, rows=rows, lower=both[0], upper=both[1])
    return moved, all(not check.worst for check in Checker(moved).violations(x))


def _beyond(program: ExactProgram, proof: Proof, limit: Fraction, budget: Budget | None) -> str:
    """Why values within a tolerance are too good: the first objective of the problem itself is above a limit.

    A tolerance on a column or row of tiny numbers may be worth any amount of an objective with large ones.
    """
    checker, first = Checker(program, budget or Budget()), program.objectives[0]
    derive(checker, proof.derived, [])
    found = checker.bound(proof.stages[first.name], first, {}, 0)
    if found is None or (short := found + first.sign * first.constant * first.unit - limit) <= 0:
        return ""
    return f"the values lie {to_float(short):.3g} too far beyond the proven bound, within the tolerance of rows"


def _attained(
    checker: Checker, objective: Objective, point: Exact, before: Sequence[tuple[Objective, Fraction]]
) -> tuple[Fraction, bool]:
    """What an answer of the proof attains of an objective, and whether it is one without any tolerance."""
    checks = checker.violations(point)
    if bad := next((check for check in checks if not check.ok), None):
        raise ProofError(f"the answer that attains {objective.name!r} is none: {bad.name}: {bad.detail}")
    exact = all(not check.worst for check in checks)
    for earlier, limit in before:
        over = earlier.sign * checker.value(earlier, point) - limit
        if over > (0 if exact else _CLOSE * (1 + abs(limit))):
            raise ProofError(f"the answer that attains {objective.name!r} gives up too much of {earlier.name!r}")
    return objective.sign * checker.value(objective, point), exact


def _stage_checks(stages: Iterable[StageVerdict]) -> Iterable[Check]:
    """One check for each objective, and one for all of ``name_1``, ``name_2``, ... that are optimal."""
    for alike, group in groupby(
        stages, lambda stage: stage.proven and not stage.given_away and _STEP.sub("", stage.name)
    ):
        these = [*group]
        if alike and len(these) > 2 and all(_STEP.search(stage.name) for stage in these):
            values = ((v, len([*times])) for v, times in groupby(f"{to_float(s.value):.12g}" for s in these))
            detail = ", ".join(v if n == 1 else f"{v} ({n} times)" for v, n in values)
            yield Check(f"objectives {these[0].name} to {these[-1].name}: optimal", True, 0, detail)
            continue
        for stage in these:
            given = (
                f", {to_float(stage.given_away):.6g} of it given away for later objectives" if stage.given_away else ""
            )
            value, name = f"{to_float(stage.value):.12g}", "optimal" if stage.proven else "bounded"
            detail = f"{value}{given}" if stage.proven else f"{value}; {stage.reason}"
            yield Check(f"objective {stage.name}: {name}", True, 0, detail)


def _judge_none(checker: Checker, proof: Proof, claimed: str) -> Verdict:
    claim: Claim = "infeasible" if claimed == "infeasible" else "unbounded"
    check = Check(f"the problem is {claimed}", True, detail="the solver says so; no proof is given", how="quoted")
    checks: list[Check] = [check]
    proven = late = False
    try:
        if claimed == "unbounded" and proof.ray:
            checks, proven = _unbounded_checks(checker, proof), True
        if claimed == "infeasible" and proof.empty:
            derive(checker, proof.derived, [])
            empty = checker.bound(proof.empty, None, {}, 0) is not None
            detail = f"{len(proof.empty)} leaves without an answer" if empty else "a leaf is not shown to be empty"
            checks, proven = [Check("no values satisfy all rows and bounds", empty, detail=detail)], True
    except OutOfTime as error:
        checks, late = [replace(check, detail=f"the solver says so; {error}")], True
    except (ProofError, ArithmeticError, MemoryError) as error:
        checks, proven = [Check("the proof can be computed", False, detail=str(error))], True
    return Verdict(claim, Certificate(claim, proven and all(check.ok for check in checks), tuple(checks)), (), late)


def _unbounded_checks(checker: Checker, proof: Proof) -> list[Check]:
    """An answer, and a ray that keeps rows and bounds and along which an objective improves, all without tolerance.

    Later objectives count among the optima of those before; a ray along which these stay the same keeps them.
    """
    p = checker.program
    point = Exact.of(proof.point) if proof.point else Exact(np.zeros(p.count, np.int64))
    checks = [
        Check(check.name, check.ok and not check.worst, check.worst, check.detail)
        for check in checker.violations(point)
    ]
    ray = Exact.of(proof.ray)
    if len(proof.ray) != p.count:
        return [*checks, Check("a ray with one number for each variable", False)]
    off = (~p.lower.missing & (ray.numbers < 0)) | (~p.upper.missing & (ray.numbers > 0))
    where = labelled(*p.column_text(int(np.argmax(off)))) if off.any() else ""
    for block in p.rows.values():
        slack = checker._slack(replace(block, rhs=block.rhs * 0), ray)
        if slack is None:
            where = where or f"{block.name}, which has too many numbers"
        elif (slack < 0).any():
            where = where or labelled(block.name, block.texts()[int(np.argmax(slack < 0))])
    checks.append(Check("the ray keeps every row and bound", not where, detail=where))
    gains = [(o.name, -o.sign * dot(o.value, ray.numbers[o.column]) * ray.unit * o.unit) for o in p.objectives]
    place = next((k for k, (_, gain) in enumerate(gains) if gain), len(gains))
    better = place < len(gains) and gains[place][1] > 0
    detail = f"{gains[place][0]} by {to_float(gains[place][1]):.6g} a step" if better else "no objective gets better"
    checks.append(Check("an objective improves along the ray, and none before it gets worse", better, detail=detail))
    return checks


def exact_values(values: NDArray[np.float64]) -> Exact:
    """Floats of a solver as exact numbers: integers where all are, else the binary numbers that they are."""
    if (values == np.rint(values)).all() and np.abs(values).max(initial=0) < 2.0**62:
        return Exact(values.astype(np.int64))
    return Exact.of_floats(values)
