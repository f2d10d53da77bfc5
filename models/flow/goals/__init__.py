"""Composable goals of flow scheduling, and cost-model presets by name."""

from __future__ import annotations

from typing import Literal

from flowlex.models.flow.goals.costs import Continuity, DataLocality, LoadSpread, RandomCosts
from flowlex.models.flow.goals.fair_shares import FairShares
from flowlex.models.flow.goals.goal_interface import Goal
from flowlex.models.flow.goals.placement import Placement
from flowlex.models.flow.goals.priority import Priority
from flowlex.models.model_base import ModelError

__all__ = [
    "PRESETS",
    "Continuity",
    "DataLocality",
    "FairShares",
    "Goal",
    "LoadSpread",
    "Placement",
    "Preset",
    "Priority",
    "RandomCosts",
    "preset",
]

Preset = Literal["quincy", "borg", "alsched", "load_spread", "random", "none"]

#: Cost models by name, each modelled on the scheduler of its name (the weights are our choice).
PRESETS: dict[str, tuple[Goal, ...]] = {
    "quincy": (Placement(), DataLocality(), Continuity(base=10, rate=10)),
    "borg": (Priority(mode="strict"), Placement(), Continuity(base=4, rate=2), LoadSpread()),
    "alsched": (Placement(),),
    "load_spread": (Placement(), LoadSpread()),
    "random": (RandomCosts(),),
    "none": (),
}


def preset(name: str) -> tuple[Goal, ...]:
    """Goals of a named cost model."""
    if name not in PRESETS:
        raise ModelError(f"no cost model is named {name!r}; one of: {', '.join(PRESETS)}")
    return PRESETS[name]
