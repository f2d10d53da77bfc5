"""The network solved whole: one weighted sum of all stages, or the stages one after the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from flowlex.formulations.arrays import Integers, exact_dot
from flowlex.formulations.engines import solve
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.lexicographic.network import Stage, optimal_face, solve_lexicographic
from flowlex.formulations.outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.instances.flow import FlowInstance
from flowlex.models.base import ModelError
from flowlex.models.flow.arc_costs import Rules, StageWeights
from flowlex.models.flow.assignment import placements
from flowlex.models.flow.methods import FlowRun, chosen_stage, flow_of, numbered
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.proof import Prices, bounds_of, combined_stages, document_of, duals_of, prices_of
from flowlex.models.flow.stages import flow_score, stage_costs, waiting_levels
from flowlex.models.incumbents import offer

__all__ = ["Direct"]

#: Combined weights above this are not used; the stages are solved one after the other instead.
_WEIGHT_LIMIT = 2**53


@dataclass(frozen=True, eq=False)
class Direct:
    """An instance as one network.

    Attributes
    ----------
    asked
        ``auto``, ``weights`` or ``phases``.
    """

    instance: FlowInstance
    rules: Rules
    schedule: ScheduleNetwork
    asked: str

    @cached_property
    def weigh(self) -> StageWeights:
        """Weights that make the combined cost lexicographic."""
        return StageWeights.for_bound(self.schedule.cycle, self.schedule.top_level)

    @cached_property
    def costs(self) -> dict[str, Integers]:
        """Cost of each stage by name, in order: shortfall of shares, waiting by class, then the goals."""
        return stage_costs(self.schedule, self.rules)

    @cached_property
    def combined(self) -> FlowNetwork:
        """The network with one weighted sum of all stages."""
        return replace(self.schedule.network, cost=self.schedule.combined(self.weigh))

    @property
    def _largest(self) -> int:
        """The largest weight of the strict order."""
        return self.weigh.shortfall + self.weigh.level * self.schedule.top_level + self.schedule.cycle

    @property
    def exact_sum(self) -> bool:
        """Whether one sum of all stages stays within exact integers."""
        return self.rules.order is None and self._largest * (2 * len(self.instance.jobs) + 2) <= _WEIGHT_LIMIT

    @cached_property
    def method(self) -> str:
        """``weights``, or ``phases`` and why."""
        if self.rules.order is not None:
            if self.asked == "weights":
                raise ModelError("goals in strict order are solved by phases; drop order='weights' or lexicographic")
            return "phases: the goals are in strict order"
        if self.asked == "phases" or self.exact_sum:
            return "phases" if self.asked == "phases" else "weights"
        why = f"the strict order would need a weight of {self._largest}, beyond exact 64-bit sums"
        if self.asked == "weights":
            raise ModelError(f"{why}; use order='phases'")
        return f"phases: {why}"

    @cached_property
    def weights(self) -> dict[str, int] | None:
        """Weight of each stage in the combined cost; None where stages are solved one after the other."""
        if self.method != "weights":
            return None
        waiting = {f"waiting_{level}": self.weigh.level * level for level in waiting_levels(self.schedule)}
        return {"shortfall": self.weigh.shortfall, **waiting, "cost": 1}

    @property
    def why(self) -> str:
        """How the network is solved, and why."""
        return f"minimum-cost flow, by {self.method}"

    @property
    def rows(self) -> Collection[str]:
        """Names of its nodes and of arcs with bounds of their own."""
        network = self.schedule.network
        return {*network.node_blocks, *({"share"} & network.arc_blocks.keys())}

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the network, which all stages share."""
        network = self.schedule.network
        return {"formulation": "flow network", "nodes": network.node_count, "arcs": network.arc_count}

    def formulation(self, stage: str | None) -> FlowNetwork:
        """The combined network; by phases that of a stage."""
        if self.method != "weights":
            names = list(self.costs)
            costs = list(self.costs.values())[: names.index(chosen_stage(stage, names)) + 1]
            return solve_lexicographic(self.schedule.network, costs, "network")[-1].network
        if stage is not None:
            chosen_stage(stage, ())
        return self.combined

    def run(self, engine: EngineName, options: SolveOptions) -> DirectRun:
        """Solve by weights or by phases, whose stages are told as they are done; in exact integers by every engine."""
        if self.method == "weights":
            return self._left(solve(self.combined, engine, options))

        def seen(stages: list[Stage]) -> None:
            offer(options, lambda: self._so_far(stages, engine), often=True)

        costs = list(self.costs.values())
        stages = solve_lexicographic(self.schedule.network, costs, engine, options, seen)
        last = stages[-1].outcome
        if len(stages) > 1 and last.status in (Status.TIME_LIMIT, Status.FEASIBLE):
            return self._so_far(stages[:-1], engine)
        if last.status is Status.FEASIBLE:  # stopped in the first stage
            last = replace(last, objective=exact_dot(costs[-1], flow_of(last)), bound=None)
        return self._left(last, tuple(stages))

    def _left(self, outcome: Outcome, stages: tuple[Stage, ...] = (), least: Stage | None = None) -> DirectRun:
        return DirectRun(outcome, self.method, self, stages, least)

    def _so_far(self, stages: list[Stage], engine: EngineName) -> DirectRun:
        """The best answer when only the first stages are done."""
        names, costs = list(self.costs), list(self.costs.values())
        done, open_ones = (", ".join(part) for part in (names[: len(stages)], names[len(stages) :]))
        message = f"least {done}, in this order; not looked at: {open_ones}"
        # Later costs are those of the schedule only where the flow takes no detour: their sum is made least.
        face, rest = optimal_face(stages[-1].network, stages[-1].outcome), costs[len(stages) :]
        found = solve(replace(face, cost=np.sum(rest, axis=0)), engine)
        if found.values is None:
            return self._left(found, tuple(stages))
        value, alone = exact_dot(rest[-1], flow_of(found)), replace(face, cost=rest[-1])
        least = Stage(alone, found if len(rest) == 1 else solve(alone, engine))
        last = replace(found, status=Status.FEASIBLE, objective=value, bound=least.outcome.objective, message=message)
        return self._left(last, tuple(stages), least)


