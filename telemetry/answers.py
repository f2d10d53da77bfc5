"""How rows of the store and refusals become answers."""

from __future__ import annotations

import json
from typing import Any

from fastapi import HTTPException
from pydantic import BaseModel

from flowlex.telemetry.schemas import Reading, StoredSample
from flowlex.telemetry.store import LatestRow, SampleRow, decode

__all__ = ["ERRORS", "Problem", "reading", "reading_text", "refuse", "stored_sample"]


class Problem(BaseModel):
    """Why a request was refused: a word for programs and a sentence for people."""

    class Detail(BaseModel):
        """The reason, and whatever else helps."""

        reason: str
        message: str
        age_s: float | None = None

    detail: Detail


def refuse(status: int, reason: str, message: str, **more: Any) -> HTTPException:
    """Return the error to raise."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return HTTPException(status, {"reason": reason, "message": message, **more}, headers)


#: Documented on every route that takes a token.
ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "No valid token"},
    403: {"model": Problem, "description": "The token has not this right"},
    413: {"model": Problem, "description": "The request is too long"},
}


def reading(row: LatestRow, now: float, max_age: float | None) -> Reading:
    """Return a row that has a value as the document a reader gets."""
    assert row.value is not None and row.time is not None
    age = max(0.0, now - row.time)
    return Reading(
        name=row.name,
        node=row.node,
        value=decode(row.value),
        unit=row.unit or "",
        time=row.time,
        age_s=age,
        stale=max_age is not None and age > max_age,
        last_run=row.last_run,
        last_exit_code=row.last_exit_code,
        last_error=row.last_error,
    )


def stored_sample(row: SampleRow) -> StoredSample:
    """Return an entry of the history as the document a reader gets."""
    fields: dict[str, Any] = {**row.__dict__, "value": decode(row.value)}
    return StoredSample.model_construct(**fields)


def reading_text(row: LatestRow, now: float, max_age: float | None) -> str:
    """The same document as text, for reads of thousands of rows."""
    name, node, value, unit, time, last_run, code, error = row
    assert time is not None
    age = now - time if now > time else 0.0
    stale = "true" if max_age is not None and age > max_age else "false"
    # Names match a pattern without quotes; the value is JSON already; the rest is encoded.
    return (
        f'{{"name":"{name}","node":"{node}","value":{value},"unit":{_quoted(unit)},"time":{time!r},"age_s":{age!r},'
        f'"stale":{stale},"last_run":{last_run!r},"last_exit_code":{code},"last_error":{_quoted(error)}}}'
    )


def _quoted(text: str | None) -> str:
    return json.dumps(text) if text else '""'
