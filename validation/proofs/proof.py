"""A proof: for each objective leaves that cover all answers, each with multipliers; rows that were derived on the way.

In files, multipliers are rationals by name and label of a row; a name may carry one ``default`` for all its labels.
Multipliers that several leaves share stand once, under ``shared``, by a name of their own; sums of variables that
several branches compare stand under ``sums``. One number for ``earlier`` counts for all objectives before. An
objective with the leaves of one listed before it gives that one's name instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
from pydantic import ValidationError

from flowlex.errors import FlowlexError
from flowlex.instances.input_errors import place_in, plain_reason
from flowlex.validation.proofs.exact_program import Exact, ExactProgram, Positions, Whole, narrow
from flowlex.validation.proofs.proof_document import FORMAT, BranchPart, DerivedPart, LeafPart, ProofDocument, RowsPart

#: Largest exponent of a decimal.
_DIGITS = 400
#: Largest integers of fractions, below the 4300 digits that Python reads and writes; longest text of a fraction.
_BITS, _LONGEST = 14_000, 8600


class ProofError(FlowlexError, ValueError):
    """A proof names what does not exist, or is no proof at all."""


@dataclass(frozen=True, eq=False)
class Branch:
    """``sum of values * x[columns] <= side`` (``upper``) or ``>= side``, over integer columns with integer values.

    ``multiplier``: of this row in the leaf, where there are several columns.
    """

    column: Positions
    value: Whole
    upper: bool
    side: int
    multiplier: Fraction = Fraction(0)

    @classmethod
    def single(cls, column: int, upper: bool, side: int) -> Branch:
        """A bound of one column."""
        return cls(np.array([column]), np.array([1]), upper, side)

    @property
    def alone(self) -> bool:
        """Whether it is a bound of one column."""
        return len(self.column) == 1 and self.value[0] == 1

    @property
    def what(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What is compared, as a key."""
        return tuple(self.column.tolist()), tuple(self.value.tolist())


@dataclass(frozen=True, eq=False)
class Leaf:
    """Answers that satisfy all branches, and multipliers that bound an objective over them.

    ``rows``: by name, one multiplier for each row of that name. ``shared``: more of them, of several leaves.
    ``complete``: names of rows whose multipliers the checker adds, the best ones, one name after the other.
    ``earlier``: of objectives before, at most 0 each; ``before``: of each of them, besides. ``derived``: of derived
    rows by number, at least 0 each. ``own``: of the objective itself; 0 if they show that the leaf is empty.
    ``blocks``: names of blocks whose columns are bounded by their copies (see `flowlex.validation.proofs.blocks`).
    ``with_earlier``: the leaves of earlier objectives count too, as often as the checker finds best; then multipliers
    may have the wrong sign where those set it right.
    """

    rows: Mapping[str, Exact] = field(default_factory=dict)
    earlier: Mapping[str, Fraction] = field(default_factory=dict)
    derived: Mapping[int, Fraction] = field(default_factory=dict)
    branches: tuple[Branch, ...] = ()
    own: Fraction | int = 1
    shared: Mapping[str, Exact] = field(default_factory=dict)
    complete: tuple[str, ...] = ()
    before: Fraction = Fraction(0)
    blocks: tuple[str, ...] = ()
    with_earlier: bool = False


@dataclass(frozen=True, eq=False)
class Derived:
    """A row ``sum of value * x[column] >= side`` that follows; the side is found by the checker.

    Each case bounds it over the answers of its branches, and the cases cover all answers (none: a combination of rows,
    rounded up if its columns are integer; two: a split). ``stage``: how many objectives are fixed where it holds.
    """

    column: Positions
    value: Whole
    cases: tuple[Leaf, ...]
    stage: int = 0


@dataclass(frozen=True, eq=False)
class Proof:
    """Leaves of each objective by name; or leaves that show that there is no answer; or a point and a ray."""

    stages: Mapping[str, tuple[Leaf, ...]] = field(default_factory=dict)
    derived: tuple[Derived, ...] = ()
    empty: tuple[Leaf, ...] = ()
    point: tuple[Fraction, ...] = ()
    ray: tuple[Fraction, ...] = ()
    #: Of objectives that later ones may worsen: answers at which they are optimal.
    points: Mapping[str, Exact] = field(default_factory=dict)


#: Adds to a proof what its file leaves out.
Completion: TypeAlias = Callable[[Proof], Proof]


# ---- as plain data


