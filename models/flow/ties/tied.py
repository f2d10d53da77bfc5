"""A schedule whose tasks are tied together: its program, its search and its proof, as the model asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flowlex.formulations.arrays import Integers
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, SolveOptions
from flowlex.instances.flow import FlowInstance
from flowlex.models.base import ModelError
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.ties.bonds import Bonds
from flowlex.models.flow.ties.program import BondProgram, bond_program
from flowlex.models.flow.ties.search import Found, bond_proof, search, stage_program

__all__ = ["Tied", "refuse_ties"]


def refuse_ties(instance: FlowInstance, method: str) -> None:
    """Raise `ModelError` where rules tie tasks beside what they do not go with."""
    rule = next(iter((*instance.gangs, *instance.affinities, *instance.spreads)), None)
    limited = next((job.name for job in instance.jobs if job.preemptions_per_hour is not None), None)
    others = {
        "capacities of machines": bool(instance.resources),
        f"preemptions_per_hour of job {limited!r}": limited is not None,
        "method='weights'": method == "weights",
    }
    other = next((name for name, there in others.items() if there), None)
    if rule is not None and other is not None:
        raise ModelError(f"{rule.says}: rules that tie tasks do not go with {other}; drop one of the two")


@dataclass(frozen=True, eq=False)
class Tied:
    """The network of an instance with the rules that tie its tasks, and the costs of its stages.

    Attributes
    ----------
    sum_of
        One cost that comes to the same as the stages on a network; None where that would not be exact.
    """

    instance: FlowInstance
    bonds: Bonds
    schedule: ScheduleNetwork
    costs: Mapping[str, Integers]
    sum_of: Integers | None

    @cached_property
    def program(self) -> BondProgram:
        """Network and rules as one integer program."""
        tasks, machines = [t.name for t in self.instance.tasks], [m.name for m in self.instance.machines]
        return bond_program(self.schedule, self.bonds, tasks, machines)

    @property
    def rows(self) -> frozenset[str]:
        """Names of its rows, those that keep earlier stages included."""
        return frozenset(("stage", *self.program.program.constraint_blocks))

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the program."""
        program = self.program.program
        return {"formulation": "integer program", "rows": program.row_count, "columns": program.column_count}

    def search(self, engine: EngineName, options: SolveOptions) -> Found:
        """The best schedule, with what proves it."""
        return search(self.schedule, self.program, self.costs, engine, options, self.sum_of)

    def stage(self, name: str) -> LinearProgram:
        """The program of a stage, the stages before it kept at their optimum."""
        names = list(self.costs)
        known = {} if name == names[0] else self.search("highs", SolveOptions()).values
        return stage_program(self.program, self.costs, name, {k: known[k] for k in names[: names.index(name)]})

    def proof(self, found: Found) -> dict[str, Any]:
        """The trees that prove a schedule."""
        return bond_proof(self.schedule, self.program, self.costs, found, self.instance)
