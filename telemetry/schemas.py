"""The documents of the REST interface, with the limits that keep one request small."""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, field_validator, model_validator

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
Source = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")]
Message = Annotated[str, StringConstraints(max_length=MAX_ERROR_CHARS)]
UnixTime = Annotated[float, Field(ge=0, le=MAX_TIME, allow_inf_nan=False)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def encode_value(value: JsonValue) -> str:
    """Return a value's JSON text, or raise ``ValueError`` when it is too long or not finite."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    if len(text) > MAX_VALUE_BYTES:
        raise ValueError(f"the value is {len(text)} bytes as JSON; at most {MAX_VALUE_BYTES} are stored")
    return text


class Registration(_Document):
    """What is to be collected: a data name and the command whose output becomes its value.

    ``nodes`` and ``labels`` both narrow where it runs (empty: no narrowing); ``replicas`` bounds on how many
    of the live nodes that remain.
    """

    name: DataName
    command: Annotated[list[Argument], Field(min_length=1, max_length=20, examples=[["cpu_free"]])]
    kind: Literal["collector", "processor"] = "collector"
    interval_s: Annotated[float, Field(ge=0.1, le=86_400)] = 10.0
    timeout_s: Annotated[float, Field(ge=0.05, le=3_600)] = 5.0
    nodes: Annotated[list[NodeName], Field(max_length=10_000)] = []
    labels: Annotated[dict[DataName, Label], Field(max_length=50)] = {}
    replicas: Annotated[int, Field(ge=1, le=100_000)] | None = None
    unit: Unit = ""
    inputs: Annotated[list[DataName], Field(max_length=20)] = []
    window_s: Annotated[float, Field(ge=0, le=31_536_000)] = 0.0

    @field_validator("command")
    @classmethod
    def _program(cls, command: list[str]) -> list[str]:
        program = command[0]
        if "/" in program or not program or program.startswith((".", "-")):
            raise ValueError(f"the program {program!r} must be a plain file name of the agent's command folder")
        return command

    @model_validator(mode="after")
    def _inputs_of_processors(self) -> Self:
        if self.kind == "processor" and not self.inputs:
            raise ValueError("a processor needs inputs: the data names it reads")
        if self.kind == "collector" and (self.inputs or self.window_s):
            raise ValueError("a collector reads no stored data; leave out inputs and window_s")
        return self


class AgentHello(_Document):
    """An agent introduces itself: labels of its node and the programs its command folder allows."""

    labels: Annotated[dict[DataName, Label], Field(max_length=50)] = {}
    programs: Annotated[list[ProgramName], Field(max_length=1_000)] = []


class Heartbeat(_Document):
    """An agent is alive: what it runs and how many samples wait in its journal."""

    running: Annotated[list[DataName], Field(max_length=1_000)] = []
    buffered: Annotated[int, Field(ge=0, le=2**53)] = 0


class Assignment(_Document):
    """One slot of an agent."""

    name: DataName
    command: list[Argument]
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


class Sample(_Document):
    """One run of a command, wrapped: value, unit, time stamp, exit code.

    ``value`` is null for a run that failed. ``seq`` numbers the samples of one ``source``; a sample that
    arrives twice is stored once.
    """

    name: DataName
    time: UnixTime
    value: JsonValue = None
    unit: Unit = ""
    exit_code: Annotated[int, Field(ge=-255, le=255)] = 0
    error: Message = ""
    seq: Annotated[int, Field(ge=1, le=2**53)] | None = None

    @field_validator("value")
    @classmethod
    def _small(cls, value: JsonValue) -> JsonValue:
        encode_value(value)
        return value


class WriteBatch(_Document):
    """Samples of one node. All of them are stored, or none."""

    node: NodeName
    source: Source | None = None
    samples: Annotated[list[Sample], Field(min_length=1, max_length=MAX_BATCH)]

    @model_validator(mode="after")
    def _numbered(self) -> Self:
        if self.source is None and any(sample.seq is not None for sample in self.samples):
            raise ValueError("samples with a seq need the batch's source")
        return self


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
