"""Integer declarations that follow from the others, with a proof: the answer of `search.implied_integers`.

The argument. Keep the declarations of some columns K and drop the others. Two kinds of columns are still integral:

* *determined*: a column x with an equation x + (integral combination of kept or determined columns) = integer;
* the *block*: columns T whose rows hold, besides T, only kept and determined columns. With K fixed at integers the
  block's rows say l <= B x_T <= u with integral l, u. If B is totally unimodular and the bounds of T are integral,
  every vertex has x_T integral. The other rows do not mention T, so the rest of the program does not matter.

So for a linear objective the program without the declarations of T and of the determined columns has the same
optimum, at a point where they are integral. Rows are read up to a constant factor: each is divided by its content.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import Any

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.json_documents import read, write
from flowlex.validation.unimodularity.matrix_adapters import matrix_of
from flowlex.validation.unimodularity.named_matrix import NamedMatrix, Program, canonical, exact, fingerprint
from flowlex.validation.unimodularity.proof_checks import Judged, Standing, judged, require
from flowlex.validation.unimodularity.proof_types import (
    Certificate,
    VerdictError,
    describe_certificate,
    listed,
)
from flowlex.validation.unimodularity.verify_proof import check_certificate


@dataclass(frozen=True)
class ImpliedIntegers:
    """Integer declarations that can be dropped, and why.

    Attributes
    ----------
    declared
        How many columns are declared integer.
    dropped, dropped_names
        Columns whose declarations follow from the others.
    block_rows, block_columns
        The block; its columns may be continuous ones as well.
    certificate
        Proof that the block's matrix is totally unimodular; None without a block.
    determined
        (column, row of the equation), in the order in which they follow.
    fingerprint
        Fingerprint of the whole program.
    note
        Why no search was possible; empty otherwise.
    """

    declared: int
    dropped: tuple[int, ...]
    dropped_names: tuple[str, ...]
    block_rows: tuple[int, ...]
    block_row_names: tuple[str, ...]
    block_columns: tuple[int, ...]
    certificate: Certificate | None
    determined: tuple[tuple[int, int], ...]
    fingerprint: str
    seconds: float
    note: str = ""

    def __str__(self) -> str:
        share = f"{len(self.dropped)} of {self.declared} integer declarations follow from the others"
        lines = [f"{share} ({self.seconds:.3f} s)"]
        if self.dropped:
            lines.append("droppable: " + _by_family(self.dropped_names))
        if self.certificate is not None:
            lines.append("in the rows: " + _by_family(self.block_row_names))
            lines.append("proof: " + describe_certificate(self.certificate))
        if self.determined:
            lines.append(f"determined by an equation: {len(self.determined)}")
        return "\n".join([*lines, self.note] if self.note else lines)

    def verify(self, source: Any) -> bool:
        """Re-check the proof against the program."""
        return self.error(source) == ""

    def error(self, source: Any) -> str:
        """Return why the proof does not hold for this program; empty when it holds."""
        return next((one.detail for one in self.judge(source) if one.standing is Standing.REFUSED), "")

    def judge(self, source: Any) -> tuple[Judged, ...]:
        """Judge what the proof states of this program: proven, refused, or only reported."""
        named = matrix_of(source)
        return (
            judged("implied integers", lambda: _check(named, self)),
            Judged("seconds", Standing.REPORTED, "how long the search took; nothing rests on it"),
        )

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document."""
        return dict(write(self))

    @staticmethod
    def from_json(text: str) -> ImpliedIntegers:
        """Read the text of `to_document`.

        Raises `VerdictError` if it is something else.
        """
        try:
            return read(ImpliedIntegers, json.loads(text))
        except (ValueError, RecursionError) as error:
            reason = f"no list of implied integers ({error}); write one with `flowlex integers --json`"
            raise VerdictError(reason) from error


def program_fingerprint(named: NamedMatrix) -> str:
    """Hash of matrix, sides, bounds, integer declarations and kind of objective."""
    program = program_of(named)
    digest = hashlib.sha256(fingerprint(named.matrix).encode())
    for array in (program.sides, program.bounds, program.integer):
        digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    digest.update(program.nonlinear.encode())
    return digest.hexdigest()[:32]


def note_of(program: Program) -> str:
    """Why no search is possible; empty if one is."""
    return f"{program.nonlinear}, so nothing follows from vertices" if program.nonlinear else ""


