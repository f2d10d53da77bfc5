"""Names and labels of the members of a block of variables, constraints, nodes or arcs; blocks as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import locked

#: Labels of a block: one object per row or column, or a tuple of equally long arrays.
Labels: TypeAlias = Sequence[Any] | NDArray[Any] | tuple[NDArray[Any], ...] | None


def block_names(name: str, count: int, labels: Labels) -> list[str]:
    """Return ``name[label]`` for every member of a block: numbers without labels, the name alone for empty ones."""
    return [f"{name}[{label}]" if label else name for label in block_labels(count, labels)]


def block_labels(count: int, labels: Labels) -> list[str]:
    """Labels of a block's members as text, parts joined by commas; numbers when there are none."""
    if labels is None:
        return list(map(str, range(count)))
    if isinstance(labels, tuple) and labels and all(isinstance(part, np.ndarray) for part in labels):
        return label_texts([part.tolist() for part in labels])
    items = labels.tolist() if isinstance(labels, np.ndarray) else labels
    return [label_text(item) if isinstance(item, tuple) else str(item) for item in items]


def label_text(parts: Iterable[Any]) -> str:
    """Parts of a label as one text, joined by commas; of several, one that holds a comma is quoted.

    Examples
    --------
    >>> label_text(["a", "b,c"]), label_text(["a,b", "c"]), label_text(["a,b"])
    ('a,"b,c"', '"a,b",c', 'a,b')
    """
    texts = list(map(str, parts))
    return ",".join(map(_quoted, texts)) if len(texts) > 1 else "".join(texts)


def label_texts(columns: Sequence[Sequence[Any]]) -> list[str]:
    """`label_text` of many labels, from one column for each part."""
    texts = [list(map(str, column)) for column in columns]
    if len(texts) == 1:
        return texts[0]
    for number, column in enumerate(texts):
        if any("," in text or '"' in text for text in set(column)):
            texts[number] = list(map(_quoted, column))
    return list(map(",".join, zip(*texts, strict=True)))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def check_declared(owner: str, what: str, name: str, declared: Collection[str] | None) -> None:
    """Raise unless a name is among those declared (or nothing was declared)."""
    if declared is not None and name not in declared:
        known = ", ".join(sorted(declared)) or "none"
        raise ValueError(f"{owner}: {what} named {name!r} belong to no declared equation; declare it beside: {known}")


def check_labels(name: str, count: int, labels: Labels) -> Labels:
    """Return the labels, read-only; raise unless a block of ``count`` members has one each, or none at all."""
    if count < 0:
        raise ValueError(f"{name}: a block cannot have {count} members")
    columns = isinstance(labels, tuple) and labels and all(isinstance(part, np.ndarray) for part in labels)
    parts: Any = labels if columns else (labels,)
    for part in parts:
        if part is not None and len(part) != count:
            raise ValueError(f"{name}: {len(part)} labels for {count} members")
    return tuple(map(locked, parts)) if columns else locked(labels)


def blocks_html(heading: str, **blocks: Mapping[str, Any]) -> str:
    """A heading, and a table of named blocks: what they hold and how many."""
    import pandas as pd

    rows = [(name, what, block.count) for what, named in blocks.items() for name, block in named.items()]
    return f"<p>{escape(heading)}</p>{pd.DataFrame(rows, columns=['block', 'of', 'count']).to_html(index=False)}"
