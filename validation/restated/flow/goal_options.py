"""The goals of a solution file: which there are, with which fields, and in which ranks their costs count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flowlex.validation.certificates.solution_document import Numeric, Strict
from flowlex.validation.restated.flow.own_goals import OwnGoal

#: The fields of each goal beside ``weight``, with their defaults; those that are costs, in any fractions.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "Placement": {"rules": {}},
    "DataLocality": {"rack_cost": 1, "cluster_cost": 2, "threshold": 0.1, "most": 10},
    "Continuity": {"base": 1, "rate": 1, "unit_s": 60.0},
    "LoadSpread": {"step": 1},
    "RandomCosts": {"most": 1000, "seed": 0},
    "Priority": {"weights": {"placement": 1}, "mode": "strict", "omega": 10, "limits": {}, "lowest": None},
    "FairShares": {"kind": "max_min"},
}
_REAL_COSTS = ("rack_cost", "cluster_cost", "base", "rate", "step")
_SHARES = ("max_min", "weighted", "caps", "dominant")
_MODES = ("strict", "weighted", "published")
_PRESETS: dict[str, list[dict[str, Any]]] = {
    "quincy": [{"type": "Placement"}, {"type": "DataLocality"}, {"type": "Continuity", "base": 10, "rate": 10}],
    "borg": [
        {"type": "Priority"},
        {"type": "Placement"},
        {"type": "Continuity", "base": 4, "rate": 2},
        {"type": "LoadSpread"},
    ],
    "alsched": [{"type": "Placement"}],
    "load_spread": [{"type": "Placement"}, {"type": "LoadSpread"}],
    "random": [{"type": "RandomCosts"}],
    "none": [],
}


class FlowOptions(Strict):
    """Flow scheduling; `Goals` reads the goals."""

    goals: list[dict[str, Any] | str] | None = None
    preset: Literal["quincy", "borg", "alsched", "load_spread", "random", "none"] = "borg"
    wait_cost: Numeric | None = None
    order: Literal["auto", "weights", "phases"] = "auto"
    lexicographic: bool = False
    scale: int | None = None
    stage: str | None = None


@dataclass(frozen=True)
class Goals:
    """The goals of a solution file by kind, and the ranks in which their costs count."""

    by_kind: dict[str, dict[str, Any]]  # fields of each goal, defaults filled in
    ranks: tuple[str, ...]  # names of the ranks: of the goals that price anything in strict order, else ``cost`` alone
    foreign: str = ""  # A goal that no file describes and that was not handed over; empty when all are known
    own: tuple[OwnGoal, ...] = ()  # the goals of other packages

    @classmethod
    def of(cls, options: Mapping[str, Any], given: Sequence[OwnGoal] = ()) -> Goals:
        """Read the options of a solution file; ``given``: goals that it can only name."""
        said = options["goals"] if options["goals"] is not None else _PRESETS[options["preset"]]
        found: dict[str, dict[str, Any]] = {}
        own: list[OwnGoal] = []
        for goal in said:
            if not isinstance(goal, dict) or goal.get("type") not in _DEFAULTS:
                mine = next((each for each in given if each.is_stated(goal)), None)
                if mine is None or mine.name in found:
                    return cls({}, ("cost",), str(goal)[:60])
                own.append(mine)
                found[mine.name] = {"own": mine}
                continue
            fields = {key: value for key, value in goal.items() if key != "type"}
            known = {"weight": 1, **_DEFAULTS[goal["type"]]}
            if goal["type"] in found or fields.keys() - known.keys():
                raise ValueError(f"goal {goal['type']!r} is given twice or has a field that it does not know")
            if goal["type"] == "FairShares" and fields.get("kind", "max_min") not in _SHARES:
                raise ValueError(f"fair shares of kind {fields['kind']!r} are unknown")
            if goal["type"] == "Priority" and fields.get("mode", "strict") not in _MODES:
                raise ValueError(f"a priority of mode {fields['mode']!r} is unknown")
            found[goal["type"]] = known | fields
        pricing = tuple(
            kind
            for kind, goal in found.items()
            if (goal["own"].prices if "own" in goal else kind not in ("FairShares", "Priority"))
            or (kind == "Priority" and goal["mode"] != "strict")
        )
        ranks = pricing if options["lexicographic"] and len(pricing) > 1 else ("cost",)
        return cls(found, ranks, own=tuple(own))

    @property
    def real_costs(self) -> list[Any]:
        """The costs that the unit of costs must divide."""
        mine = [goal[name] for goal in self.by_kind.values() for name in _REAL_COSTS if name in goal]
        return [*mine, *(cost for goal in self.own for cost in goal.real_costs)]

    def rank(self, kind: str) -> str:
        """The rank in which a goal counts."""
        return self.ranks[0] if len(self.ranks) == 1 else kind
