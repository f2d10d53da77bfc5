"""Errors for input that is not a valid instance."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowlex.errors import FlowlexError

if TYPE_CHECKING:
    from pydantic import ValidationError


class InstanceError(FlowlexError, ValueError):
    """Input that is not a valid instance; the message names file, place and reason.

    Parameters
    ----------
    reason
        What is wrong, naming the offender, and what to do.
    place
        Where in the document (``jobs[3].tasks[0].size_mb``) or file (``line 12``); empty for the whole.
    path
        The file, when there is one.
    """

    def __init__(self, reason: str, *, place: str = "", path: str | Path | None = None) -> None:
        self.reason = reason
        self.place = place
        self.path: str | None = None if path is None else str(path)
        super().__init__(": ".join(part for part in (self.path, place, reason) if part))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.reason, self.place, self.path))

    def at(self, path: str | Path) -> InstanceError:
        """Return the same error with the name of its file.

        Parameters
        ----------
        path
            The file; it replaces the one that the error named. Reason and place stay.
        """
        return InstanceError(self.reason, place=self.place, path=path)


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Return place and reason of the first error of a validation."""
    first = error.errors(include_url=False)[0]
    return ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")


def counted(number: int, one: str, more: str | None = None) -> str:
    """``1 node`` or ``2 nodes``; ``more`` is what follows another number than 1, if it is not ``one`` with an s."""
    return f"{number} {one if number == 1 else more or one + 's'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` with the nearest of the first 5000 known names; empty where none is near."""
    near = difflib.get_close_matches(name, list(islice(known, 5000)), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def shortened(text: str) -> str:
    """At most 60 characters of a text."""
    return text if len(text) <= 60 else text[:57] + "..."


def _rebuild(reason: str, place: str, path: str | None) -> InstanceError:
    return InstanceError(reason, place=place, path=path)