def program_of(named: NamedMatrix) -> Program:
    """The program of a matrix; for a bare matrix A, A x <= b with integers x >= 0 and any integral b.

    A proof uses only whether a side is integral, so 0 stands for any integral side.
    """
    if named.program is not None:
        return named.program
    rows, columns = named.shape
    sides = np.stack([np.full(rows, -np.inf), np.zeros(rows)])
    bounds = np.stack([np.zeros(columns), np.full(columns, np.inf)])
    return Program(sides, bounds, np.ones(columns, dtype=bool), np.zeros(columns))


def _by_family(names: tuple[str, ...]) -> str:
    counted: dict[str, int] = {}
    for name in names:
        family = name.partition("[")[0]
        counted[family] = counted.get(family, 0) + 1
    if len(counted) > 12:
        return listed(names)
    return ", ".join(f"{family} x {count}" if count > 1 else family for family, count in counted.items())


def _check(named: NamedMatrix, said: ImpliedIntegers) -> None:
    program = program_of(named)
    require(said.fingerprint == program_fingerprint(named), "this is another program")
    require(not program.nonlinear or not said.dropped, f"nothing follows, as {program.nonlinear}")
    require(said.note == note_of(program), f"the note should read {note_of(program)!r}")
    require(said.declared == int(program.integer.sum()), f"{int(program.integer.sum())} columns are declared integer")
    dropped, block = set(said.dropped), set(said.block_columns)
    integer = set(np.flatnonzero(program.integer).tolist())
    require(dropped <= integer and len(dropped) == len(said.dropped), "a column dropped is not declared integer")
    require(said.dropped_names == named.names_of_columns(said.dropped), "the columns have other names")
    require(said.block_row_names == named.names_of_rows(said.block_rows), "the rows have other names")
    require(dropped <= block | {column for column, _ in said.determined}, "a column dropped is not accounted for")
    fixed = integer - dropped
    by_row = named.matrix.tocsr()
    for column, row in said.determined:
        require(column in dropped and column not in block and column not in fixed, f"column {column} is named twice")
        line, sides = _normal(by_row, program, row)
        require(sides[0] == sides[1] and line.get(column) in (1, -1), f"row {row} does not determine column {column}")
        require(line.keys() - {column} <= fixed, f"row {row} has columns that are not known to be integral")
        fixed.add(column)
    if not block:
        require(not said.block_rows, "a block without columns has no rows")
        return
    require(not block & fixed, "a column of the block is kept as well")
    _check_block(named, program, said, fixed)


def _check_block(named: NamedMatrix, program: Program, said: ImpliedIntegers, fixed: set[int]) -> None:
    block = set(said.block_columns)
    by_row, place = named.matrix.tocsr(), {column: number for number, column in enumerate(said.block_columns)}
    require(len(place) == len(said.block_columns), "a column of the block is named twice")
    touched = np.unique(named.matrix[:, list(said.block_columns)].indices)
    require(sorted(said.block_rows) == touched.tolist(), "the block's rows are not those of its columns")
    bounds = program.bounds[:, list(said.block_columns)]
    require(bool(np.all(~np.isfinite(bounds) | (bounds == np.rint(bounds)))), "a bound of the block is not integral")
    entries: list[tuple[int, int, int]] = []
    for number, row in enumerate(said.block_rows):
        line, _ = _normal(by_row, program, row)
        require(line.keys() - block <= fixed, f"row {row} has columns that are not known to be integral")
        entries += [(number, place[column], value) for column, value in line.items() if column in block]
    table = np.array(entries, dtype=np.int64)
    shape = (len(said.block_rows), len(said.block_columns))
    require(said.certificate is not None, "the block has no certificate")
    assert said.certificate is not None
    check_certificate(canonical(sp.csc_array((table[:, 2], (table[:, 0], table[:, 1])), shape=shape)), said.certificate)


def _normal(by_row: Any, program: Program, row: int) -> tuple[dict[int, int], list[int | None]]:
    """A row divided by its content: integral entries by column, and its sides, which must be integral."""
    part = slice(int(by_row.indptr[row]), int(by_row.indptr[row + 1]))
    values = [Fraction(exact(value)) for value in by_row.data[part]]
    content = Fraction(gcd(*(v.numerator for v in values)), lcm(*(v.denominator for v in values)))
    sides: list[int | None] = []
    for side in program.sides[:, row]:
        ratio = Fraction(exact(side)) / content if np.isfinite(side) else None
        require(ratio is None or ratio.denominator == 1, f"a side of row {row} is not integral")
        sides.append(None if ratio is None else int(ratio))
    return {
        column: int(value / content) for column, value in zip(by_row.indices[part].tolist(), values, strict=True)
    }, sides
