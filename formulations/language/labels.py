"""Labels: the levels of a problem (worker, shift) with their domains, and the members of variables, data and rows.

Two operands meet if one has all the keys of the other: every member of the larger then finds exactly one partner.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from flowlex.errors import FlowlexError
from flowlex.formulations.block_labels import label_texts

if TYPE_CHECKING:
    import pandas as pd

_T = TypeVar("_T")
Codes: TypeAlias = NDArray[np.int32]
Positions: TypeAlias = NDArray[np.int64]

#: Lookups by table are used up to this many entries, or this many times the members.
_TABLE, _TIMES = 1 << 16, 8


class StatementError(FlowlexError, ValueError):
    """A problem was stated in a way that means nothing, or not one thing; the message names the label or the row."""


def is_pandas(value: object, *kinds: str) -> bool:
    """Whether a value is a pandas object of one of these classes, without importing pandas."""
    return any(t.__module__.partition(".")[0] == "pandas" and t.__name__ in kinds for t in type(value).__mro__)


def nearest(what: str, name: object, known: Iterable[object]) -> str:
    """``no WHAT 'name'; did you mean ...?``: the error text for an unknown name."""
    every = list(known)
    names = [str(each) for each in every]
    near = difflib.get_close_matches(str(name), names, n=1)
    # A label of another type that reads the same: 7 for '7', a date for its text.
    hint = repr(every[names.index(near[0])] if near and near[0] == str(name) else near[0]) if near else ""
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") or "none"
    return f"no {what} {name!r}; " + (f"did you mean {hint}? There are: " if near else "there are: ") + listed


def known(what: str, name: Any, mapping: Mapping[Any, _T]) -> _T:
    """What has a name; `StatementError` with the nearest name if nothing has."""
    try:
        return mapping[name]
    except (KeyError, TypeError):
        raise StatementError(nearest(what, name, mapping)) from None


def plain_labels(values: Any) -> list[Any]:
    """Labels as a list of Python objects."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise StatementError(f"expected labels as a list, a range or a pandas Index, got {values!r}")
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return [each.item() if isinstance(each, np.generic) else each for each in listed]


def factored(values: Any, what: str) -> tuple[list[Any], Codes]:
    """Distinct labels in order of appearance, and the place of each value among them."""
    if is_pandas(values, "Series", "Index") or (isinstance(values, np.ndarray) and len(values) > 1000):
        import pandas as pd

        if isinstance(values.dtype, pd.CategoricalDtype):
            kept: Any = pd.Series(values).array
            codes, distinct = kept.codes, kept.categories
        else:
            codes, distinct = pd.factorize(values)
        if len(codes) and codes.min() < 0:
            raise StatementError(f"{what}: the label in row {int(np.argmin(codes))} is missing")
        return plain_labels(distinct), codes.astype(np.int32)
    position: dict[Any, int] = {}
    try:
        found = [position.setdefault(each, len(position)) for each in plain_labels(values)]
    except TypeError as error:
        raise StatementError(f"{what}: a label cannot be hashed: {error}") from error
    if any(label is None or label != label for label in position):
        raise StatementError(f"{what}: a label is missing")
    return list(position), np.array(found, np.int32).reshape(len(found))


def table_columns(table: Any, what: str) -> tuple[list[str], dict[str, tuple[list[Any], Codes]]]:
    """Keys of a table, and for each of its levels the distinct labels and the place of each row among them.

    A named index holds the keys and the columns follow from it. Without one all columns are keys.
    """
    if is_pandas(table, "Series", "DataFrame") and not _named(table.index):
        if is_pandas(table, "Series"):
            raise StatementError(f"{what}: the index of the Series has no name; name it after its level (rename_axis)")
        keys = [str(name) for name in table.columns]
        return keys, {str(name): factored(table[name], f"{what}, column {name!r}") for name in table.columns}
    index = table.index if is_pandas(table, "Series", "DataFrame") else table
    if not is_pandas(index, "Index"):
        raise StatementError(f"{what}: expected a DataFrame, a Series or a pandas Index, got {type(table).__name__}")
    if not _named(index):
        raise StatementError(f"{what}: an index without names; name its levels (rename)")
    found: dict[str, tuple[list[Any], Codes]] = {}
    for k, name in enumerate(index.names):
        if index.nlevels == 1:
            found[str(name)] = factored(index, f"{what}, level {name!r}")
            continue
        codes = np.asarray(index.codes[k])
        if len(codes) and codes.min() < 0:
            raise StatementError(f"{what}, level {name!r}: the label in row {int(np.argmin(codes))} is missing")
        found[str(name)] = plain_labels(index.levels[k]), codes.astype(np.int32)
    keys = list(found)
    if is_pandas(table, "DataFrame"):
        found |= {str(name): factored(table[name], f"{what}, column {name!r}") for name in table.columns}
    return keys, found


