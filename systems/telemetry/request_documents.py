"""The documents of the REST interface, with limits on the size of a request."""

from __future__ import annotations

import json
from math import isfinite
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

#: Longest value, as JSON text.
MAX_VALUE_BYTES = 65_536
#: Most samples in one write.
MAX_BATCH = 1_000
#: Longest message of a failed run.
MAX_ERROR_CHARS = 300
#: Year 2100: later time stamps are a damaged clock.
MAX_TIME = 4_102_444_800.0

#: A data name, a node's or a program's.
NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
_NAME = f"^{NAME}$"
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


def _integer(value: Any) -> Any:
    """Accept 2.0 as the integer 2, as JSON Schema does; strings and booleans are no integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Document(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Request(_Document):
    # Strict: "1" is no number, so that nothing unintended is stored.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def encode_value(value: JsonValue) -> str:
    """Return a value's JSON text; ``ValueError`` when it is too long, not finite, or half a surrogate pair."""
    # The most frequent case skips the encoder; the text is the same.
    text = repr(value) if type(value) is float and isfinite(value) else _ENCODE(value)
    if "\\ud" in text:
        json.dumps(value, ensure_ascii=False).encode()
    if len(text) > MAX_VALUE_BYTES:
        raise ValueError(f"the value is {len(text)} bytes as JSON; at most {MAX_VALUE_BYTES} are stored")
    return text


_BY_KIND: dict[str, Any] = {
    "if": {"properties": {"kind": {"const": "processor"}}, "required": ["kind"]},
    "then": {"properties": {"inputs": {"minItems": 1}}, "required": ["inputs"]},
    "else": {"properties": {"inputs": {"maxItems": 0}, "window_s": {"maximum": 0}, "scope": {"const": "node"}}},
}


class Registration(_Request):
    """What is to be collected: a data name and the program whose output becomes its value.

    ``{node}`` in an argument becomes the node's name. ``nodes`` and ``labels`` both restrict where it runs (empty: no
    restriction); ``replicas`` bounds the number of live nodes that run it. A processor of ``scope`` ``all`` reads its
    inputs of every node.
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
    replicas: Annotated[int, Field(ge=1, le=100_000), BeforeValidator(_integer)] | None = None
    unit: Unit = ""
    inputs: Annotated[list[DataName], Field(max_length=20)] = []
    window_s: Annotated[float, Field(ge=0, le=31_536_000)] = 0.0
    scope: Literal["node", "all"] = "node"

    @model_validator(mode="after")
    def _inputs_of_processors(self) -> Self:
        if self.kind == "processor" and not self.inputs:
            raise ValueError("a processor needs inputs: the data names it reads")
        if self.kind == "collector" and (self.inputs or self.window_s or self.scope != "node"):
            raise ValueError("a collector reads no stored data; leave out inputs, window_s and scope")
        return self


class Registered(Registration):
    """A stored registration, and reasons why it may never have a value."""

    doubts: list[str] = []


class Running(Registered):
    """A registration and the living nodes that run it."""

    on: list[str] = []


class AgentHello(_Request):
    """An agent introduces itself: labels of its node and the programs its command folder allows."""

    labels: Labels = {}
    programs: Annotated[list[ProgramName], Field(max_length=1_000)] = []


class Heartbeat(_Request):
    """An agent is alive: what it runs and how many samples wait in its journal."""

    running: Annotated[list[DataName], Field(max_length=1_000)] = []
    buffered: Annotated[int, Field(ge=0, le=2**53), BeforeValidator(_integer)] = 0


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
    """All assignments of a node; its agent stops everything else."""

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

    ``value`` is null for a run that failed. ``seq`` numbers the samples of one ``source``. A sample that arrives twice
    with the same time and value is stored once; the same number with other content is refused as a conflict (a copied
    or restored agent starts a new source). ``age_s`` is the age of the sample when it is sent, by a monotonic clock;
    without it, the time stamp is compared with the service's clock.
    """

    name: DataName
    time: UnixTime
    value: JsonValue = None
    unit: Unit = ""
    exit_code: Annotated[int, Field(ge=-255, le=255), BeforeValidator(_integer)] = 0
    error: Message = ""
    seq: Annotated[int, Field(ge=1, le=2**53), BeforeValidator(_integer)] | None = None
    age_s: Annotated[float, Field(ge=0, le=MAX_TIME, allow_inf_nan=False)] | None = None

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
    """The write is on disk: of ``accepted`` samples, ``stored`` were new and ``known`` existed with this content."""

    accepted: int
    stored: int
    known: int