def to_document(proof: Proof, program: ExactProgram) -> dict[str, Any]:
    """The proof as plain data, in names and labels."""
    found: dict[str, Any] = {"format": FORMAT}
    together = (leaf for leaves in (*proof.stages.values(), proof.empty) for leaf in leaves if leaf.shared)
    shared = {id(rows): rows for rows in (leaf.shared for leaf in together)}
    names = {key: f"multipliers {k}" for k, key in enumerate(shared)}
    if shared:
        found["shared"] = {names[key]: _rows_out(rows, program) for key, rows in shared.items()}
    cases = (case for row in proof.derived for case in row.cases)
    every = (leaf for each in (*proof.stages.values(), proof.empty) for leaf in each)
    often = Counter(b.what for leaf in (*cases, *every) for b in leaf.branches if len(b.column) > 1)
    sums = {what: f"sum {k}" for k, what in enumerate(what for what, times in often.items() if times > 1)}
    if sums:
        found["sums"] = {name: _terms_out(np.array(c), np.array(v), program) for (c, v), name in sums.items()}
    if proof.stages:
        of: dict[int, str] = {}
        found["stages"] = {}
        for name, leaves in proof.stages.items():
            same = of.setdefault(id(leaves), name)
            found["stages"][name] = same if same != name else [_leaf_out(leaf, program, names, sums) for leaf in leaves]
    if proof.derived:
        found["derived"] = [
            {
                "row": _terms_out(d.column, d.value, program),
                "stage": d.stage,
                "cases": [_leaf_out(c, program, {}, sums) for c in d.cases],
            }
            for d in proof.derived
        ]
    if proof.points:
        found["points"] = {
            name: _vector_out([int(v) * x.unit for v in x.numbers.tolist()], program)
            for name, x in proof.points.items()
        }
    if proof.empty:
        found["empty"] = [_leaf_out(leaf, program, names, sums) for leaf in proof.empty]
    if proof.ray:
        found["point"] = _vector_out(proof.point, program)
        found["ray"] = _vector_out(proof.ray, program)
    return found


