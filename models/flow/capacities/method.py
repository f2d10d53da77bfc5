"""A schedule on machines with capacities, as one way to solve it: the network proposes, an integer program decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flowlex.formulations.arrays import Integers
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, SolveOptions, Status
from flowlex.models.flow.capacities.document import proof_of, room_reasons, score_of
from flowlex.models.flow.capacities.search import Fitted, Packing
from flowlex.models.flow.methods import FlowRun, chosen_stage
from flowlex.models.flow.network_method import Direct

__all__ = ["Packed"]


@dataclass(frozen=True, eq=False)
class Packed:
    """An instance whose machines have capacities of what tasks ask for."""

    whole: Direct

    @cached_property
    def packing(self) -> Packing:
        """The integer program and what is known of it."""
        return Packing(self.whole.instance, self.whole.rules, self.whole.schedule.shares)

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the integer program."""
        return self.packing.sizes

    def program(self, stage: str | None) -> LinearProgram:
        """The program of a stage over all machines, earlier optima fixed."""
        names = self.packing.stages
        wanted = chosen_stage(stage, names)
        first = wanted == names[0]
        return self.packing.whole(
            wanted, {} if first else self.packing.values(self.run("highs", SolveOptions()).machine)
        )

    def run(self, engine: EngineName, options: SolveOptions) -> FlowRun:
        """The network's answer where it fits: nothing is better. Else one that is fitted."""
        proposal = self.whole.run("network", SolveOptions(time_limit_s=options.time_limit_s))
        fits = not len(self.packing.amounts.over(proposal.machine))
        if fits and proposal.outcome.status is Status.OPTIMAL:
            return proposal
        fitted = self.packing.solve(proposal.machine, engine, options)
        return PackedRun(fitted.outcome, "phases: capacities make it an integer program", self, fitted)


@dataclass(frozen=True, eq=False)
class PackedRun(FlowRun):
    """A schedule that fits."""

    way: Packed
    fitted: Fitted

    @property
    def machine(self) -> Integers:
        """(T,) machines that have room."""
        return self.fitted.machine

    @property
    def values(self) -> Mapping[str, int]:
        """Of the schedule that fits."""
        return self.fitted.values

    def told(self, machine_of: Mapping[str, str], waiting: dict[str, str]) -> dict[str, Any]:
        """Prices of every stage's bound; a lack of room is a reason to wait."""
        packing, fitted = self.way.packing, self.fitted
        return {
            "waiting": room_reasons(packing, fitted, waiting),
            "score": score_of(packing, fitted, self.way.whole.rules),
            "proof": proof_of(packing, fitted),
            "bounds": {name: bound.value for name, bound in fitted.bounds.items()},
        }