@dataclass(frozen=True, eq=False)
class DirectRun(FlowRun):
    """All stages where they come one after the other; ``least``: on the way, the last goal alone over the optima of
    those that are done, a bound.
    """

    way: Direct
    stages: tuple[Stage, ...]
    least: Stage | None

    @cached_property
    def machine(self) -> Integers:
        schedule, instance = self.way.schedule, self.way.instance
        answered = self.outcome.status.has_answer
        return numbered(instance, placements(schedule, instance, flow_of(self.outcome)) if answered else {})

    @property
    def values(self) -> Mapping[str, int]:
        if not (self.stages and self.outcome.status.has_answer):
            return {}
        return {name: exact_dot(cost, flow_of(self.outcome)) for name, cost in self.way.costs.items()}

    @property
    def weights(self) -> Mapping[str, int] | None:
        return self.way.weights

    def told(self, machine_of: Mapping[str, str], waiting: dict[str, str]) -> dict[str, Any]:
        way, flow = self.way, flow_of(self.outcome)
        told: dict[str, Any] = {"waiting": waiting, "score": flow_score(way.instance, way.schedule, way.rules, flow)}
        if self.least is not None:
            told |= bounds_of(way.schedule, way.instance, way.costs, self.stages, self.least)
        if (prices := self._prices()) is not None:
            told["duals"] = duals_of(way.schedule, way.instance, prices, flow, machine_of)
            told["proof"] = document_of(way.instance, prices)
        return told

    def _prices(self) -> Prices | None:
        """Prices that prove the answer; None where it has no exact duals."""
        way = self.way
        duals = [stage.outcome.duals for stage in self.stages] or [self.outcome.duals]
        if self.outcome.status is not Status.OPTIMAL or any(d is None or d.dtype.kind != "i" for d in duals):
            return None
        if way.weights is None:
            ranks = ("cost",) if way.rules.order is None else way.rules.order.names
            names = ["shortfall", *(f"waiting_{level}" for level in waiting_levels(way.schedule)), *ranks]
            return prices_of(way.schedule, *combined_stages(way.schedule, way.costs, self.stages, names))
        assert self.outcome.duals is not None
        return prices_of(way.schedule, way.weights, way.schedule.combined(way.weigh), self.outcome.duals)
