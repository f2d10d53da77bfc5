"""The documents of the REST interface, with the limits that keep one request small."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    field_validator,
    model_validator,
)

__all__ = [
    "MAX_BATCH",
    "MAX_ERROR_CHARS",
    "MAX_VALUE_BYTES",
    "AgentHello",
    "AgentState",
    "Assignment",
    "Assignments",
    "DataName",
    "Heartbeat",
    "HistoryAnswer",
    "Inputs",
    "NodeName",
    "ProgramName",
    "Reading",
    "Readings",
    "Registration",
    "Sample",
    "StoredSample",
    "WriteAnswer",
    "WriteBatch",
    "encode_value",
]

#: Longest value, as JSON text.
MAX_VALUE_BYTES = 16_384
#: Most samples in one write.
MAX_BATCH = 1_000
#: Longest message of a failed run.
MAX_ERROR_CHARS = 300
#: Year 2100: later time stamps are a damaged clock.
MAX_TIME = 4_102_444_800.0

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"
_PRINTABLE = r"^[^\x00-\x1f\x7f]*$"

DataName = Annotated[str, StringConstraints(pattern=_NAME), Field(examples=["cpu_free"])]
NodeName = Annotated[str, StringConstraints(pattern=_NAME), Field(examples=["worker-1"])]
ProgramName = Annotated[str, StringConstraints(pattern=_NAME), Field(examples=["cpu_free"])]
Label = Annotated[str, StringConstraints(pattern=_PRINTABLE, max_length=100)]
Unit = Annotated[str, StringConstraints(pattern=_PRINTABLE, max_length=40)]
Argument = Annotated[str, StringConstraints(pattern=_PRINTABLE, max_length=200)]
Arguments = Annotated[list[Argument], Field(max_length=20)]
Labels = Annotated[dict[DataName, Label], Field(max_length=50, json_schema_extra={"additionalProperties": False})]
Source = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")]
Message = Annotated[str, StringConstraints(max_length=MAX_ERROR_CHARS)]
UnixTime = Annotated[float, Field(ge=0, le=MAX_TIME, allow_inf_nan=False)]


def _whole(value: Any) -> Any:
    """Take 2.0 for the integer 2, as JSON Schema does; a string or a boolean is none."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Document(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Request(_Document):
    # Strict: "1" is no number, so that what is stored is what was meant.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


def encode_value(value: JsonValue) -> str:
    """Return a value's JSON text; ``ValueError`` when it is too long, not finite, or half a surrogate pair."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    if "\\ud" in text:
        json.dumps(value, ensure_ascii=False).encode()
    if len(text) > MAX_VALUE_BYTES:
        raise ValueError(f"the value is {len(text)} bytes as JSON; at most {MAX_VALUE_BYTES} are stored")
    return text


_BY_KIND: dict[str, Any] = {
    "if": {"properties": {"kind": {"const": "processor"}}, "required": ["kind"]},
    "then": {"properties": {"inputs": {"minItems": 1}}, "required": ["inputs"]},
    "else": {"properties": {"inputs": {"maxItems": 0}, "window_s": {"maximum": 0}}},
}


class Registration(_Request):
    """What is to be collected: a data name and the program whose output becomes its value.

    ``nodes`` and ``labels`` both narrow where it runs (empty: no narrowing); ``replicas`` bounds on how many
    of the live nodes that remain.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=_BY_KIND)

    name: DataName
    program: ProgramName
    arguments: Arguments = []
    kind: Literal["collector", "processor"] = "collector"
    interval_s: Annotated[float, Field(ge=0.1, le=86_400)] = 10.0
    timeout_s: Annotated[float, Field(ge=0.05, le=3_600)] = 5.0
    nodes: Annotated[list[NodeName], Field(max_length=10_000)] = []
    labels: Labels = {}
    replicas: Annotated[int, Field(ge=1, le=100_000), BeforeValidator(_whole)] | None = None
    unit: Unit = ""
    inputs: Annotated[list[DataName], Field(max_length=20)] = []
    window_s: Annotated[float, Field(ge=0, le=31_536_000)] = 0.0

    @model_validator(mode="after")
    def _inputs_of_processors(self) -> Self:
        if self.kind == "processor" and not self.inputs:
            raise ValueError("a processor needs inputs: the data names it reads")
        if self.kind == "collector" and (self.inputs or self.window_s):
            raise ValueError("a collector reads no stored data; leave out inputs and window_s")
        return self


class AgentHello(_Request):
    """An agent introduces itself: labels of its node and the programs its command folder allows."""

    labels: Labels = {}
    programs: Annotated[list[ProgramName], Field(max_length=1_000)] = []


class Heartbeat(_Request):
    """An agent is alive: what it runs and how many samples wait in its journal."""

    running: Annotated[list[DataName], Field(max_length=1_000)] = []
    buffered: Annotated[int, Field(ge=0, le=2**53), BeforeValidator(_whole)] = 0


class Assignment(_Document):
    """One slot of an agent."""

    name: DataName
    program: ProgramName
    arguments: Arguments = []
    kind: Literal["collector", "processor"]
    interval_s: float
    timeout_s: float
    unit: Unit = ""
    inputs: list[DataName] = []
    window_s: float = 0.0


class Assignments(_Document):
    """Everything a node should run; an agent stops what is not in it."""

    revision: str
    run: list[Assignment]


class AgentState(_Document):
    """What the server knows of one node."""

    node: NodeName
    labels: dict[str, str]
    programs: list[str]
    running: list[str]
    buffered: int
    last_seen: float
    age_s: float
    alive: bool


class Sample(_Request):
    """One run of a command, wrapped: value, unit, time stamp, exit code.

    ``value`` is null for a run that failed. ``seq`` numbers the samples of one ``source``; a sample that
    arrives twice is stored once.
    """

    name: DataName
    time: UnixTime
    value: JsonValue = None
    unit: Unit = ""
    exit_code: Annotated[int, Field(ge=-255, le=255), BeforeValidator(_whole)] = 0
    error: Message = ""
    seq: Annotated[int, Field(ge=1, le=2**53), BeforeValidator(_whole)] | None = None

    @field_validator("value")
    @classmethod
    def _small(cls, value: JsonValue) -> JsonValue:
        encode_value(value)
        return value


class WriteBatch(_Request):
    """Samples of one node. All of them are stored, or none; without ``source`` numbers count per node."""

    node: NodeName
    source: Source | None = None
    samples: Annotated[list[Sample], Field(min_length=1, max_length=MAX_BATCH)]


class WriteAnswer(_Document):
    """The write is on disk: how many samples it held and how many of them were new."""

    accepted: int
    stored: int


class Reading(_Document):
    """The last stored value of one name on one node, with its age; the last run tells a failing command."""

    name: str
    node: str
    value: JsonValue
    unit: str
    time: float
    age_s: float
    stale: bool
    last_run: float
    last_exit_code: int
    last_error: str


class Readings(_Document):
    """The last values asked for; ``missing`` lists pairs asked for by name that have no value."""

    readings: list[Reading]
    missing: list[tuple[str, str]]


class StoredSample(_Document):
    """One entry of a history."""

    name: str
    node: str
    time: float
    value: JsonValue
    unit: str
    exit_code: int
    error: str


class HistoryAnswer(_Document):
    """The samples of a window, oldest first; ``truncated`` when the limit cut the oldest off."""

    samples: list[StoredSample]
    truncated: bool


class Inputs(_Document):
    """What a processor reads on its standard input: last values and the window's history of its node."""

    node: str
    last: dict[str, Reading]
    history: dict[str, list[StoredSample]]
