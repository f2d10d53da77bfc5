"""The options of our problems as solution files state them: part of the problem, so other values are refused.

Every name that a model's file may state is here, with its values and default. Some say only how the answer was found
(``network``, ``presolve``, ``seed``); a file may state any of their values.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from flowlex.validation.certificates.verifier_interface import Numeric, Strict

_NotNegative = Annotated[float, Field(ge=0)]


class _Penalties(Strict):
    type: Literal["Penalties"] = "Penalties"
    rack: Numeric = 1.0
    between_racks: Numeric = 1.0
    waiting: Numeric = 1.0


class NoOptions(Strict):
    """Minimum-cost flow."""


class GpuOptions(Strict):
    """GPU assignment."""

    policy: Literal["FSP", "FS", "FSU"] = "FSP"
    network: Literal["compact", "paper", "published"] = "compact"
    penalties: _Penalties = Field(default_factory=_Penalties)
    stop_price: Numeric = 0.0
    waiting: Literal["least", "priced"] = "least"
    stage: Literal["transfer", "stops", "waiting"] = "transfer"


class LoadOptions(Strict):
    """Load partition; a capacity may also be the name of a user's own function."""

    capacity: str = "configuration"
    objective: Literal["targets", "makespan"] = "targets"
    level: Literal["node", "item"] = "node"


class JitOptions(Strict):
    """Just-in-time bandwidth."""

    horizon: Literal["slots", "intervals"] = "slots"
    share: Annotated[float, Field(gt=0, le=1)] = 0.4
    load: Literal["pair", "port", "sender", "receiver"] = "pair"
    integrality: Literal["auto", "lp", "mip"] = "auto"
    windows: Literal["strict", "elastic"] | None = None
    program: Literal["P1", "P2", "P3", "P4"] = "P2"
    presolve: bool | None = None
    lat: Literal["critical", "paper", "paper-job"] = "critical"
    share_of: Literal["transfers", "bytes"] = "transfers"
    stage: Annotated[str, Field(pattern="^(lateness|level_[0-9]+)$")] | None = None
    extra_slots: Annotated[int, Field(ge=0)] = 0


class AllocationOptions(Strict):
    """Allocation of GPU time."""

    policy: Literal[
        "max_min", "water_filling", "hierarchical", "makespan", "finish_time", "max_throughput", "min_cost"
    ] = "max_min"
    aware: bool = True
    sharing: bool = True
    deadlines: bool | None = None
    tolerance: _NotNegative = 1e-6
    pricing: bool | None = None
    parts: Annotated[int, Field(ge=1)] = 1
    seed: int = 0


class PodOptions(Strict):
    """Pod placement."""

    balance: Literal["deviation", "max_load", "mean_absolute"] = "deviation"
    cards: bool = True
    move_budget: _NotNegative = 0.0
    moves: Literal["free", "least"] = "free"
    admission: Literal["lexicographic", "weighted", "fair"] = "lexicographic"
    worth: Literal["value", "gpu", "fragmentation"] = "value"
    absolute_gap: _NotNegative = 0.0
    stage: Literal["admission", "balance"] = "admission"


class FlowOptions(Strict):
    """Flow scheduling; goals are read by `flowlex.validation.restated.flow`."""

    goals: list[dict[str, Any] | str] | None = None
    preset: Literal["quincy", "borg", "alsched", "load_spread", "random", "none"] = "borg"
    wait_cost: Numeric | None = None
    order: Literal["auto", "weights", "phases"] = "auto"
    lexicographic: bool = False
    scale: int | None = None
    stage: str | None = None
