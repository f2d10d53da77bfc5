"""Which families of constraints (or of variables) make or break total unimodularity.

Deleting rows or columns keeps total unimodularity, so two lists give the answer: the smallest combinations of
families that already break it, and the largest that are still totally unimodular.
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.matrix_adapters import matrix_of
from flowlex.validation.unimodularity.named_matrix import MatrixError, NamedMatrix, canonical
from flowlex.validation.unimodularity.proof_types import Answer
from flowlex.validation.unimodularity.verdict import Verdict

#: With more families only single ones, pairs and all-but-one are tried.
MOST_FAMILIES = 6
#: With more than this many, pairs are left out, too.
MOST_PAIRS = 15

#: Where a family's name ends: at a bracket, or where numbers joined by "_" or "," begin.
_FAMILY = re.compile(r"[\[(]|_?\d+(?:[_,]\d+)*$")


@dataclass(frozen=True)
class Explanation:
    """What `explain` found."""

    families: Mapping[str, int]  # name and number of rows of each family
    verdicts: Mapping[tuple[str, ...], Verdict]  # verdict of every combination tried, by the names in it
    breaking: tuple[tuple[str, ...], ...]  # smallest combinations that are not totally unimodular
    unimodular: tuple[tuple[str, ...], ...]  # largest combinations that are
    undecided: tuple[tuple[str, ...], ...] = ()  # combinations that the time did not suffice for
    what: str = "rows"  # ``"rows"`` or ``"columns"``

    def __str__(self) -> str:
        lines = [f"{name}: {count} {self.what}" for name, count in self.families.items()]
        lines += ["breaks total unimodularity: " + " + ".join(names) for names in self.breaking]
        lines += ["totally unimodular: " + " + ".join(names) for names in self.unimodular]
        lines += ["undecided: " + " + ".join(names) for names in self.undecided]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(' + '.join(names))}</td><td>{verdict.answer}</td>"
            f"<td>{html.escape(verdict.method)}</td></tr>"
            for names, verdict in self.verdicts.items()
        )
        return f"<table><tr><th>families</th><th>answer</th><th>method</th></tr>{rows}</table>"


def families_of(source: Any, *, by: str = "rows") -> dict[str, list[int]]:
    """Rows or columns by family (the part of a name before the bracket or number), in order of appearance."""
    named = _turned(matrix_of(source), by)
    families: dict[str, list[int]] = {}
    for row, name in enumerate(named.names_of_rows(range(named.shape[0]))):
        families.setdefault(_FAMILY.split(name, maxsplit=1)[0] or name, []).append(row)
    return families


def explain(
    source: Any,
    families: Mapping[str, Sequence[int]] | None = None,
    *,
    by: str = "rows",
    time_limit: float = 60.0,
    **options: Any,
) -> Explanation:
    """Test combinations of families, each with a share of the time.

    ``source``: a model, a program or a matrix.
    ``families``: indices by family; read from the names when left out.
    ``by``: families of ``"rows"`` (constraints) or of ``"columns"`` (variables).
    ``time_limit``: seconds for all combinations together.
    ``options``: passed to `check`.
    Raises `MatrixError` if a family names a row or column that is not there, or if ``by`` is something else.
    """
    if by not in ("rows", "columns"):
        raise MatrixError(f"families are of rows or of columns, not of {by!r}")
    named = _turned(matrix_of(source), by)
    groups = {name: list(lines) for name, lines in (families or families_of(source, by=by)).items()}
    for name, lines in groups.items():
        if any(not 0 <= line < named.shape[0] for line in lines) or not lines:
            raise MatrixError(f"family {name!r} has no {by}, or {by} outside the matrix")
    end = time.thread_time() + time_limit
    verdicts: dict[tuple[str, ...], Verdict] = {}
    breaking: list[tuple[str, ...]] = []
    waiting = [names for size in _sizes(len(groups)) for names in combinations(groups, size)]
    for place, names in enumerate(waiting):
        if any(set(small) <= set(names) for small in breaking):
            continue
        chosen = np.sort(np.concatenate([np.asarray(groups[name], dtype=np.int64) for name in names]))
        share = max(0.05, 4 * (end - time.thread_time()) / (len(waiting) - place))
        left = max(0.05, end - time.thread_time())
        verdicts[names] = check(_part(named, chosen), time_limit=min(share, left), **options)
        if verdicts[names].answer is Answer.NOT_TU:
            breaking.append(names)
    good = [set(names) for names, verdict in verdicts.items() if verdict.is_tu]
    largest = tuple(
        names for names, verdict in verdicts.items() if verdict.is_tu and not any(set(names) < other for other in good)
    )
    undecided = tuple(names for names, verdict in verdicts.items() if verdict.answer is Answer.UNDECIDED)
    sizes = {name: len(lines) for name, lines in groups.items()}
    return Explanation(sizes, verdicts, tuple(breaking), largest, undecided, by)


def _sizes(count: int) -> list[int]:
    if count <= MOST_FAMILIES:
        return list(range(1, count + 1))
    return sorted({1, 2, count - 1, count} if count <= MOST_PAIRS else {1, count - 1, count})


def _turned(named: NamedMatrix, by: str) -> NamedMatrix:
    """The matrix with the lines of the families as rows."""
    return named if by == "rows" else NamedMatrix(canonical(named.matrix.T), named.column_names, named.row_names)


def _part(named: NamedMatrix, rows: np.ndarray) -> NamedMatrix:
    part = canonical(named.matrix.tocsr()[rows])
    names = named.names_of_rows(rows.tolist())
    return NamedMatrix(part, lambda: names, named.column_names)
