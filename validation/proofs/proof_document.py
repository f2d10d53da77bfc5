"""The form of proofs in files, as classes that refuse everything else; their JSON Schema is that of the files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from flowlex.instances.field_descriptions import describe
from flowlex.validation.certificates.solution_document import Strict

#: Version of the format.
FORMAT = 3
_NUMBER = {"type": ["number", "string"], "description": 'Exact: integer, decimal, or a text such as "3/2".'}
_TERM = {"type": "array", "prefixItems": [{"type": "string"}] * 2 + [_NUMBER], "minItems": 3, "maxItems": 3}
_BY_NAME = {"type": "object", "additionalProperties": _NUMBER, "description": "By name."}
#: Numbers and terms are read by `flowlex.validation.proofs.proof`, exactly.
Number = Annotated[Any, WithJsonSchema(_NUMBER)]
Numbers = Annotated[Any, WithJsonSchema({"anyOf": [_BY_NAME, _NUMBER]})]
Terms = list[Annotated[Any, WithJsonSchema(_TERM)]]


class _Part(BaseModel):
    model_config = Strict.model_config | ConfigDict(json_schema_extra=describe)


class RowsPart(_Part):
    """Multipliers of rows of one name."""

    default: Number = 0
    """Of all that are not listed."""
    at: dict[str, Number] = {}
    """By label."""


class BranchPart(_Part):
    """A side of an integer combination of integer variables."""

    row: Terms | str
    """Variable, label and coefficient of each term, or the name of a sum."""
    relation: Literal["<=", ">="]
    side: Number
    multiplier: Number = 0


class LeafPart(_Part):
    """Answers that satisfy all branches, and multipliers that bound the objective over them."""

    rows: dict[str, RowsPart] = {}
    """Multipliers of rows, by name."""
    shared: str | None = None
    """The name of multipliers that several leaves share."""
    complete: list[str] = []
    """Names of rows whose best multipliers the checker finds."""
    blocks: list[str] = []
    """Names of blocks whose columns are bounded by their copies."""
    earlier: Numbers = {}
    """Multipliers of earlier objectives, at most 0: by name, or one number for all of them."""
    derived: dict[str, Number] = {}
    """Multipliers of derived rows, by their number, at least 0."""
    branches: list[BranchPart] = []
    """From the root on."""
    with_earlier: bool = False
    """Add the leaves of earlier objectives as often as it helps."""
    own: Number = 1
    """Of the objective itself: 1; 0 where the leaf is shown to have no answer."""


class DerivedPart(_Part):
    """A row that follows in each of its cases, rounded up where it is an integer."""

    row: Terms
    """Variable, label and coefficient of each term."""
    stage: Annotated[int, Field(ge=0)] = 0
    """How many objectives are fixed where it holds."""
    cases: list[LeafPart] = []
    """They cover all answers."""


class ProofDocument(_Part):
    """What proves the claims of the file."""

    format: Literal[3]
    shared: dict[str, dict[str, RowsPart]] = {}
    """Multipliers of several leaves, by a name."""
    sums: dict[str, Terms] = {}
    """Sums of variables that several branches compare, by a name."""
    stages: dict[str, list[LeafPart] | str] = {}
    """The leaves that bound each objective, by its name; or the name of one listed before with the same."""
    derived: list[DerivedPart] = []
    """Each may use those before it."""
    points: dict[str, Terms] = {}
    """Of objectives with ``within``: an answer that attains the optimum."""
    empty: list[LeafPart] = []
    """Leaves that show that there is no answer."""
    point: Terms = []
    """Variable, label and value of each that is not 0."""
    ray: Terms = []
    """A direction along which an objective improves without end from the point."""
