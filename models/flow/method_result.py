"""What every method of flow scheduling returns: the network method, and the integer program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import Outcome
from flowlex.models.flow.solution import Score
from flowlex.models.model_base import ModelError, Run

__all__ = ["FlowRun", "chosen_stage", "flow_of"]


@dataclass(frozen=True, eq=False)
class FlowRun(Run):
    """What a method returns."""

    method: str  # how it was solved, and why
    machine: Integers  # (T,) number of each task's machine, -1 for none
    score: Score | None = None  # what was minimised
    # Value of each stage, and what it is at least, by name; empty where there are none
    stages: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    # Weight of each stage in the objective; None where stages are solved one after the other
    weights: Mapping[str, int] | None = None
    prove: Callable[[], dict[str, Any]] = dict  # makes the fields ``proof`` and ``duals`` of the solution


def chosen_stage(stage: str | None, names: Iterable[str]) -> str:
    """The stage asked for, the last when none is."""
    known = list(names)
    if not known:
        raise ModelError("the goals are one weighted sum; a stage exists with order='phases' only")
    if stage is not None and stage not in known:
        raise ModelError(f"there is no stage {stage!r}; the stages are: {', '.join(known)}")
    return known[-1] if stage is None else stage


def flow_of(outcome: Outcome) -> Integers:
    """The flow of an answer."""
    assert outcome.values is not None
    flow: Integers = np.rint(outcome.values).astype(np.int64)
    return flow
