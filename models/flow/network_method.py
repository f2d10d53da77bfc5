"""Solve an instance as one network: by one weighted sum of all stages, or stage by stage."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.lexicographic.lexicographic_network import Stage, optimal_face, solve_lexicographic
from flowlex.formulations.program_arrays import Integers, exact_dot
from flowlex.formulations.solver_outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.arc_costs import Rules, StageWeights
from flowlex.models.flow.method_result import (
    FlowRun,
    chosen_stage,
    flow_of,
    rank_names,
    score_of,
    stage_costs,
    waiting_by_job,
    waiting_levels,
)
from flowlex.models.flow.network import ScheduleNetwork, placements
from flowlex.models.flow.stage_proof import Prices, combined_prices, duals_of, prices_of, proof_of, waiting_prices
from flowlex.models.incumbents import offer
from flowlex.models.model_base import ModelError

#: Largest combined weight; beyond it, the stages are solved one after the other.
_WEIGHT_LIMIT = 2**53


@dataclass(frozen=True, eq=False)
class NetworkMethod:
    """The solution of an instance as one network."""

    instance: FlowInstance
    rules: Rules
    schedule: ScheduleNetwork
    asked: str  # requested method: ``auto``, ``weights`` or ``phases``

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
        """Whether one weighted sum of all stages fits exact integers."""
        return self.rules.order is None and self._largest * (2 * len(self.instance.jobs) + 2) <= _WEIGHT_LIMIT

    @cached_property
    def method(self) -> str:
        """``weights``, or ``phases`` with the reason."""
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
        """Weight of each stage in the combined cost; None if stages are solved one after the other."""
        if self.method != "weights":
            return None
        waiting = {f"waiting_{level}": self.weigh.level * level for level in waiting_levels(self.schedule)}
        return {"shortfall": self.weigh.shortfall, **waiting, "cost": 1}

    @property
    def why(self) -> str:
        """The solution method, and the reason for it."""
        return f"minimum-cost flow, by {self.method}"

    @property
    def rows(self) -> Collection[str]:
        """Names of its blocks of nodes, and of arcs with lower bounds."""
        network = self.schedule.network
        return {*network.node_blocks, *({"share"} & network.arc_blocks.keys())}

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the network, equal for all stages."""
        network = self.schedule.network
        return {"formulation": "flow network", "nodes": network.node_count, "arcs": network.arc_count}

    def formulation(self, stage: str | None) -> FlowNetwork:
        """Return the combined network, or by phases the network of a stage."""
        if self.method != "weights":
            names = list(self.costs)
            costs = list(self.costs.values())[: names.index(chosen_stage(stage, names)) + 1]
            return solve_lexicographic(self.schedule.network, costs, "network")[-1].network
        if stage is not None:
            chosen_stage(stage, ())
        return self.combined

    def run(self, engine: EngineName, options: SolveOptions) -> FlowRun:
        """Solve by weights, or by phases with a report after every stage; all engines use exact integers."""
        if self.method == "weights":
            return self._run_of(solve(self.combined, engine, options))

        def seen(stages: list[Stage]) -> None:
            offer(options, lambda: self._so_far(stages, engine), often=True)

        costs = list(self.costs.values())
        stages = solve_lexicographic(self.schedule.network, costs, engine, options, seen)
        last = stages[-1].outcome
        if len(stages) > 1 and last.status in (Status.TIME_LIMIT, Status.FEASIBLE):
            return self._so_far(stages[:-1], engine)
        if last.status is Status.FEASIBLE:  # stopped in the first stage
            last = replace(last, objective=exact_dot(costs[-1], flow_of(last)), bound=None)
        return self._run_of(last, stages)

    def _so_far(self, stages: list[Stage], engine: EngineName) -> FlowRun:
        """Best solution after the first stages: minimise the sum of the other costs on their optimal face."""
        names, costs = list(self.costs), list(self.costs.values())
        done, open_ones = (", ".join(part) for part in (names[: len(stages)], names[len(stages) :]))
        message = f"least {done}, in this order; not looked at: {open_ones}"
        # A flow could take detours at later costs that the schedule does not have, so their sum is minimised.
        face, rest = optimal_face(stages[-1].network, stages[-1].outcome), costs[len(stages) :]
        found = solve(replace(face, cost=np.sum(rest, axis=0)), engine)
        if found.values is None:
            return self._run_of(found, stages)
        value, known = exact_dot(rest[-1], flow_of(found)), list(stages)
        if len(rest) == 1:
            known.append(Stage(replace(face, cost=rest[0]), found))
        bounds = {name: int(stage.outcome.objective or 0) for name, stage in zip(names, known, strict=False)}
        last = replace(found, status=Status.FEASIBLE, objective=value, bound=bounds.get(names[-1]), message=message)
        prices = self._stage_prices(known, flow_of(found))
        proof = proof_of(self.schedule, self.instance, prices)
        return replace(self._run_of(last, stages), bounds=bounds, prove=lambda: {"proof": proof})

    def _stage_prices(self, stages: Sequence[Stage], flow: Integers) -> list[Prices]:
        """Prices of each of some stages that were solved one after the other; ``flow`` is optimal in all of them."""
        each = list(zip(self.costs, stages, strict=False))
        waits = [name for name, _ in each if name not in rank_names(self.rules)]
        found = waiting_prices(self.schedule, self.costs, flow, waits)
        for k in range(len(waits), len(each)):
            known = {name: self.costs[name] for name, _ in each[: k + 1]}
            found.append(combined_prices(self.schedule, known, stages[: k + 1]))
        return found

    def _run_of(self, outcome: Outcome, stages: Sequence[Stage] = ()) -> FlowRun:
        schedule, instance, blocks = self.schedule, self.instance, self.schedule.network.arc_blocks
        if not outcome.status.has_answer:
            return FlowRun(outcome, self.method, np.full(len(schedule.views), -1))
        flow = flow_of(outcome)
        machine = placements(schedule, instance, flow)
        costs = dict(zip(rank_names(self.rules), schedule.columns.ranks, strict=True))
        values = {name: exact_dot(cost, flow) for name, cost in costs.items()}
        values["shortfall"] = int(flow[blocks["short"].slice].sum())
        score = score_of(instance.jobs, self.rules, waiting_by_job(instance, machine), values)
        found = {name: exact_dot(cost, flow) for name, cost in self.costs.items()} if stages else {}
        return FlowRun(
            outcome,
            self.method,
            machine,
            score,
            found,
            {},
            self.weights,
            lambda: self._proof(outcome, stages, flow, machine),
        )

    def _proof(self, outcome: Outcome, stages: Sequence[Stage], flow: Integers, machine: Integers) -> dict[str, Any]:
        """Dual multipliers that prove optimality, and duals; empty without exact potentials."""
        schedule, potentials = self.schedule, [each.outcome.duals for each in stages] or [outcome.duals]
        if outcome.status is not Status.OPTIMAL or any(p is None or p.dtype.kind != "i" for p in potentials):
            return {}
        if self.weights is None:
            prices = self._stage_prices(stages, flow)
        else:
            assert outcome.duals is not None
            waits = [name for name in self.costs if name != "cost"]
            prices = waiting_prices(schedule, self.costs, flow, waits)
            prices.append(prices_of(schedule, self.weights, self.combined.cost, outcome.duals))
        free = [name for name in rank_names(self.rules) if name not in self.costs]
        duals = duals_of(schedule, self.instance, prices[-1], flow, machine)
        return {"duals": duals, "proof": proof_of(schedule, self.instance, prices, free)}
