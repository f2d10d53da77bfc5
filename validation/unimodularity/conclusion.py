"""What a verdict means for the program: computed from proven answers and the program's data, never read from a file.

Total unimodularity speaks of vertices. So every sentence here asks three things: is the property proven, are the
program's own sides and bounds integral, and is an optimum a vertex at all (is the objective linear).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flowlex.validation.unimodularity.matrix import NamedMatrix, exact
from flowlex.validation.unimodularity.proof import Answer, Number

__all__ = ["conclude", "fractional_data"]


def conclude(
    named: NamedMatrix, answer: Answer, scaled: tuple[Mapping[int, Number], Answer] | None, senses: Answer | None
) -> str:
    """Say what follows for this program.

    Parameters
    ----------
    named
        The matrix with what is known of its program.
    answer
        Of the matrix as given.
    scaled
        Divisors of rows, and the answer for the divided matrix.
    senses
        Whether the rows' senses make it unimodular (`senses.Senses`), where that was looked at.
    """
    if answer is Answer.TU:
        return _integral(named, {}, "With integral bounds and right-hand sides")
    if scaled is not None and scaled[1] is Answer.TU:
        rows = "a row" if len(scaled[0]) == 1 else f"{len(scaled[0])} rows"
        start = f"Totally unimodular after dividing {rows} by a constant: with integral bounds and right-hand sides"
        return _integral(named, scaled[0], f"{start} (divided as well)")
    if senses is Answer.TU:
        divisors = {} if scaled is None else scaled[0]
        rows = f" (after dividing {len(divisors)} row(s) by a constant)" if divisors else ""
        start = f"But with these equations and free variables it is unimodular{rows}: with integral bounds and"
        return _integral(named, divisors, f"{start} right-hand sides")
    if answer is Answer.UNDECIDED:
        return ""
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


def _integral(named: NamedMatrix, divisors: Mapping[int, Number], start: str) -> str:
    text = f"{start} every vertex is integral"
    program = named.program
    if program is None:
        return f"{text}, which settles every linear objective."
    offender = fractional_data(named, divisors)
    if offender:
        return f"{text}; but not so here: {offender}."
    text += ", and those of this program are integral"
    declared = int(np.count_nonzero(program.integer))
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
    suspects[list(divisors)] = True
    with np.errstate(invalid="ignore"):
        suspects |= (np.isfinite(program.sides) & (program.sides != np.rint(program.sides))).any(axis=0)
        odd = np.isfinite(program.bounds) & (program.bounds != np.rint(program.bounds))
    for row in np.flatnonzero(suspects).tolist():
        for side in program.sides[:, row]:
            if np.isfinite(side) and not isinstance(exact(exact(side) / exact(divisors.get(row, 1)) + 0), int):
                value = exact(side)
                return f"the side {value} of row {named.names_of_rows([row])[0]!r} is not integral" + (
                    f" when divided by {divisors[row]}" if row in divisors else ""
                )
    for column in np.flatnonzero(odd.any(axis=0)).tolist():
        value = exact(program.bounds[np.flatnonzero(odd[:, column])[0], column])
        return f"the bound {value} of {named.names_of_columns([column])[0]!r} is not integral"
    return ""
