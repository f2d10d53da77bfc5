"""What a model of flow scheduling asks of each way to solve it: the network, its parts, ties of tasks, capacities."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, Outcome, SolveOptions
from flowlex.instances.flow import FlowInstance
from flowlex.models.base import ModelError, Run

__all__ = ["FlowRun", "Way", "chosen_stage", "flow_of", "numbered"]


@dataclass(frozen=True, eq=False)
class FlowRun(Run):
    """What a way leaves."""

    #: How it was solved, and why.
    method: str

    @property
    @abstractmethod
    def machine(self) -> Integers:
        """(T,) number of each task's machine, -1 for none."""

    @property
    @abstractmethod
    def values(self) -> Mapping[str, int]:
        """What each stage comes to, by name; empty where there are none."""

    @property
    def weights(self) -> Mapping[str, int] | None:
        """Weight of each stage in the objective; None where stages come one after the other."""
        return None

    @abstractmethod
    def told(self, machine_of: Mapping[str, str], waiting: dict[str, str]) -> dict[str, Any]:
        """Score, proof and bounds of an answer, duals where there are some, and why tasks wait."""


class Way(Protocol):
    """One way to solve an instance."""

    @property
    def why(self) -> str:
        """Which method this is, and why it is used."""

    @property
    def rows(self) -> Collection[str]:
        """Names of its rows."""

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of what is solved."""

    def formulation(self, stage: str | None) -> FlowNetwork | LinearProgram:
        """What is solved in a stage (the last when None), earlier optima fixed."""

    def run(self, engine: EngineName, options: SolveOptions) -> FlowRun:
        """Solve it."""


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


def numbered(instance: FlowInstance, machine_of: Mapping[str, str]) -> Integers:
    """(T,) number of each task's machine, -1 for none."""
    at = {machine.name: m for m, machine in enumerate(instance.machines)}
    return np.array([at.get(machine_of.get(task.name, ""), -1) for task in instance.tasks], np.int64)
