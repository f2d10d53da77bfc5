"""Which families of constraints make or break total unimodularity.

Deleting rows keeps total unimodularity, so the answer is told by two lists: the smallest combinations of
families that already break it, and the largest that are still totally unimodular.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.matrix import MatrixError, NamedMatrix, canonical
from flowlex.validation.unimodularity.proof import Answer
from flowlex.validation.unimodularity.sources import matrix_of
from flowlex.validation.unimodularity.verdict import Verdict

__all__ = ["Explanation", "explain", "families_of"]

#: With more families only single ones, pairs and all-but-one are tried.
MOST_FAMILIES = 6


@dataclass(frozen=True)
class Explanation:
    """What `explain` found.

    Attributes
    ----------
    families
        Name and number of rows of each family.
    verdicts
        Verdict of every combination tried, by the names in it.
    breaking
        Smallest combinations that are not totally unimodular.
    unimodular
        Largest combinations that are.
    """

    families: Mapping[str, int]
    verdicts: Mapping[tuple[str, ...], Verdict]
    breaking: tuple[tuple[str, ...], ...]
    unimodular: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        lines = [f"{name}: {count} rows" for name, count in self.families.items()]
        lines += ["breaks total unimodularity: " + " + ".join(names) for names in self.breaking]
        lines += ["totally unimodular: " + " + ".join(names) for names in self.unimodular]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(' + '.join(names))}</td><td>{verdict.answer}</td>"
            f"<td>{html.escape(verdict.method)}</td></tr>"
            for names, verdict in self.verdicts.items()
        )
        return f"<table><tr><th>families</th><th>answer</th><th>method</th></tr>{rows}</table>"


def families_of(source: Any) -> dict[str, list[int]]:
    """Rows by constraint family: what stands before the bracket in a row's name, in order of appearance."""
    named = matrix_of(source)
    families: dict[str, list[int]] = {}
    for row, name in enumerate(named.names_of_rows(range(named.shape[0]))):
        families.setdefault(name.partition("[")[0], []).append(row)
    return families


def explain(source: Any, families: Mapping[str, Sequence[int]] | None = None, **options: Any) -> Explanation:
    """Test combinations of constraint families.

    Parameters
    ----------
    source
        A model, a program or a matrix.
    families
        Row indices by family; read from the names of the rows when left out.
    options
        Passed to `check`.

    Raises
    ------
    MatrixError
        If a family names a row that is not there.
    """
    named = matrix_of(source)
    groups = {name: list(rows) for name, rows in (families or families_of(named)).items()}
    for name, rows in groups.items():
        if any(not 0 <= row < named.shape[0] for row in rows) or not rows:
            raise MatrixError(f"family {name!r} has no rows, or rows outside the matrix")
    verdicts: dict[tuple[str, ...], Verdict] = {}
    breaking: list[tuple[str, ...]] = []
    for size in _sizes(len(groups)):
        for names in combinations(groups, size):
            if any(set(small) <= set(names) for small in breaking):
                continue
            chosen = np.sort(np.concatenate([np.asarray(groups[name], dtype=np.int64) for name in names]))
            verdicts[names] = check(_part(named, chosen), **options)
            if verdicts[names].answer is Answer.NOT_TU:
                breaking.append(names)
    good = [set(names) for names, verdict in verdicts.items() if verdict.is_tu]
    largest = tuple(
        names for names, verdict in verdicts.items() if verdict.is_tu and not any(set(names) < other for other in good)
    )
    return Explanation({name: len(rows) for name, rows in groups.items()}, verdicts, tuple(breaking), largest)


def _sizes(count: int) -> list[int]:
    if count <= MOST_FAMILIES:
        return list(range(1, count + 1))
    return [1, 2, count - 1, count]


def _part(named: NamedMatrix, rows: np.ndarray) -> NamedMatrix:
    part = canonical(named.matrix.tocsr()[rows])
    return NamedMatrix(part, lambda: named.names_of_rows(rows.tolist()), named.column_names)
