"""Labels of variables and rows: named levels (job, node, rack) with a value for every member."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.formulations.program_arrays import Booleans, Integers
from flowlex.instances.model_changes import Interval, Label
from flowlex.models.solution import ModelError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


def nearest(what: str, name: object, known: Iterable[Any]) -> str:
    """``no WHAT 'name'; did you mean ...?``: the error text for an unknown name."""
    names = [str(each) for each in known]
    near = difflib.get_close_matches(str(name), names, n=1)
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") or "none"
    return f"no {what} {name!r}; " + (f"did you mean {near[0]!r}? There are: " if near else "there are: ") + listed


class Named(dict[str, T]):
    """Members by name; an unknown name raises `ModelError` with the nearest one."""

    def __init__(self, what: str, members: Mapping[str, T]) -> None:
        super().__init__(members)
        self._what = what

    def __missing__(self, name: str) -> T:
        raise ModelError(nearest(self._what, name, self))


@dataclass(frozen=True, eq=False)
class Index:
    """Labels of the members of a block."""

    levels: Mapping[str, Sequence[Label]]  # level to its distinct labels, in the order of the instance
    codes: Mapping[str, Integers]  # level to (count,) positions in these labels
    count: int  # how many members
    #: The levels that identify members and make their names; the others follow from them (a task's job). All levels
    #: when empty.
    keys: tuple[str, ...] = ()

    def named_by(self, *keys: str) -> Index:
        """The same index with these levels as `keys`."""
        return replace(self, keys=keys)

    @classmethod
    def of(cls, **columns: Sequence[Label] | NDArray[Any]) -> Index:
        """An index from one column of labels per level, all of one length.

        Examples
        --------
        >>> index = Index.of(job=["A", "A", "B"], node=["n1", "n2", "n1"])
        >>> index.select({"node": "n1"}).tolist()
        [True, False, True]
        """
        levels, codes, count = {}, {}, 1
        for name, column in columns.items():
            positions: dict[Any, int] = {}
            listed = column.tolist() if isinstance(column, np.ndarray) else list(column)
            codes[name] = np.array([positions.setdefault(each, len(positions)) for each in listed], np.int64)
            levels[name], count = tuple(positions), len(listed)
        return cls(levels, codes, count)

    @classmethod
    def coded(cls, **columns: tuple[Sequence[Label], Integers]) -> Index:
        """An index from labels and positions by level; for large blocks."""
        count = len(next(iter(columns.values()))[1]) if columns else 1
        return cls({k: tuple(v[0]) for k, v in columns.items()}, {k: v[1] for k, v in columns.items()}, count)

    @property
    def names(self) -> tuple[str, ...]:
        """The levels."""
        return tuple(self.levels)

    def check(self, where: Mapping[str, Any], owner: str) -> None:
        """Raise `ModelError` for a level or label that does not exist, with the nearest one."""
        for level, wanted in where.items():
            if level not in self.levels:
                raise ModelError(f"{owner} has " + nearest("level", level, self.levels))
            if isinstance(wanted, Interval):
                if not all(isinstance(each, (int, float)) for each in self.levels[level]):
                    raise ModelError(f"{owner}: an interval selects numbers; the labels of {level!r} are text")
                continue
            known = self._positions[level]
            for label in wanted if isinstance(wanted, tuple) else (wanted,):
                if label not in known:
                    raise ModelError(f"{owner}: " + nearest(level, label, self.levels[level]))

    @cached_property
    def _positions(self) -> dict[str, dict[Label, int]]:
        return {level: {label: k for k, label in enumerate(labels)} for level, labels in self.levels.items()}

    def select(self, where: Mapping[str, Any]) -> Booleans:
        """(count,) members with these labels."""
        chosen = np.ones(self.count, bool)
        for level, wanted in where.items():
            labels = self.levels[level]
            if isinstance(wanted, Interval):
                low = -np.inf if wanted.at_least is None else wanted.at_least
                high = np.inf if wanted.at_most is None else wanted.at_most
                each = [low <= float(label) <= high for label in labels]
            else:
                these = set(wanted) if isinstance(wanted, tuple) else {wanted}
                each = [label in these for label in labels]
            chosen &= np.array(each, bool)[self.codes[level]]
        return chosen

    def group(self, by: Sequence[str], members: Integers) -> tuple[list[tuple[Label, ...]], Integers]:
        """Distinct labels of some levels among members, in order of appearance by level, and the row of each member."""
        if not by:
            return [()], np.zeros(len(members), np.int64)
        key = np.zeros(len(members), np.int64)
        for level in by:
            key = key * len(self.levels[level]) + self.codes[level][members]
        _, first, row = np.unique(key, return_index=True, return_inverse=True)
        labels = [tuple(self.levels[level][self.codes[level][members[k]]] for level in by) for k in first.tolist()]
        return labels, row.astype(np.int64)

    def take(self, members: Integers | Booleans) -> Index:
        """The index of some members."""
        codes = {level: code[members] for level, code in self.codes.items()}
        return Index(self.levels, codes, int(np.arange(self.count)[members].size), self.keys)

    def labels(self) -> list[tuple[Label, ...]]:
        """(count,) labels of every member by its keys."""
        columns = [_objects(self.levels[n])[self.codes[n]].tolist() for n in self.keys or self.names]
        return list(zip(*columns, strict=True)) if columns else [()] * self.count

    def columns(self) -> tuple[NDArray[Any], ...] | tuple[str, ...]:
        """One array of labels for each key, so that names of large blocks are made only when needed."""
        if not self.names:
            return tuple(self.texts())
        return tuple(_objects(self.levels[n])[self.codes[n]] for n in self.keys or self.names)

    def texts(self) -> list[str]:
        """(count,) labels as text, parts joined by commas, as in names of columns and rows."""
        return [label_text(label) for label in self.labels()]

    def to_pandas(self) -> pd.MultiIndex:
        """The labels as a pandas MultiIndex."""
        import pandas as pd

        if not self.names:
            return pd.MultiIndex.from_arrays([[""] * self.count], names=[""])
        codes = [self.codes[n].tolist() for n in self.names]
        return pd.MultiIndex(levels=[list(self.levels[n]) for n in self.names], codes=codes, names=list(self.names))


def _objects(labels: Sequence[Label]) -> NDArray[Any]:
    found = np.empty(len(labels), object)
    found[:] = labels
    return found