def _leaf_out(leaf: Leaf, program: ExactProgram, names: Mapping[int, str], sums: Mapping[Any, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rows := _rows_out(leaf.rows, program):
        found["rows"] = rows
    if leaf.shared:
        found["shared"] = names[id(leaf.shared)]
    if leaf.complete:
        found["complete"] = list(leaf.complete)
    if leaf.blocks:
        found["blocks"] = list(leaf.blocks)
    if leaf.with_earlier:
        found["with_earlier"] = True
    if leaf.before:
        found["earlier"] = number(leaf.before)
    elif leaf.earlier:
        found["earlier"] = {name: number(e) for name, e in leaf.earlier.items() if e}
    if leaf.derived:
        found["derived"] = {str(k): number(e) for k, e in leaf.derived.items() if e}
    if leaf.branches:
        found["branches"] = [
            {
                "row": sums.get(b.what) or _terms_out(b.column, b.value, program),
                "relation": "<=" if b.upper else ">=",
                "side": b.side,
                **({"multiplier": number(b.multiplier)} if b.multiplier else {}),
            }
            for b in leaf.branches
        ]
    if leaf.own != 1:
        found["own"] = number(Fraction(leaf.own))
    return found


def _rows_out(multipliers: Mapping[str, Exact], program: ExactProgram) -> dict[str, Any]:
    rows = {}
    for name, y in multipliers.items():
        numbers = y.numbers.tolist()
        if not any(numbers):
            continue
        common, times = Counter(numbers).most_common(1)[0]
        default = common if common and times > len(numbers) // 2 else 0
        texts = program.rows[name].written
        at = {texts[k]: number(v * y.unit) for k, v in enumerate(numbers) if v != default}
        rows[name] = {"default": number(default * y.unit), "at": at} if default else {"at": at}
    return rows


def number(value: Fraction) -> int | str:
    """A rational as an integer or as text."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _BITS:
        value = Fraction(float(value))  # no file holds more digits; what is judged is what the file says
    return int(value) if value.denominator == 1 else str(value)


def _terms_out(column: Positions, value: Whole, program: ExactProgram) -> list[list[Any]]:
    return [[*program.column_text(c), int(v)] for c, v in zip(column.tolist(), value.tolist(), strict=True)]


def _vector_out(values: Sequence[Fraction], program: ExactProgram) -> list[list[Any]]:
    return [[*program.column_text(c), number(v)] for c, v in enumerate(values) if v]


def from_document(document: Any, program: ExactProgram) -> Proof:
    """Read a proof; `ProofError` names what is wrong."""
    if isinstance(document, dict) and not document:
        return Proof()
    if isinstance(document, dict) and document.get("format") != FORMAT:
        raise ProofError(
            f"the proof has format {_shown(document.get('format'))}, this version reads {FORMAT}; solve again"
        )
    try:
        read = ProofDocument.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = place_in(("proof", *first["loc"]))[:120]
        raise ProofError(f"{where}: {plain_reason(first, value=False)[:120]}") from None
    order = [o.name for o in program.objectives]
    shared = {name: _rows_in(rows, program) for name, rows in read.shared.items()}
    common = _Common(shared, {name: _terms_in(row, program) for name, row in read.sums.items()})
    if odd := read.stages.keys() - set(order):
        raise ProofError(f"stages: no objective is named {_shown(sorted(odd)[0])}")
    derived = [_derived_in(each, k, program, common) for k, each in enumerate(read.derived)]
    place, found = {name: k for k, name in enumerate(order)}, dict[str, tuple[Leaf, ...]]()
    for name, leaves in read.stages.items():
        if isinstance(leaves, str) and leaves not in found:
            raise ProofError(f"stages {name!r}: {_shown(leaves)} is not listed before it")
        found[name] = (
            found[leaves]
            if isinstance(leaves, str)
            else tuple(_leaf_in(each, program, common, order[: place[name]]) for each in leaves)
        )
    return Proof(
        found,
        tuple(derived),
        tuple(_leaf_in(each, program, common, []) for each in read.empty),
        _vector_in(read.point, program),
        _vector_in(read.ray, program) if read.ray else (),
        {name: _exact(_vector_in(x, program)) for name, x in read.points.items()},
    )


def exact_answer(answer: Any, program: ExactProgram) -> Exact:
    """Values of all columns from values by variable and label.

    Raises `ValueError` naming what does not exist or is no number.
    """
    found: list[Fraction | int] = [0] * program.count
    if not isinstance(answer, dict):
        raise ProofError("the answer is no object")
    for variable, values in answer.items():
        block = program.column_blocks.get(variable)
        if block is None or not isinstance(values, dict):
            raise ProofError(f"values of {variable!r}, which does not exist"[:120])
        places = block.places
        for label, value in values.items():
            if label not in places:
                raise ProofError(f"a value of {variable}[{label}], which does not exist"[:120])
            found[places[label]] = rational(value)
    return Exact.of(found)


def _exact(values: Sequence[Fraction | int]) -> Exact:
    try:
        return Exact.of(values)
    except OverflowError as error:
        raise ProofError(str(error)) from error


@dataclass(frozen=True, eq=False)
class _Common:
    """What leaves of a document name: multipliers of rows, and sums of variables."""

    shared: Mapping[str, Mapping[str, Exact]]
    sums: Mapping[str, tuple[Positions, Whole]]


def _derived_in(each: DerivedPart, k: int, program: ExactProgram, common: _Common) -> Derived:
    column, value = _terms_in(each.row, program)
    if each.stage > len(program.objectives):
        raise ProofError(f"derived row {k}: stage {_shown(each.stage)} does not exist")
    before = [o.name for o in program.objectives[: each.stage]]
    return Derived(column, value, tuple(_leaf_in(case, program, common, before) for case in each.cases), each.stage)


def _leaf_in(each: LeafPart, program: ExactProgram, common: _Common, before: Sequence[str]) -> Leaf:
    """Read a leaf; ``before``: the objectives that come earlier."""
    own = rational(each.own)
    if own < 0:
        raise ProofError(f"a leaf's own is at least 0, got {_shown(each.own)}")
    if each.shared is not None and each.shared not in common.shared:
        raise ProofError(f"no shared multipliers are named {_shown(each.shared)}")
    for what, names, known in (("rows", each.complete, program.rows), ("blocks", each.blocks, program.blocks)):
        if odd := next((name for name in names if name not in known), None):
            raise ProofError(f"no {what} to complete or bound are named {_shown(odd)}")
    earlier, every = dict[str, Fraction](), Fraction(0)
    if isinstance(each.earlier, dict):
        if each.earlier and (unknown := each.earlier.keys() - set(before)):
            name = _shown(sorted(unknown)[0])
            raise ProofError(f"a multiplier of objective {name}, which does not exist before")
        earlier = {name: rational(v) for name, v in each.earlier.items()}
    else:
        every = rational(each.earlier)
    derived = {}
    for name, v in each.derived.items():
        if not name.isascii() or not name.isdigit() or len(name) > 9:
            raise ProofError(f"a multiplier of derived row {_shown(name)}, which does not exist")
        derived[int(name)] = rational(v)
    branches = tuple(_branch_in(branch, program, common) for branch in each.branches)
    rows, shared = _rows_in(each.rows, program), {} if each.shared is None else common.shared[each.shared]
    complete, blocks = tuple(each.complete), tuple(each.blocks)
    return Leaf(rows, earlier, derived, branches, own, shared, complete, every, blocks, each.with_earlier)


def _rows_in(parts: Mapping[str, RowsPart], program: ExactProgram) -> dict[str, Exact]:
    """Multipliers of rows by name and label."""
    rows = {}
    for name, given in parts.items():
        block, at = program.rows.get(name), given.at
        if block is None:
            raise ProofError(f"a multiplier of rows {_shown(name)}, which do not exist")
        if block.runs is not None:
            place, key = block.runs(list(at))
            if len(np.unique(place)) < len(place):
                raise ProofError(f"two multipliers of one of the rows {name!r}")
        else:
            if odd := at.keys() - block.places.keys():
                raise ProofError(f"a multiplier of row {name}[{_shown(sorted(odd)[0])}], which does not exist")
            place, key = np.array([block.places[text] for text in at], np.int64), np.arange(len(at))
        both = (given.default, *at.values())
        if all(type(v) is int and -(2**62) < v < 2**62 for v in both):
            exact = Exact(np.array(both, np.int64))
        elif all(type(v) is float and isfinite(v) if v else type(v) in (int, float) for v in both):
            exact = Exact.of_floats(np.array(both, np.float64))  # the binary numbers that they are
        else:
            exact = _exact([rational(v) for v in both])
        numbers = np.full(block.count, exact.numbers[0], exact.numbers.dtype)
        numbers[place] = exact.numbers[1:][key]
        rows[name] = Exact(numbers, exact.unit)
    return rows


def _branch_in(each: BranchPart, program: ExactProgram, common: _Common) -> Branch:
    if isinstance(each.row, str) and each.row not in common.sums:
        raise ProofError(f"a branch: no sum is named {_shown(each.row)}")
    column, value = common.sums[each.row] if isinstance(each.row, str) else _terms_in(each.row, program)
    side = rational(each.side)
    if side.denominator != 1:
        raise ProofError(f"the side of a branch is an integer, got {_shown(each.side)}")
    return Branch(column, value, each.relation == "<=", int(side), rational(each.multiplier))


def _terms_in(terms: Sequence[Any], program: ExactProgram) -> tuple[Positions, Whole]:
    columns, values = [], []
    for term in terms:
        column, value = _term_in(term, program)
        if value.denominator != 1:
            raise ProofError(f"coefficients of derived rows and branches are integers, got {_shown(term)}")
        columns.append(column)
        values.append(int(value))
    if len(set(columns)) != len(columns):
        raise ProofError("a row names a variable twice")
    return np.array(columns, np.int64), narrow(values)


def _term_in(term: Any, program: ExactProgram) -> tuple[int, Fraction]:
    if not isinstance(term, list) or len(term) != 3 or not isinstance(term[0], str) or not isinstance(term[1], str):
        raise ProofError(f"expected [variable, label, number], got {_shown(term)}")
    block = program.column_blocks.get(term[0])
    places = {} if block is None else block.places
    if term[1] not in places:
        raise ProofError(f"no variable {term[0]}[{term[1]}] exists"[:120])
    return places[term[1]], rational(term[2])


def _vector_in(terms: Sequence[Any], program: ExactProgram) -> tuple[Fraction, ...]:
    found = [Fraction(0)] * program.count
    for term in terms:
        column, value = _term_in(term, program)
        found[column] = value
    return tuple(found)


def rational(value: Any) -> Fraction:
    """An exact number of a document: an integer, a decimal or a fraction's text, of bounded length."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ProofError(f"expected a number, got {_shown(value)}")
    if isinstance(value, int):
        if value.bit_length() > _BITS:
            raise ProofError("a number has too many digits")
        return Fraction(value)
    text = value if isinstance(value, str) else repr(value)
    whole, slash, below = text.partition("/")
    if (
        len(text) > _LONGEST
        or not _plain_decimal(whole)
        or (slash and not (below.isascii() and below.isdigit() and int(below)))
    ):
        raise ProofError(f"expected a number such as 12, 1.5 or 3/2, got {_shown(value)}")
    return Fraction(whole) / int(below) if slash else Fraction(whole)


def _plain_decimal(text: str) -> bool:
    digits, _, power = text.lower().partition("e")
    return (
        text.isascii()
        and digits.lstrip("-").replace(".", "", 1).isdigit()
        and digits.count("-") <= 1
        and (
            "e" not in text.lower() or (power.lstrip("+-").isdigit() and len(power) <= 4 and abs(int(power)) <= _DIGITS)
        )
    )


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # too many digits, too deep
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
