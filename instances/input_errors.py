"""Errors for input that is not a valid instance."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
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


def first_fault(error: ValidationError, *, value: bool = True) -> tuple[str, str]:
    """Return place and reason of the first error of a validation; ``value``: the reason quotes what was given."""
    first = error.errors(include_url=False)[0]
    return place_in(first["loc"]), plain_reason(first, value=value)


def place_in(location: Iterable[int | str]) -> str:
    """The place of a field in a document, such as ``jobs[3].tasks[0].size_mb``."""
    text = ""
    for step in location:
        word = f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
        text += word if word.isprintable() else ascii(word)  # a field's name may hold anything
    return text


#: How pydantic says it, and how we do.
_SAYS = {
    "a valid tuple": "an array",
    "a valid list": "an array",
    "a valid array": "an array",
    "a valid dictionary": "an object",
    "an object": "an object",
    "a valid string": "a text",
    "a valid integer": "an integer",
    "a valid number": "a number",
    "a valid boolean": "true or false",
}


def plain_reason(fault: Mapping[str, Any], *, value: bool = True) -> str:
    """What is wrong with a field, from one of the ``errors()`` of a validation: what it must be, and what it is."""
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "missing":
        return "field is missing"
    if kind == "extra_forbidden":
        return "unknown field; remove it"
    if kind == "union_tag_not_found":
        return f"field {context['discriminator']} is missing"
    if kind == "union_tag_invalid":
        known = context["expected_tags"]
        near = did_you_mean(str(context["tag"]), known.replace("'", "").split(", "))
        return f"field {context['discriminator']} must be one of {known}, got {context['tag']!r}{near}"
    if kind == "value_error":
        return str(fault["msg"]).removeprefix("Value error, ")
    reason = str(fault["msg"]).replace("Input should be", "must be").split(", unable to parse", 1)[0]
    if kind in ("too_short", "too_long"):
        side, most = ("least", "min_length") if kind == "too_short" else ("most", "max_length")
        return f"must hold at {side} {counted(context[most], 'item')}, got {context.get('actual_length', 'more')}"
    if kind == "string_too_short":
        return "must not be empty"
    for said, plain in _SAYS.items():
        if reason.startswith(f"must be {said}"):
            rest = reason.removeprefix(f"must be {said}").split(" or ", 1)[0]
            reason = f"must be {plain}{rest}"
            break
    if value and not isinstance(fault["input"], (dict, list, tuple)):
        reason = f"{reason} (got {shortened(repr(fault['input']))})"
    return reason


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
