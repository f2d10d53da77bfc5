"""Names of rows and columns in families; an unknown name is an error with the nearest known one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowlex.errors import FlowlexError
from flowlex.formulations.program_arrays import Integers

#: End of the family in a name without a declared family.
_END = re.compile(r"[\[({]|(?<!^)_")


class UnknownNameError(FlowlexError, LookupError):
    """A test names a row, column or family that the program does not have; no verdict about the program."""


@dataclass(frozen=True)
class Names:
    """Names of all rows (or columns) in order, and which of them each family holds."""

    what: str
    names: Sequence[str]
    families: Mapping[str, Integers]

    def find(self, wanted: str) -> Integers | None:
        """Indices of a row or family, as it is spelled or as PuLP respells it (``share[A]`` is ``share_A_``)."""
        if wanted in self._place:
            return np.array([self._place[wanted]])
        if wanted in self.families:
            return self.families[wanted]
        similar = self._plain.get(plain(wanted), [])
        if len(similar) > 1:
            raise UnknownNameError(f"{wanted!r} may be any of the {self.what}s {', '.join(similar)}; spell it out")
        return self.find(similar[0]) if similar else None

    def known(self) -> list[str]:
        """Everything that `find` finds as it is spelled."""
        return [*self.families, *self.names]

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def _plain(self) -> dict[str, list[str]]:
        spelled: dict[str, list[str]] = {}
        for name in self.names:
            spelled.setdefault(plain(name), []).append(name)
        for family in self.families:
            spelled.setdefault(plain(family), []).append(family)
        return {key: list(dict.fromkeys(found)) for key, found in spelled.items()}


def find(wanted: str, *where: Names) -> tuple[Names, Integers]:
    """Look a name up in several `Names`, in order.

    Raises `UnknownNameError`: nothing has the name; the message has the nearest known one.
    """
    if not isinstance(wanted, str):
        raise TypeError(f"expected a name, got {wanted!r}")
    for names in where:
        found = names.find(wanted)
        if found is not None:
            return names, found
    known = [name for names in where for name in names.known()]
    near = difflib.get_close_matches(wanted, known, 1, 0.5)
    said = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known[:8]) or 'none'}"
    raise UnknownNameError(f"no {' or '.join(names.what for names in where)} is named {wanted!r}; {said}")


def plain(name: str) -> str:
    """A name without brackets, commas and spaces, so that spellings of one name agree."""
    return re.sub(r"[^\w.]+|_+", "_", name).strip("_")


def families_of(names: Iterable[str], declared: Iterable[str] = ()) -> dict[str, Integers]:
    """Group names by family.

    A name belongs to the longest declared family that it equals or begins with, followed by a bracket or underscore. A
    name of no declared family belongs to what stands before its first bracket or underscore, trailing digits dropped
    (so rows that PuLP numbers, ``_C1`` and ``_C2``, are one family ``_C``).
    """
    longest = sorted(declared, key=len, reverse=True)
    members: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        own = next((f for f in longest if name == f or (name.startswith(f) and name[len(f)] in "[({_")), None)
        members.setdefault(own or _family(name), []).append(index)
    return {family: np.array(indices) for family, indices in members.items()}


def _family(name: str) -> str:
    head = _END.split(name, maxsplit=1)[0]
    return head.rstrip("0123456789") or head or name
