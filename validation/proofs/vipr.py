"""A proof as files of the VIPR format, whose checker (no line of ours) can judge it: one file for each objective.

Objectives before are rows of the file, at the values that the answer gives them. Every leaf becomes a sum of rows,
bounds and assumed branches; two leaves of one branching become one line without the assumption.
Source: Cheung, Gleixner and Steffy 2017; format 1.0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from flowlex.errors import FlowlexError
from flowlex.formulations.language.statement import Statement
from flowlex.validation.proofs.checker import Checker, covers, judge
from flowlex.validation.proofs.exact_program import Exact, ExactProgram, Objective
from flowlex.validation.proofs.own_statement import exact_program
from flowlex.validation.proofs.proof import Branch, Leaf, Proof, exact_answer, from_document

#: Coefficients by column.
Terms: TypeAlias = dict[int, Fraction]


class ViprError(FlowlexError, ValueError):
    """A proof that the format cannot state, and why."""


def vipr_files(program: ExactProgram, values: Exact | None, proof: Proof) -> dict[str, str]:
    """The text of a file for each objective with a proof, by its name; of a problem without an answer under ``""``.

    Raises `ViprError`: the proof does not hold, or rests on what the format cannot state.
    """
    if values is None:
        if not proof.empty or judge(program, None, proof, "infeasible").claim != "infeasible":
            raise ViprError("nothing that a VIPR file can state is proven: neither a bound nor that there is no answer")
        return {"": _File(program, proof, None, []).text(None)}
    verdict = judge(program, values, proof)
    before: list[tuple[Objective, Fraction]] = []
    found = {}
    for objective, stage in zip(program.objectives, verdict.stages, strict=False):
        if stage.bound is None:
            break
        found[objective.name] = _File(program, proof, objective, before).text(values)
        before.append((objective, stage.limit))
    if not found:
        raise ViprError("no bound is proven that a VIPR file could state")
    return found


def vipr_of_document(document: Mapping[str, Any], problem: Statement) -> dict[str, str]:
    """The files for answer and proof of a solution file; the problem has all changes. Raises as `vipr_files`."""
    program = exact_program(problem)
    values = exact_answer(document["answer"], program) if document["status"] in ("optimal", "feasible") else None
    return vipr_files(program, values, from_document(document["proof"], program))


@dataclass(eq=False)
class _File:
    """The problem of one objective (None: of none), and the lines that are derived so far."""

    program: ExactProgram
    proof: Proof
    objective: Objective | None
    before: Sequence[tuple[Objective, Fraction]]
    constraints: list[str] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)
    #: Number of the constraint that is a lower (0) or upper (1) bound of a column, and the bound.
    bounds: dict[tuple[int, int], tuple[int, Fraction]] = field(default_factory=dict)
    #: Of each block the numbers of its rows; of objectives before theirs; of derived rows theirs, with side.
    rows: dict[str, list[int]] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    cuts: dict[int, tuple[int, Fraction]] = field(default_factory=dict)
    terms: dict[int, Terms] = field(default_factory=dict)
    sides: dict[int, tuple[str, Fraction]] = field(default_factory=dict)
    #: Whether the bounds that follow from rows are derived already.
    _implied: bool = False

    def text(self, values: Exact | None) -> str:
        """The file."""
        p, objective = self.program, self.objective
        cost = {} if objective is None else _cost(objective)
        self._state()
        count, bound_count = len(self.constraints), len(self.bounds)
        for k, row in enumerate(self.proof.derived):
            if row.stage <= len(self.before):
                terms = {int(c): Fraction(int(v)) for c, v in zip(row.column.tolist(), row.value.tolist(), strict=True)}
                self.cuts[k] = self._covering(row.cases, terms)
        if objective is None:
            self._covering(self.proof.empty, {})
            claim, solutions = "RTP infeas", "SOL 0"
        else:
            number, bound = self._covering(self.proof.stages[objective.name], cost)
            own = {c: v * objective.sign for c, v in cost.items()}
            self._line(
                "G" if objective.sign > 0 else "L", objective.sign * bound, own, f"lin 1 {number} {objective.sign}"
            )
            claim, solutions = self._claim(objective, objective.sign * bound, values)
        stated = [] if objective is None else [f"{c} {v * objective.sign}" for c, v in sorted(cost.items())]
        names = [_word("{}[{}]".format(*p.column_text(c))) for c in range(p.count)]
        integer = np.flatnonzero(p.integer).tolist()
        constant = Fraction(0) if objective is None else objective.constant * objective.unit
        title = "no answer" if objective is None else f"objective {objective.name!r}, without its constant {constant}"
        return "\n".join([
            f"% {' '.join(title.split())}", "VER 1.0", f"VAR {p.count}", *names, f"INT {len(integer)}",
            " ".join(map(str, integer)), f"OBJ {'max' if objective is not None and objective.maximize else 'min'}",
            " ".join([str(len(stated)), *stated]), f"CON {count} {bound_count}", *self.constraints, claim, solutions,
            f"DER {len(self.derived)}", *self.derived, "",
        ])  # fmt: skip

    def _claim(self, objective: Objective, bound: Fraction, values: Exact | None) -> tuple[str, str]:
        """The relation to prove, and the answer if it satisfies everything exactly."""
        p = self.program
        assert values is not None
        exact = all(check.ok and not check.worst for check in Checker(p).violations(values))
        for before, limit in self.before:
            exact = exact and before.sign * Checker(p).value(before, values) <= limit
        side = "inf" if objective.sign > 0 else "-inf"
        solution = "SOL 0"
        if exact:
            side = str(Checker(p).value(objective, values) - objective.constant * objective.unit)
            used = np.flatnonzero(values.numbers).tolist()
            solution = "\n".join(["SOL 1", " ".join(["answer", str(len(used)), *(f"{c} {values[c]}" for c in used)])])
        return f"RTP range {bound} {side}" if objective.sign > 0 else f"RTP range {side} {bound}", solution

    # ---- the problem

    def _state(self) -> None:
        """Bounds first, then rows, then the objectives before."""
        p = self.program
        for side, bounds in ((0, p.lower), (1, p.upper)):
            for c in np.flatnonzero(~bounds.missing).tolist():
                self.bounds[c, side] = self._constraint("GL"[side], bounds.at[c], {c: Fraction(1)}), bounds.at[c]
        for block in p.rows.values():
            each: list[Terms] = [{} for _ in range(block.count)]
            for r, c, v in zip(block.row.tolist(), block.column.tolist(), block.value.tolist(), strict=True):
                each[r][c] = each[r].get(c, Fraction(0)) + int(v) * block.unit
            sense = {"<=": "L", ">=": "G", "==": "E"}[block.relation]
            self.rows[block.name] = [
                self._constraint(sense, int(v) * block.unit, terms)
                for v, terms in zip(block.rhs.tolist(), each, strict=True)
            ]
        for objective, limit in self.before:
            most = limit - objective.sign * objective.constant * objective.unit
            self.kept[objective.name] = self._constraint("L", most, _cost(objective))

    def _constraint(self, sense: str, side: Fraction, terms: Terms) -> int:
        number = len(self.constraints)
        self._remember(number, sense, side, terms)
        self.constraints.append(f"C{number} {sense} {side} {_written(terms)}")
        return number

    def _remember(self, number: int, sense: str, side: Fraction, terms: Terms) -> None:
        self.terms[number] = {c: v for c, v in terms.items() if v}
        self.sides[number] = sense, side

    def _line(self, sense: str, side: Fraction, terms: Terms, reason: str) -> int:
        number = len(self.constraints) + len(self.derived)
        self._remember(number, sense, side, terms)
        self.derived.append(f"D{number} {sense} {side} {_written(terms)} {{ {reason} }} -1")
        return number

    # ---- the proof

    def _covering(self, leaves: Sequence[Leaf], cost: Terms) -> tuple[int, Fraction]:
        """Derive ``cost >= side`` over leaves that cover all answers; its number and side, rounded up if it may be."""
        if not covers([leaf.branches for leaf in leaves]):
            raise ViprError("the leaves do not cover all answers")
        number, side = self._split(list(leaves), 0, {}, cost)
        if not cost or not all(self.program.integer[c] for c in cost):
            return number, side
        step = Fraction(
            math.gcd(*(v.numerator for v in cost.values())), math.lcm(*(v.denominator for v in cost.values()))
        )
        steps = math.ceil(side / step)
        if steps * step == side or self._absurd(number):
            return number, side
        whole = {c: v / step for c, v in cost.items()}
        rounded = self._line("G", Fraction(steps), whole, f"rnd 1 {number} {1 / step}")
        return self._line("G", steps * step, cost, f"lin 1 {rounded} {step}"), steps * step

    def _absurd(self, number: int) -> bool:
        return not self.terms[number] and self.sides[number][1] > 0

    def _split(
        self, leaves: list[Leaf], depth: int, assumed: Mapping[int, tuple[int, Branch]], cost: Terms
    ) -> tuple[int, Fraction]:
        """Derive the bound of some leaves that share their first branches, which are ``assumed`` by number."""
        if depth > 500:
            raise ViprError("the tree of the proof is deeper than 500 branches")
        if len(leaves) == 1 and len(leaves[0].branches) == depth:
            return self._leaf(leaves[0], [assumed[k] for k in range(depth)], cost)
        sides = {}
        for upper in (True, False):
            mine = [leaf for leaf in leaves if leaf.branches[depth].upper == upper]
            branch = mine[0].branches[depth]
            terms = {c: Fraction(int(v)) for c, v in zip(branch.column.tolist(), branch.value.tolist(), strict=True)}
            asm = self._line("L" if upper else "G", Fraction(branch.side), terms, "asm")
            sides[upper] = asm, *self._split(mine, depth + 1, {**assumed, depth: (asm, branch)}, cost)
        (below, one, a), (above, two, b) = sides[True], sides[False]
        reason = f"uns {one} {below} {two} {above}"
        if self._absurd(one) and self._absurd(two):
            return self._line("G", Fraction(1), {}, reason), Fraction(1)
        side = b if self._absurd(one) else a if self._absurd(two) else min(a, b)
        return self._line("G", side, cost, reason), side

    def _leaf(self, leaf: Leaf, assumed: Sequence[tuple[int, Branch]], cost: Terms) -> tuple[int, Fraction]:
        """Derive the bound of one leaf from its multipliers and the bounds of the columns that they leave a cost."""
        if leaf.complete:
            raise ViprError("the checker completes multipliers of this proof; a VIPR file must state them all")
        bounds = dict(self.bounds)
        for number, branch in assumed:
            if branch.alone:
                key = int(branch.column[0]), int(branch.upper)
                old = bounds.get(key)
                if old is None or (branch.side < old[1]) == branch.upper:
                    bounds[key] = number, Fraction(branch.side)
        for (column, side), (number, low) in bounds.items():
            high = bounds.get((column, 1))
            if side == 0 and high is not None and low > high[1]:
                gap = low - high[1]
                return self._line("G", Fraction(1), {}, f"lin 2 {number} {1 / gap} {high[0]} {-1 / gap}"), Fraction(1)
        used: dict[int, Fraction] = {}
        for each in (leaf.rows, leaf.shared):
            for name, y in each.items():
                for k in np.flatnonzero(y.numbers).tolist():
                    number = self.rows[name][k]
                    used[number] = used.get(number, Fraction(0)) + y[k]
        for name, e in leaf.earlier.items():
            used[self.kept[name]] = Fraction(e)
        for k, e in leaf.derived.items():
            if e and self.terms[self.cuts[k][0]]:
                used[self.cuts[k][0]] = used.get(self.cuts[k][0], Fraction(0)) + e
        for number, branch in assumed:
            if not branch.alone and branch.multiplier:
                used[number] = Fraction(branch.multiplier)
        own = Fraction(leaf.own)
        rest = {c: own * v for c, v in cost.items()}
        total = Fraction(0)
        for number, times in used.items():
            total += times * self.sides[number][1]
            for c, v in self.terms[number].items():
                rest[c] = rest.get(c, Fraction(0)) - times * v
        for c, v in sorted(rest.items()):
            if v:
                number, limit = self._bound(c, int(v < 0), bounds)
                used[number] = used.get(number, Fraction(0)) + v
                total += v * limit
        if not own:
            if total <= 0:
                raise ViprError("a leaf is not shown to be empty")
            return self._sum(Fraction(1), {}, used, total), Fraction(1)
        return self._sum(total / own, cost, used, own), total / own

    def _sum(self, side: Fraction, terms: Terms, used: Mapping[int, Fraction], by: Fraction) -> int:
        stated = [f"{number} {times / by}" for number, times in sorted(used.items()) if times]
        return self._line("G", side, terms, " ".join(["lin", str(len(stated)), *stated]))

    def _bound(
        self, column: int, side: int, bounds: dict[tuple[int, int], tuple[int, Fraction]]
    ) -> tuple[int, Fraction]:
        """A bound of a column; one that is missing is derived from a row whose other columns have bounds."""
        if (column, side) not in bounds:
            self._derive_bounds()
            if (column, side) not in self.bounds:
                name = "{}[{}]".format(*self.program.column_text(column))
                raise ViprError(
                    f"the proof uses a bound of {name} that follows from the objective; a file cannot say so"
                )
            bounds[column, side] = self.bounds[column, side]
        return bounds[column, side]

    def _derive_bounds(self) -> None:
        """Derive bounds that follow from rows, one after the other."""
        if self._implied:
            return
        self._implied = True
        numbers = [*(k for rows in self.rows.values() for k in rows), *self.kept.values()]
        changed = True
        while changed:
            changed = False
            for number in numbers:
                sense, rhs = self.sides[number]
                for sign in (1, -1) if sense == "E" else (1,) if sense == "G" else (-1,):
                    changed |= self._from_row(number, sign, rhs)

    def _from_row(self, number: int, sign: int, rhs: Fraction) -> bool:
        """Bounds from ``sign * row >= sign * rhs``, where all other columns are bounded from above in it."""
        terms = {c: sign * v for c, v in self.terms[number].items()}
        open_ = [c for c, v in terms.items() if (c, int(v > 0)) not in self.bounds]
        if len(open_) > 1:
            return False
        found = False
        for column in open_ or list(terms):
            value = terms[column]
            key = column, int(value < 0)
            if key in self.bounds:
                continue
            side, used = sign * rhs, {number: sign / abs(value)}
            for c, v in terms.items():
                if c != column:
                    k, limit = self.bounds[c, int(v > 0)]
                    side -= v * limit
                    used[k] = used.get(k, Fraction(0)) - v / abs(value)
            # value * x >= side: divided by |value| it is a bound, an upper one after a change of sign.
            times = {k: (u if value > 0 else -u) for k, u in used.items()}
            stated = " ".join(f"{k} {u}" for k, u in sorted(times.items()) if u)
            reason = f"lin {sum(bool(u) for u in times.values())} {stated}"
            line = self._line("GL"[key[1]], side / value, {column: Fraction(1)}, reason)
            self.bounds[key] = line, side / value
            found = True
        return found


def _cost(objective: Objective) -> Terms:
    """Coefficients of the objective as a minimisation."""
    found: Terms = {}
    for c, v in zip(objective.column.tolist(), objective.value.tolist(), strict=True):
        found[c] = found.get(c, Fraction(0)) + objective.sign * int(v) * objective.unit
    return {c: v for c, v in found.items() if v}


def _written(terms: Terms) -> str:
    used = sorted((c, v) for c, v in terms.items() if v)
    return " ".join([str(len(used)), *(f"{c} {v}" for c, v in used)])


def _word(name: str) -> str:
    return "_".join(name.split()) or "_"
