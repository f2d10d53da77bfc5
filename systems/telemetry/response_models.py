"""Responses made from rows of the store and from errors."""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

from fastapi import HTTPException
from pydantic import BaseModel

from flowlex.systems.telemetry.read_queries import LatestRow, SampleRow
from flowlex.systems.telemetry.service_clock import Clock

T = TypeVar("T")


class Problem(BaseModel):
    """Why a request was refused: a word for programs and a sentence for people."""

    class Detail(BaseModel):
        """The reason, and whatever else helps."""

        reason: str
        message: str
        age_s: float | None = None

    detail: Detail


class Invalid(BaseModel):
    """What is wrong with a request: where, in words, and a word for programs."""

    class Detail(BaseModel):
        """One thing that is wrong."""

        loc: list[str | int]
        msg: str
        type: str

    detail: list[Detail]


def refuse(status: int, reason: str, message: str, *, wait_s: float = 1.0, **more: Any) -> HTTPException:
    """Return the error to raise; ``wait_s`` is the retry delay for 429 and 503."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    if status in (429, 503):
        headers = {"Retry-After": str(max(1, math.ceil(wait_s)))}
    if status == 422:  # one format for all invalid requests
        return HTTPException(status, [{"loc": ["request"], "msg": message, "type": reason}])
    return HTTPException(status, {"reason": reason, "message": message, **more}, headers)


def known(found: T | None, message: str) -> T:
    """Return what was found; raise 404 with a message if it is empty."""
    if not found:
        raise refuse(404, "unknown", message)
    return found


Responses = dict[int | str, dict[str, Any]]
#: Documented where they occur.
NOT_FOUND: Responses = {404: {"model": Problem, "description": "Not known"}}
BAD_BODY: Responses = {400: {"model": Problem, "description": "The body is not JSON"}}
#: Documented on every route that takes a token.
ERRORS: Responses = {
    401: {"model": Problem, "description": "No valid token"},
    403: {"model": Problem, "description": "The token has not this right"},
    413: {"model": Problem, "description": "The request is too long"},
    422: {"model": Invalid, "description": "The request is not valid; an unknown parameter is not, either"},
    429: {"model": Problem, "description": "Too many requests; Retry-After says when to come again"},
    503: {"model": Problem, "description": "Busy, or the database is away; Retry-After says when to come again"},
}


class Ages:
    """How old rows are now, and which of them are stale."""

    def __init__(self, clock: Clock, max_age: float | None) -> None:
        self.now: float = clock.now()
        self.max_age = max_age
        self._unsure = -math.inf if clock.unsure is None else clock.unsure

    def of(self, row: LatestRow) -> tuple[float, float, bool]:
        """Return seconds since sampling, seconds by which the time stamp is ahead of arrival, and whether it is stale.

        A value that arrived before the wall clock went back across a restart is stale: its age is unknown.
        """
        assert row.time is not None and row.sampled is not None and row.arrived is not None
        age = max(0.0, self.now - row.sampled)
        stale = row.arrived <= self._unsure or (self.max_age is not None and age > self.max_age)
        return age, max(0.0, row.time - row.arrived), stale

    def text(self, row: LatestRow) -> str:
        """Format a row with a value as JSON of a `Reading`; validating thousands again would triple the time."""
        age, ahead, stale = self.of(row)
        # Names match a pattern without quotes; the value is JSON already; the rest is encoded.
        return (
            f'{{"name":"{row.name}","node":"{row.node}","value":{row.value},"unit":{_quoted(row.unit)},'
            f'"time":{row.time!r},"arrived":{row.arrived!r},"age_s":{age!r},"ahead_s":{ahead!r},'
            f'"stale":{"true" if stale else "false"},{_last_run(row)}}}'
        )


def no_value_text(row: LatestRow) -> str:
    """A row without a value as text."""
    return f'{{"name":"{row.name}","node":"{row.node}",{_last_run(row)}}}'


def sample_text(row: SampleRow) -> str:
    """An entry of the history as the text of a `StoredSample`."""
    return (
        f'{{"name":"{row.name}","node":"{row.node}","time":{row.time!r},"arrived":{row.arrived!r},"value":{row.value},'
        f'"unit":{_quoted(row.unit)},"exit_code":{row.exit_code},"error":{_quoted(row.error)}}}'
    )


def _last_run(row: LatestRow) -> str:
    error = _quoted(row.last_error)
    return f'"last_run":{row.last_run!r},"last_exit_code":{row.last_exit_code},"last_error":{error}'


def _quoted(text: str | None) -> str:
    return json.dumps(text) if text else '""'
