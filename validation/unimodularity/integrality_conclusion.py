"""What a verdict means for the program: computed from proven answers and the program's data, never read from a file.

Total unimodularity concerns vertices. So every conclusion checks whether the property is proven, the polyhedron has
vertices, the program's own sides and bounds are integral, and some optimum is a vertex (the objective is linear).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np

from flowlex.validation.unimodularity.named_matrix import LeftOut, NamedMatrix, exact
from flowlex.validation.unimodularity.proof_types import Answer, Number, Step, listed

#: Columns and the amounts by which they move along a line.
Line = tuple[tuple[int, int], ...]


def conclude(
    named: NamedMatrix,
    answer: Answer,
    scaled: tuple[Mapping[int, Number], Answer] | None,
    senses: Answer | None,
    line: Line | None = None,
    steps: Iterable[Step] = (),
) -> str:
    """Return what follows for this program, in words.

    ``named``: the matrix with what is known of its program.
    ``answer``: of the matrix as given.
    ``scaled``: divisors of rows, and the answer for the divided matrix.
    ``senses``: whether the rows' senses make it unimodular (`senses.Senses`), where that was looked at.
    ``line``: a line of the polyhedron: then it has no vertices.
    ``steps``: what was tried, for the advice when nothing was decided.
    """
    parts = [_left_out(named), _no_vertices(named, line), _follows(named, answer, scaled, senses, line)]
    if answer is Answer.UNDECIDED and not parts[-1]:
        tried = ", ".join(dict.fromkeys(step.name for step in steps)) or "nothing"
        parts.append(f"Total unimodularity was not decided; tried: {tried}. Try a longer time limit.")
    return " ".join(part for part in parts if part)


def _left_out(named: NamedMatrix) -> str:
    left_out = LeftOut() if named.program is None else named.program.left_out
    parts = [f"{left_out.rows} free row(s) left out"] if left_out.rows else []
    parts += [f"{left_out.columns} fixed column(s) taken as constants"] if left_out.columns else []
    return f"({'; '.join(parts)}.)" if parts else ""


def _no_vertices(named: NamedMatrix, line: Line | None) -> str:
    if line is None:
        return ""
    names = named.names_of_columns([column for column, _ in line])
    moves = listed(tuple(f"{name} by {value}" for name, (_, value) in zip(names, line, strict=True)))
    return f"The polyhedron has no vertices, since it contains every line that moves {moves}."


def _follows(
    named: NamedMatrix,
    answer: Answer,
    scaled: tuple[Mapping[int, Number], Answer] | None,
    senses: Answer | None,
    line: Line | None,
) -> str:
    what = "every vertex is integral" if line is None else "every minimal face holds an integral point"
    if answer is Answer.TU:
        return _integral(named, {}, f"With integral bounds and right-hand sides {what}")
    if scaled is not None and scaled[1] is Answer.TU:
        rows = "a row" if len(scaled[0]) == 1 else f"{len(scaled[0])} rows"
        start = f"Totally unimodular after dividing {rows} by a constant: with integral bounds and right-hand sides"
        return _integral(named, scaled[0], f"{start} (divided as well) {what}")
    if senses is Answer.TU:
        divisors = {} if scaled is None else scaled[0]
        rows = f" (after dividing {len(divisors)} row(s) by a constant)" if divisors else ""
        start = f"But with these equations and free variables it is unimodular{rows}: with integral bounds and"
        return _integral(named, divisors, f"{start} right-hand sides {what}")
    if answer is Answer.UNDECIDED:
        return ""
    if line is not None:
        return f"It was not decided whether {what}: integer declarations may be needed."
    return _fractional(named, senses)


def _fractional(named: NamedMatrix, senses: Answer | None) -> str:
    if named.program is None:
        return (
            "Some integral right-hand sides of Ax <= b, x >= 0 give fractional vertices. "
            "With equations (Ax = b) or free variables that need not be so."
        )
    if senses is Answer.NOT_TU or not (named.program.equations.any() or named.program.free.any()):
        return "Some integral right-hand sides and bounds give fractional vertices: integer declarations may be needed."
    return (
        "It was not decided whether the equations and free variables of this program make up for it: "
        "integer declarations may be needed."
    )


def _integral(named: NamedMatrix, divisors: Mapping[int, Number], text: str) -> str:
    program = named.program
    if program is None:
        return f"{text}, which settles every linear objective."
    offender = fractional_data(named, divisors)
    if offender:
        return f"{text}; but not so here: {offender}."
    text += ", and those of this program are integral"
    declared = int(np.count_nonzero(program.integer)) + program.left_out.integer
    declarations = f"its {declared} integer declaration(s)"
    if program.nonlinear:
        held = f"{declarations} may be needed" if declared else "no vertex need be optimal"
        return f"{text}; but {program.nonlinear}, so that an optimum need not be a vertex: {held}."
    return f"{text}: {declarations} are not needed." if declared else f"{text}."


def fractional_data(named: NamedMatrix, divisors: Mapping[int, Number]) -> str:
    """Name the first side or bound that is not integral once the rows are divided; empty if all are."""
    program = named.program
    assert program is not None
    suspects = np.zeros(named.shape[0], dtype=bool)
    suspects[[*divisors, *program.constants]] = True
    with np.errstate(invalid="ignore"):
        suspects |= (np.isfinite(program.sides) & (program.sides != np.rint(program.sides))).any(axis=0)
        odd = np.isfinite(program.bounds) & (program.bounds != np.rint(program.bounds))
    for row in np.flatnonzero(suspects).tolist():
        divisor, constant = divisors.get(row, 1), program.constants.get(row, 0)
        for side in program.sides[:, row]:
            if np.isfinite(side) and (Fraction(exact(side)) - constant) / divisor % 1:
                text = f"the side {exact(side)} of row {named.names_of_rows([row])[0]!r} is not integral"
                text += f" less the {constant} of fixed columns" if constant else ""
                return text + (f" when divided by {divisor}" if row in divisors else "")
    for column in np.flatnonzero(odd.any(axis=0)).tolist():
        value = exact(program.bounds[np.flatnonzero(odd[:, column])[0], column])
        return f"the bound {value} of {named.names_of_columns([column])[0]!r} is not integral"
    return ""
