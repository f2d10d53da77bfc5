"""A schedule whose tasks are tied together, as one way to solve it: its program, its search and its proof."""

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
from flowlex.models.flow.assignment import placements
from flowlex.models.flow.methods import FlowRun, chosen_stage, numbered
from flowlex.models.flow.network_method import Direct
from flowlex.models.flow.stages import flow_score, stage_costs
from flowlex.models.flow.task_rules.gangs_and_spreads import Bonds
from flowlex.models.flow.task_rules.program import BondProgram, bond_program
from flowlex.models.flow.task_rules.search import Found, bond_proof, search, stage_program

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
    """The network of an instance with the rules that tie its tasks together."""

    whole: Direct
    bonds: Bonds

    @cached_property
    def costs(self) -> Mapping[str, Integers]:
        """Cost of each arc by stage; goals that cost nothing anywhere too."""
        return stage_costs(self.whole.schedule, self.whole.rules, free=True)

    @cached_property
    def bonded(self) -> BondProgram:
        """Network and rules as one integer program."""
        instance = self.whole.instance
        tasks, machines = [t.name for t in instance.tasks], [m.name for m in instance.machines]
        return bond_program(self.whole.schedule, self.bonds, tasks, machines)

    @property
    def rows(self) -> frozenset[str]:
        """Names of its rows, those that keep earlier stages included."""
        return frozenset(("stage", *self.bonded.program.constraint_blocks))

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the program."""
        program = self.bonded.program
        return {"formulation": "integer program", "rows": program.row_count, "columns": program.column_count}

    def program(self, stage: str | None) -> LinearProgram:
        """The program of a stage, the stages before it kept at their optimum."""
        names = list(self.costs)
        name = chosen_stage(stage, names)
        known = {} if name == names[0] else self.run("highs", SolveOptions()).values
        return stage_program(self.bonded, self.costs, name, {k: known[k] for k in names[: names.index(name)]})

    def run(self, engine: EngineName, options: SolveOptions) -> TiedRun:
        """Search for the best schedule, with what proves it."""
        whole = self.whole
        one = whole.combined.cost if whole.exact_sum else None
        found = search(whole.schedule, self.bonded, self.costs, engine, options, one)
        return TiedRun(found.outcome, "phases: gangs, affinities or spreads make it an integer program", self, found)


@dataclass(frozen=True, eq=False)
class TiedRun(FlowRun):
    """A schedule that keeps the rules."""

    way: Tied
    found: Found

    @cached_property
    def machine(self) -> Integers:
        """(T,) machines, read off the flow."""
        whole = self.way.whole
        return numbered(whole.instance, placements(whole.schedule, whole.instance, self.found.flow))

    @property
    def values(self) -> Mapping[str, int]:
        """Of the best schedule found."""
        return self.found.values

    def told(self, machine_of: Mapping[str, str], waiting: dict[str, str]) -> dict[str, Any]:
        """The trees that prove it."""
        way, whole = self.way, self.way.whole
        return {
            "waiting": waiting,
            "score": flow_score(whole.instance, whole.schedule, whole.rules, self.found.flow),
            "proof": bond_proof(whole.schedule, way.bonded, way.costs, self.found, whole.instance),
        }