def _named(index: Any) -> bool:
    return all(name is not None for name in index.names)


@dataclass(frozen=True, eq=False)
class Level:
    """A level and the labels that it may have, in order.

    Attributes
    ----------
    name
        Name of the level, such as ``worker``.
    labels
        Its domain: distinct, hashable labels of any type.
    """

    name: str
    labels: tuple[Any, ...]
    position: dict[Any, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        position: dict[Any, int] = {}
        try:
            for k, label in enumerate(self.labels):
                if label is None or label != label:
                    raise StatementError(f"level {self.name!r}: label number {k} is missing ({label!r})")
                position.setdefault(label, k)
        except TypeError as error:
            raise StatementError(
                f"level {self.name!r}: label {label!r} cannot be hashed; use text or numbers"
            ) from error
        if len(position) != len(self.labels):
            seen: set[Any] = set()
            twice = next(label for label in self.labels if label in seen or seen.add(label))  # type: ignore[func-returns-value]
            raise StatementError(f"level {self.name!r}: label {twice!r} occurs twice")
        object.__setattr__(self, "position", position)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def texts(self) -> list[str]:
        """Labels as distinct texts; text is in quotes where another label reads the same (``1`` and ``"1"``).

        Raises `StatementError` for two labels that cannot be told apart, such as a tuple and its text.
        """
        found = [quoted(label) for label in self.labels]
        if len(set(found)) == len(found):
            return found
        others = {text for label, text in zip(self.labels, found, strict=True) if not isinstance(label, str)}
        for k, label in enumerate(self.labels):
            if isinstance(label, str) and found[k] in others and not found[k].startswith('"'):
                found[k] = f'"{found[k]}"'
        seen: dict[str, Any] = {}
        for label, text in zip(self.labels, found, strict=True):
            if text in seen:
                raise StatementError(f"level {self.name!r}: {seen[text]!r} and {label!r} read the same; rename one")
            seen[text] = label
        return found

    def codes(self, values: Any, what: str) -> Codes:
        """(n,) positions of labels; `StatementError` names the first that the level does not have."""
        listed = plain_labels(values)
        known = self.position
        try:
            found = [known.get(each, -1) for each in listed]
        except TypeError as error:
            raise StatementError(f"{what}: a label of {self.name!r} cannot be hashed: {error}") from error
        codes = np.array(found, np.int32).reshape(len(listed))
        if len(codes) and codes.min() < 0:
            wrong = listed[int(np.argmin(codes))]
            raise StatementError(f"{what}: " + nearest(self.name, wrong, self.labels))
        return codes


@dataclass(frozen=True, eq=False)
class Index:
    """Members and their labels.

    Attributes
    ----------
    keys
        The levels that identify a member. None for a single member.
    levels
        All levels: the keys, then labels that follow from them (a task's job).
    codes
        (count,) positions in the domain, for each level.
    count
        Number of members.
    dense
        Whether the members are all combinations of the keys' domains, in order.
    """

    keys: tuple[str, ...]
    levels: Mapping[str, Level]
    codes: Mapping[str, Codes]
    count: int
    dense: bool = False

    @classmethod
    def product(cls, levels: Sequence[Level]) -> Index:
        """All combinations of the labels of some levels, the last changing fastest."""
        sizes = [len(level) for level in levels]
        count = int(np.prod(sizes, dtype=np.int64)) if sizes else 1
        codes, after, before = {}, count, 1
        for level, size in zip(levels, sizes, strict=True):
            after = after // size if size else 0
            codes[level.name] = np.tile(np.repeat(np.arange(size, dtype=np.int32), after), before)
            before *= size
        return cls(tuple(codes), {level.name: level for level in levels}, codes, count, True)

    @classmethod
    def of(cls, levels: Sequence[Level], codes: Sequence[Codes], keys: Sequence[str], what: str) -> Index:
        """Members with these labels; `StatementError` names labels that occur twice."""
        names = [level.name for level in levels]
        count = len(codes[0]) if codes else 1
        index = cls(tuple(keys), dict(zip(names, levels, strict=True)), dict(zip(names, codes, strict=True)), count)
        sizes = [len(index.levels[k]) for k in index.keys]
        key, exact = _combined([index.codes[k] for k in index.keys], sizes)
        total = int(np.prod(sizes, dtype=object))
        if names == list(keys) and exact is not None and count == total and (key == np.arange(count)).all():
            return replace(index, dense=True)
        if count > 1:
            if exact is not None and total <= max(_TABLE, _TIMES * count):
                double = bool(np.bincount(key, minlength=1).max() > 1)
            else:
                ordered = np.sort(key)
                double = bool((ordered[1:] == ordered[:-1]).any())
            if double:
                first, _ = _first_double(index)
                raise StatementError(f"{what}: {index.text(first)} occurs twice")
        return index

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all levels, keys first."""
        return tuple(self.levels)

    def labels(self, level: str, members: Positions | slice = slice(None)) -> list[Any]:
        """Labels of some members (all by default) in one level."""
        domain = self.levels[level].labels
        return [domain[code] for code in self.codes[level][members].tolist()]

    def tuples(self, members: Positions | slice = slice(None)) -> list[tuple[Any, ...]]:
        """Labels of some members (all by default), by key."""
        columns = [self.labels(key, members) for key in self.keys]
        count = len(np.arange(self.count)[members])
        return list(zip(*columns, strict=True)) if columns else [()] * count

    def texts(self, members: Positions | slice = slice(None)) -> list[str]:
        """Labels of some members (all by default) as text: parts joined by commas, quoted where they hold one."""
        written = {key: self.levels[key].texts for key in self.keys}
        if self.dense and self.keys and isinstance(members, slice) and members == slice(None):
            return list(map(",".join, itertools.product(*written.values())))
        columns = [[written[k][c] for c in self.codes[k][members].tolist()] for k in self.keys]
        count = len(np.arange(self.count)[members])
        return list(map(",".join, zip(*columns, strict=True))) if columns else [""] * count

    def plain_texts(self, members: Positions | slice = slice(None)) -> list[str]:
        """Labels of some members (all by default) as solution files of our models hold them; see `label_text`."""
        if not self.keys:
            return [""] * len(np.arange(self.count)[members])
        return label_texts([self.labels(key, members) for key in self.keys])

    def text(self, member: int) -> str:
        """One member for a message: ``worker='ann', shift='mon'``."""
        return (
            ", ".join(f"{k}={self.levels[k].labels[int(self.codes[k][member])]!r}" for k in self.keys) or "the number"
        )

    def take(self, members: NDArray[Any]) -> Index:
        """The index of some members."""
        codes = {level: code[members] for level, code in self.codes.items()}
        return Index(self.keys, self.levels, codes, int(np.arange(self.count)[members].size))

    def to_pandas(self) -> pd.Index[Any]:
        """The keys as a pandas Index, one level each."""
        import pandas as pd

        if not self.keys:
            return pd.RangeIndex(self.count)
        if len(self.keys) == 1:
            (key,) = self.keys
            single: pd.Index[Any] = pd.Index(self.labels(key), name=key, tupleize_cols=False)
            return single
        return pd.MultiIndex(
            levels=[pd.Index(self.levels[k].labels, tupleize_cols=False) for k in self.keys],
            codes=[self.codes[k].tolist() for k in self.keys],
            names=list(self.keys),
        )

    def group(self, by: Sequence[str]) -> tuple[Index, Positions]:
        """Groups of members with the same labels in some levels, and the group of each member.

        One level: a group for each label of its domain. Several: one for each combination that occurs, in order.
        """
        levels = [self.levels[name] for name in by]
        if not by:
            return Index((), {}, {}, 1, True), np.zeros(self.count, np.int64)
        if len(by) == 1:
            return Index.product(levels), self.codes[by[0]].astype(np.int64)
        key, sizes = _combined([self.codes[name] for name in by], [len(level) for level in levels])
        total = int(np.prod([len(level) for level in levels], dtype=object))
        if sizes is None:
            _, first, group = np.unique(key, return_index=True, return_inverse=True)
        elif total <= max(_TABLE, _TIMES * self.count):
            seen = np.zeros(total, bool)
            seen[key] = True
            if seen.all():
                return Index.product(levels), key
            number = np.cumsum(seen) - 1
            group, first = number[key], np.zeros(int(number[-1]) + 1, np.int64)
            first[group[::-1]] = np.arange(self.count - 1, -1, -1)
        else:
            _, first, group = np.unique(key, return_index=True, return_inverse=True)
        codes = {name: self.codes[name][first] for name in by}
        return Index(tuple(by), dict(zip(by, levels, strict=True)), codes, len(first)), group.astype(np.int64)

    def __repr__(self) -> str:
        return f"<{self.count} members by {', '.join(self.keys) or 'nothing'}>"


def quoted(label: Any) -> str:
    """A label as text, in quotes if it could be taken for several, for none or for a part of a name."""
    text = label if isinstance(label, str) else str(label)
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if not text or re.search(r'[",\[\]\s]', text) else text


def meets(small: Index, large: Index) -> bool:
    """Whether every key of one is a level of the other."""
    return set(small.keys) <= set(large.levels)


def match(small: Index, large: Index, what: str) -> Positions | None:
    """(large.count,) partner of each member of the larger operand; None: the same members in the same order.

    Raises `StatementError`: a member has no partner; or, where the keys of the smaller identify the members of the
    larger, one of the smaller has none; or labels that follow differ.
    """
    if small is large or (small.dense and large.dense and small.keys == large.keys and _same_domains(small, large)):
        return None
    for key in small.keys:
        if small.levels[key] is not large.levels[key] and small.levels[key].labels != large.levels[key].labels:
            raise StatementError(
                f"{what}: level {key!r} has different labels in both operands; are they of one problem?"
            )
    if not small.keys:
        return np.zeros(large.count, np.int64)
    sizes = [len(small.levels[k]) for k in small.keys]
    if small.dense:
        where = _combined([large.codes[k] for k in small.keys], sizes)[0]
    else:
        where = _lookup(small, large, sizes)
        if len(where) and where.min() < 0:
            lost = large.take(np.array([int(np.argmin(where))]))
            named = Index(small.keys, large.levels, {k: lost.codes[k] for k in small.keys}, 1)
            raise StatementError(
                f"{what}: nothing for {named.text(0)}; reindex(..., fill=...) says that a gap is meant"
            )
    one_to_one = set(large.keys) <= set(small.keys)
    if one_to_one and small.count != large.count:
        alone = np.ones(small.count, bool)
        alone[where] = False
        lost_text = small.text(int(np.argmax(alone)))
        raise StatementError(f"{what}: {lost_text} is in one operand only; select or reindex(..., fill=...) first")
    for level in set(small.names) & set(large.names) - set(small.keys):
        apart = small.codes[level][where] != large.codes[level]
        if apart.any():
            k = int(np.argmax(apart))
            mine, theirs = large.labels(level)[k], small.labels(level)[int(where[k])]
            raise StatementError(
                f"{what}: {level} of {large.text(k)} is {mine!r} in one operand, {theirs!r} in the other"
            )
    return where


def _same_domains(a: Index, b: Index) -> bool:
    return all(a.levels[k] is b.levels[k] or a.levels[k].labels == b.levels[k].labels for k in a.keys)


def _lookup(small: Index, large: Index, sizes: Sequence[int]) -> Positions:
    total = int(np.prod(np.array(sizes, dtype=object)))
    mine, exact = _combined([small.codes[k] for k in small.keys], sizes)
    if exact is not None and total <= max(_TABLE, _TIMES * (small.count + large.count)):
        table = np.full(total, -1, np.int64)
        table[mine] = np.arange(small.count)
        return table[_combined([large.codes[k] for k in small.keys], sizes)[0]]
    both, _ = _combined([np.concatenate([small.codes[k], large.codes[k]]) for k in small.keys], sizes)
    mine, theirs = both[: small.count], both[small.count :]
    order = np.argsort(mine, kind="stable")
    place = np.searchsorted(mine[order], theirs)
    hit = place < small.count
    found = order[np.minimum(place, small.count - 1)] if small.count else np.full(large.count, -1)
    return np.where(hit & (mine[found] == theirs), found, -1) if small.count else found


def _combined(codes: Sequence[Codes], sizes: Sequence[int]) -> tuple[Positions, Sequence[int] | None]:
    """One number for each combination of codes; the sizes if it is its place in the product, else None."""
    if not codes:
        return np.zeros(1, np.int64), sizes
    key, reach, exact = codes[0].astype(np.int64), sizes[0], True
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        if reach * size >= 2**62:
            _, key = np.unique(key, return_inverse=True)
            reach, exact = len(key), False
        key, reach = key * size + code, reach * size
    return key, sizes if exact else None


def _first_double(index: Index) -> tuple[int, int]:
    seen: dict[tuple[Any, ...], int] = {}
    for k, label in enumerate(index.tuples()):
        if label in seen:
            return k, seen[label]
        seen[label] = k
    raise AssertionError


def renamed(index: Index, names: Mapping[str, str]) -> Index:
    """The same members with other names of levels."""
    levels = {names.get(k, k): replace(v, name=names.get(k, k)) if k in names else v for k, v in index.levels.items()}
    codes = {names.get(k, k): v for k, v in index.codes.items()}
    return Index(tuple(names.get(k, k) for k in index.keys), levels, codes, index.count, index.dense)
