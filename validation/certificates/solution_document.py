"""The contents of a solution file, as classes that refuse everything else."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema

from flowlex.errors import FlowlexError
from flowlex.instances.exact_rationals import rational
from flowlex.instances.field_descriptions import describe
from flowlex.instances.input_errors import place_in, plain_reason
from flowlex.validation.certificates.certificate import Claim
from flowlex.validation.certificates.exact_numbers import Number


def _number(value: object) -> Number:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("a number is expected, or its text such as '3/2'")
    rational(value)
    return value


#: A field that holds a `Number`.
Numeric = Annotated[Number, PlainValidator(_number), WithJsonSchema({"type": ["number", "string"]})]


class SolutionError(FlowlexError, ValueError):
    """A document that cannot be judged: no solution file, of an unknown kind or version, or of the wrong form."""


class Strict(BaseModel):
    """A piece of a solution file: no unknown fields, no number that is not finite, nothing converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)


class StatedCheck(Strict):
    """A check as a file states it; its name, size and detail are only for readers."""

    name: str
    ok: Literal[True]
    worst: float | int
    detail: str
    how: Literal["recomputed", "quoted"]


class Stated(Strict):
    """A certificate as a file states it."""

    claim: Claim
    ok: Literal[True]
    exact: bool
    tolerance: float
    checks: list[StatedCheck]


class Solved(Strict):
    """What every solution file states. Numbers are exact: integer, decimal, or the text of a fraction (``"3/2"``)."""

    model_config = ConfigDict(json_schema_extra=describe)

    kind: str
    """Kind of the instance (of a problem: ``problem``), then ``-solution``."""
    version: Literal[3]
    """Version of this format."""
    file: str = ""
    """The file of the instance or problem, as it was named."""
    instance: str
    """Name of the instance or problem."""
    fingerprint: Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
    """SHA-256 of the instance's content, comments left out; of a problem, of everything that counts in it."""
    model: str
    """Name of the model; ``problem``."""
    options: dict[str, Any]
    """The model's options; they are part of the problem."""
    engine: str
    """What solved it."""
    status: Literal["optimal", "feasible", "infeasible", "unbounded", "time_limit", "error"]
    """What is claimed."""
    objective: Numeric | None
    """Value of the answer; of several objectives of a problem, of the first."""
    bound: Numeric | None
    """No answer is better than this."""
    gap: Numeric | None
    """Relative gap of objective and bound."""
    message: str
    """Message of the solver."""
    proof: dict[str, Any]
    """What the claim needs beyond the answer."""
    changes: dict[str, Any] | None = None
    """Changes of the model (see `flowlex.instances.model_changes`); absent without changes."""
    certificate: Stated | None
    """The certificate at the time of writing; `verify` makes it anew."""


class Document(Solved):
    """A solution file of a kind of instance that has a verifier."""

    stages: dict[str, Numeric]
    """Value of each stage by name, where the problem has stages."""
    metrics: dict[str, Any]
    """Figures of the answer, with units in their names."""
    answer: dict[str, Any]
    """What was decided, in the instance's own names."""
    duals: dict[str, dict[str, Annotated[Any, WithJsonSchema({"type": ["number", "string"]})]]]
    """Duals by name of the equation and label of the row."""
    values: dict[str, dict[str, Numeric]] | None = None
    """Of a changed model: the values that are not 0, by variable and label."""


def read_as(cls: type[Any], document: object, place: str) -> Any:
    """Read a piece of a document as its class; `SolutionError` names the place."""
    try:
        return cls.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = place_in((*([place] if place else ()), *first["loc"]))[:120]
        raise SolutionError(f"{where}: {plain_reason(first)}") from error