class Reading(_Document):
    """The last stored value of one name on one node, with its age, and the last run, which may have failed.

    ``time`` is by the node's clock, ``arrived`` by the service's clock; ``age_s`` counts real seconds since the
    sampling. ``ahead_s`` above 0 marks a sample from the future: the node's clock is wrong by at least that.
    """

    name: str
    node: str
    value: JsonValue
    unit: str
    time: float
    arrived: float
    age_s: float
    ahead_s: float
    stale: bool
    last_run: float
    last_exit_code: int
    last_error: str


class NoValue(_Document):
    """A series of which no run has succeeded yet, and how its last run failed."""

    name: str
    node: str
    last_run: float
    last_exit_code: int
    last_error: str


class Readings(_Document):
    """A page of last values by name and node.

    ``no_value`` lists series without a successful run; ``missing`` the requested pairs of name and node without a
    value; ``next`` is the value of ``after`` for the next page, null on the last.
    """

    readings: list[Reading]
    no_value: list[NoValue]
    missing: list[tuple[str, str]]
    next: str | None


class StoredSample(_Document):
    """One entry of a history."""

    name: str
    node: str
    time: float
    arrived: float
    value: JsonValue
    unit: str
    exit_code: int
    error: str


class HistoryAnswer(_Document):
    """The samples of a window, oldest first; ``truncated`` when the limit cut the oldest off."""

    samples: list[StoredSample]
    truncated: bool


class Aggregate(_Document):
    """The numeric samples of one series in the minute or hour that begins at ``start``."""

    name: str
    node: str
    start: int
    samples: int
    mean: float
    least: float
    most: float


class Aggregates(_Document):
    """Aggregates by time, oldest first; ``truncated`` when the limit cut the newest off."""

    step: Literal["minute", "hour"]
    aggregates: list[Aggregate]
    truncated: bool


class NodeInputs(_Document):
    """Last values and the window's history of one node, by data name."""

    last: dict[str, Reading] = {}
    history: dict[str, list[StoredSample]] = {}


class Inputs(_Document):
    """The standard input of a processor: last values and the window's history of its node.

    ``nodes`` has the same of every node for a processor of scope ``all``, and is empty otherwise.
    """

    node: str
    last: dict[str, Reading]
    history: dict[str, list[StoredSample]]
    nodes: dict[str, NodeInputs] = {}


class TokenRequest(_Request):
    """A token to be made; an agent's is bound to a node unless it may act for any."""

    role: Literal["admin", "agent", "reader"]
    node: NodeName | None = None
    any_node: bool = False
    label: Label = ""
    lasts_s: Annotated[float, Field(gt=0, le=MAX_TIME, allow_inf_nan=False)] | None = None


class TokenSecret(_Document):
    """A new token, shown once, and the Unix time at which it ends (null: never)."""

    token: str
    expires: float | None


class TokenInfo(_Document):
    """A stored token by the first digits of its digest."""

    digest: str
    role: str
    node: str | None
    label: str
    created: float
    expires: float | None


class Holder(_Document):
    """The holder of a token: its role, its node (null: any), when it ends (null: never) and its lifetime."""

    role: str
    node: str | None
    ends_in_s: float | None
    lasts_s: float | None
