r"""Which task shall run where, and which shall wait, as one minimum-cost flow whose goals switch on demand.

Sets and data: tasks t of jobs j, machines m with K_m slots, groups g of machines (the cluster, racks, machines with
a label). Every task sends one unit to the sink, through a machine (it runs) or through its job's unscheduled
vertex (it waits).

All rows are balance rows of one node-arc incidence matrix, which is totally unimodular: an integer optimum always
exists and is found exactly. Tasks that must run on different machines go through groups of their own, which pass each
machine in single file (see `flowlex.models.flow.network.single_files`): still a network. Source: Sirius (Journal of
Software 28(3), 2017), Quincy (SOSP 2009); strict priorities and elastic shares are reconstructed, see
`flowlex.models.flow.offers.StageWeights`; so is single file. Where machines have capacities and tasks ask for parts
of them, the network only proposes and an integer program decides: `flowlex.models.flow.capacities.search`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import InstanceOf

from flowlex.formulations.arrays import Integers, exact_dot
from flowlex.formulations.engines import solve
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.lexicographic.network import Stage, optimal_face, solve_lexicographic
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineError, EngineName, Outcome, SolveOptions, Status
from flowlex.instances.flow import FlowInstance
from flowlex.models.base import Equation, Model, ModelError, Run, Symbol
from flowlex.models.flow.capacities.document import proof_of, room_reasons, score_of
from flowlex.models.flow.capacities.search import Fitted, Packing
from flowlex.models.flow.equations import EQUATIONS
from flowlex.models.flow.goals import Goal, Preset, preset
from flowlex.models.flow.goals.base import Scale
from flowlex.models.flow.goals.scale import common_scale
from flowlex.models.flow.network import ScheduleNetwork, build_network, task_views
from flowlex.models.flow.offers import Rules, StageWeights
from flowlex.models.flow.order import StrictOrder
from flowlex.models.flow.parts import Parted, refuse_parts, solve_by_parts
from flowlex.models.flow.places import placements
from flowlex.models.flow.preemption import refuse_limits
from flowlex.models.flow.proof import Prices, bounds_of, combined_stages, document_of, duals_of, prices_of
from flowlex.models.flow.reasons import waiting_reasons
from flowlex.models.flow.solution import FlowSolution
from flowlex.models.flow.stages import flow_score, stage_costs, waiting_levels
from flowlex.models.flow.ties.bonds import Bonds
from flowlex.models.flow.ties.search import Found
from flowlex.models.flow.ties.tied import Tied, refuse_ties
from flowlex.models.incumbents import offer

__all__ = ["FlowScheduling"]

#: Combined weights above this are not used; the stages are solved one after the other instead.
_WEIGHT_LIMIT = 2**53


@dataclass(frozen=True)
class FlowRun(Run):
    """The last stage; all where goals come one after the other (``least``: on the way, the last goal alone over the
    optima of those that are done, a bound); what amounts, ties or parts left.
    """

    stages: tuple[Stage, ...] = ()
    least: Stage | None = None
    fitted: Fitted | None = None
    found: Found | None = None
    parted: Parted | None = None


@dataclass(frozen=True, eq=False, repr=False)
class FlowScheduling(Model[FlowInstance, FlowSolution, FlowRun]):
    """The model; see the module.

    Parameters
    ----------
    goals
        What matters; overrides ``preset``.
    preset
        A cost model by name: quincy, borg, alsched, load_spread, random, none.
    wait_cost
        Cost of a waiting task; None (the default) makes running come before every other cost.
    method
        How strict orders are solved: by one provably large ``weights``, by ``phases``, or (``auto``) by weights
        unless they would leave exact integers, which `FlowSolution.method` then says.
    lexicographic
        Minimise the goals' costs in the order of ``goals`` instead of their weighted sum. Explicit costs of tasks
        and ``wait_cost`` count with the first goal that has costs.
    stage
        By phases, the stage whose program `formulation`, `compile` and ``flowlex export`` give (the last when None);
        `FlowSolution.stages` holds the optimum of each by name. Solving goes through all whatever it says.
    scale
        Real-valued costs are multiplied by it; found from the data when None.
    parts, seed
        Deal machines and tasks into so many parts (by this seed) and solve each alone (POP): faster, ``feasible``
        instead of ``optimal``, with a proven bound. Not with shares, capacities, gangs, spreads, affinities, limits on
        preemptions or goals in strict order.
    """

    goals: tuple[InstanceOf[Goal], ...] | None = None
    preset: Preset = "borg"
    wait_cost: int | float | None = None
    method: Literal["auto", "weights", "phases"] = "auto"
    lexicographic: bool = False
    scale: int | None = None
    stage: str | None = None
    parts: int = 1
    seed: int = 0

    name: ClassVar[str] = "flow-scheduling"
    title: ClassVar[str] = "Flow scheduling"
    sets: ClassVar[tuple[Symbol, ...]] = (
        Symbol("T, J", "tasks; jobs"),
        Symbol("M", "machines"),
        Symbol("G", "groups of machines: the cluster, racks, machines with a label"),
    )
    parameters: ClassVar[tuple[Symbol, ...]] = (
        Symbol("c_{ta}", "what the goals say that task t costs on machine or group a"),
        Symbol("w_t", "cost of letting task t wait"),
        Symbol("K_m", "slots of machine m"),
        Symbol("l_j, u_j", "fewest and most tasks of job j that may wait"),
    )
    unknowns: ClassVar[tuple[Symbol, ...]] = (
        Symbol("x_{ta}", "task t goes to machine or group a (0 or 1)"),
        Symbol("y_{gm}", "tasks of group g that run on machine m"),
        Symbol("z_t", "task t waits"),
    )
    objective_latex: ClassVar[str] = r"\sum_{t,a} c_{ta} x_{ta} + \sum_t w_t z_t + \sum_m f_m\Big(\sum x + y\Big)"
    equations: ClassVar[tuple[Equation, ...]] = EQUATIONS

    def _check(self) -> None:
        refuse_ties(self.instance, self.method)
        if self.wait_cost is not None and not 0 <= self.wait_cost < float("inf"):
            raise ModelError(f"wait_cost is {self.wait_cost}; it must be a finite number of at least 0")
        refuse_limits(self.instance)
        if self.parts != 1 or self.seed < 0:
            method = "" if self.lexicographic else self.method
            refuse_parts(self.instance, self.rules, self.parts, self.seed, "weights" if method == "auto" else method)

    @cached_property
    def chosen_goals(self) -> tuple[Goal, ...]:
        """The goals in force."""
        return preset(self.preset) if self.goals is None else tuple(self.goals)

    @cached_property
    def rules(self) -> Rules:
        """The goals made ready for this instance."""
        goals = self.chosen_goals
        factor = self.scale or common_scale(self.instance, goals, self.wait_cost)
        order = StrictOrder.phases(goals) if self.lexicographic else None
        return Rules(goals, self.wait_cost, Scale(factor), task_views(self.instance), order)

    @cached_property
    def schedule(self) -> ScheduleNetwork:
        """The network with what its arcs mean."""
        return build_network(self.instance, self.rules)

    @cached_property
    def packing(self) -> Packing:
        """The instance as an integer program, where machines have capacities of what tasks demand."""
        return Packing(self.instance, self.rules, self.schedule.shares)

    @cached_property
    def tied(self) -> Tied | None:
        """The instance as an integer program, where gangs, affinities or spreads tie tasks together."""
        bonds = Bonds.of(self.instance)
        if not bonds:
            return None
        exact = not self.lexicographic and self._largest_weight[1] <= _WEIGHT_LIMIT
        costs = stage_costs(self.schedule, self.rules, free=True)
        return Tied(self.instance, bonds, self.schedule, costs, self._combined.cost if exact else None)

    @cached_property
    def weights(self) -> StageWeights:
        """Weights that make the combined cost lexicographic."""
        return StageWeights.for_bound(self.schedule.cycle, self.schedule.top_level)

    @cached_property
    def _solved_by(self) -> tuple[str, str]:
        """Method in use, and why."""
        if self.tied is not None:
            return "phases", "phases: gangs, affinities or spreads make it an integer program"
        if self.lexicographic and self.method != "weights":
            return "phases", "phases: the goals are in strict order"
        if self.lexicographic:
            raise ModelError("goals in strict order are solved by phases; drop method='weights' or lexicographic")
        if self.method == "phases":
            return "phases", "phases"
        largest, path = self._largest_weight
        if path > _WEIGHT_LIMIT:
            why = f"the strict order would need a weight of {largest}, beyond exact 64-bit sums"
            if self.method == "weights":
                raise ModelError(f"{why}; use method='phases'")
            return "phases", f"phases: {why}"
        return "weights", "weights"

    @property
    def _largest_weight(self) -> tuple[int, int]:
        """The largest weight of the strict order, and what checks of 64-bit sums add up."""
        largest = self.weights.shortfall + self.weights.level * self.schedule.top_level + self.schedule.cycle
        return largest, largest * (2 * len(self.instance.jobs) + 2)

    def _prepare(self) -> None:
        _ = self.schedule  # the program of a stage rests on the stages before it, which solving makes anyhow

    def sizes(self) -> dict[str, int | str]:
        """Sizes of the network (with capacities: of the program), which all stages share."""
        if self.instance.resources:
            return self.packing.sizes
        if self.tied is not None:
            return self.tied.sizes
        network = self.schedule.network
        return {"formulation": "flow network", "nodes": network.node_count, "arcs": network.arc_count}

    def _formulate(self) -> FlowNetwork | LinearProgram:
        """The combined network; by phases that of the stage asked for, earlier optima fixed; so with capacities."""
        if self.instance.resources:
            names = self.packing.stages
            wanted = self._known_stage(names)
            first = wanted == names[0]
            values = {} if first else self.packing.values(self._machines(self._run("highs", SolveOptions())))
            return self.packing.whole(wanted, values)
        if self.tied is not None:
            return self.tied.stage(self._known_stage(list(self.tied.costs)))
        if self._solved_by[0] == "phases":
            names = list(self._stage_costs)
            wanted = self._known_stage(names)
            costs = list(self._stage_costs.values())[: names.index(wanted) + 1]
            return solve_lexicographic(self.schedule.network, costs, "network")[-1].network
        if self.stage is not None:
            raise ModelError("the goals are one weighted sum; a stage exists with method='phases' only")
        return self._combined

    @cached_property
    def _combined(self) -> FlowNetwork:
        """The network with one weighted sum of all stages."""
        return replace(self.schedule.network, cost=self.schedule.combined(self.weights))

    def _known_stage(self, names: list[str]) -> str:
        """The stage asked for, the last when none is."""
        if self.stage is not None and self.stage not in names:
            raise ModelError(f"there is no stage {self.stage!r}; the stages are: {', '.join(names)}")
        return names[-1] if self.stage is None else self.stage

    @cached_property
    def _stage_costs(self) -> dict[str, Integers]:
        """Cost of each stage by name, in order: shortfall of shares, waiting by class, then the goals."""
        return stage_costs(self.schedule, self.rules)

    @cached_property
    def stage_weights(self) -> dict[str, int] | None:
        """Weight of each stage in the combined cost; None where stages are solved one after the other."""
        if self._solved_by[0] == "phases":
            return None
        waiting = {f"waiting_{level}": self.weights.level * level for level in waiting_levels(self.schedule)}
        return {"shortfall": self.weights.shortfall, **waiting, "cost": 1}

    def _prices(self, run: FlowRun) -> Prices | None:
        """Prices that prove a run; None where it has no exact duals."""
        outcomes = [stage.outcome for stage in run.stages] or [run.outcome]
        if (
            run.found is not None
            or run.parted is not None
            or run.outcome.status is not Status.OPTIMAL
            or any(o.duals is None or o.duals.dtype.kind != "i" for o in outcomes)
        ):
            return None
        if self.stage_weights is None:
            order = self.rules.order
            ranks = ("cost",) if order is None else order.names
            names = ["shortfall", *(f"waiting_{level}" for level in waiting_levels(self.schedule)), *ranks]
            return prices_of(self.schedule, *combined_stages(self.schedule, self._stage_costs, run.stages, names))
        assert run.outcome.duals is not None
        cost = self.schedule.combined(self.weights)
        return prices_of(self.schedule, self.stage_weights, cost, run.outcome.duals)

    def _run(self, engine: EngineName, options: SolveOptions) -> FlowRun:
        if self.tied is not None:
            found = self.tied.search(engine, options)
            return FlowRun(found.outcome, found=found)
        if self.parts > 1:
            return self._parted_run(engine, options)
        if not self.instance.resources:
            return self._network_run(engine, options)
        run = self._network_run("network", SolveOptions(time_limit_s=options.time_limit_s))
        proposal = self._machines(run)
        if run.outcome.status is Status.OPTIMAL and not len(self.packing.amounts.over(proposal)):
            return run
        fitted = self.packing.solve(proposal, engine, options)
        return FlowRun(fitted.outcome, fitted=fitted)

    def _parted_run(self, engine: EngineName, options: SolveOptions) -> FlowRun:
        weights = self.stage_weights
        refuse_parts(self.instance, self.rules, self.parts, self.seed, self._solved_by[0])
        assert weights is not None
        how: Any = {"parts": self.parts, "seed": self.seed, "engine": engine, "options": replace(options, offer=None)}
        costs = {name: cost for name, cost in self._stage_costs.items() if name in weights}
        parted = solve_by_parts(self.schedule, self.instance, costs, weights, **how)
        return FlowRun(parted.outcome, parted=parted)

    def _machines(self, run: FlowRun) -> Integers:
        """(T,) number of each task's machine, -1 for none."""
        if run.fitted is not None:
            return run.fitted.machine
        if run.parted is not None:
            return run.parted.machine
        at = {machine.name: m for m, machine in enumerate(self.instance.machines)}
        answered = run.outcome.status.has_answer
        found = placements(self.schedule, self.instance, self._flow(run.outcome)) if answered else {}
        return np.array([at.get(found.get(task.name, ""), -1) for task in self.instance.tasks], np.int64)

    def _network_run(self, engine: EngineName, options: SolveOptions) -> FlowRun:
        if self._solved_by[0] == "weights":
            return FlowRun(solve(self._combined, engine, options))
        if engine != "network":
            raise EngineError("strict orders by phases are solved in exact integers; use engine='network'")

        def so_far(stages: list[Stage]) -> FlowRun:
            done, open_ones = (", ".join(names) for names in (list(costs)[: len(stages)], list(costs)[len(stages) :]))
            message = f"least {done}, in this order; not looked at: {open_ones}"
            # Later costs are those of the schedule only where the flow takes no detour: their sum is made least.
            face, rest = optimal_face(stages[-1].network, stages[-1].outcome), list(costs.values())[len(stages) :]
            found = solve(replace(face, cost=np.sum(rest, axis=0)), engine)
            if found.values is None:
                return FlowRun(found, tuple(stages))
            value, alone = exact_dot(rest[-1], self._flow(found)), replace(face, cost=rest[-1])
            least = Stage(alone, found if len(rest) == 1 else solve(alone, engine))
            last = replace(found, status=Status.FEASIBLE, objective=value, bound=least.outcome.objective)
            return FlowRun(replace(last, message=message), tuple(stages), least=least)

        def seen(stages: list[Stage]) -> None:
            offer(options, lambda: so_far(stages), often=True)

        costs = self._stage_costs
        stages = solve_lexicographic(self.schedule.network, list(costs.values()), "network", options, seen)
        if len(stages) > 1 and stages[-1].outcome.status is Status.TIME_LIMIT:
            return so_far(stages[:-1])
        return FlowRun(stages[-1].outcome, tuple(stages))

    def _interpret(self, run: FlowRun) -> FlowSolution:
        outcome = run.outcome
        solved = run.fitted or run.found or run.parted
        values = {} if solved is None else dict(solved.values)
        if run.stages and outcome.status.has_answer:
            values = {name: exact_dot(cost, self._flow(outcome)) for name, cost in self._stage_costs.items()}
        base = FlowSolution(
            **self._facts(run),
            method=self._solved_by[1] if run.fitted is None else "phases: capacities make it an integer program",
            stages=values,
            scale=self.rules.scale.factor,
            weights=self.stage_weights if run.fitted is None and run.parted is None else None,
        )
        if not outcome.status.has_answer:
            return base
        at = self._machines(run)
        pairs = zip(self.instance.tasks, at.tolist(), strict=True)
        machine_of = {task.name: self.instance.machines[m].name for task, m in pairs if m >= 0}
        views = self.schedule.views
        before = {view.task.name: view.machine for view in views}
        shares = {j.name: (int(a), int(b)) for j, (a, b) in zip(self.instance.jobs, self.schedule.shares, strict=True)}
        bonds = Bonds() if self.tied is None else self.tied.bonds
        waiting = waiting_reasons(self.instance, self.rules, machine_of, shares, bonds)
        if run.fitted is not None:
            base = replace(
                base,
                proof=proof_of(self.packing, run.fitted),
                bounds={name: bound.value for name, bound in run.fitted.bounds.items()},
                waiting=room_reasons(self.packing, run.fitted, waiting),
                score=score_of(self.packing, run.fitted, self.rules),
            )
        else:
            flow, prices = self._flow(outcome), self._prices(run)
            base = replace(base, waiting=waiting, score=flow_score(self.instance, self.schedule, self.rules, flow))
            if self.tied is not None and run.found is not None:
                base = replace(base, proof=self.tied.proof(run.found))
            if run.parted is not None:
                base = replace(base, proof=run.parted.proof, bounds=run.parted.bounds)
            if run.least is not None:
                proven = bounds_of(self.schedule, self.instance, self._stage_costs, run.stages, run.least)
                base = replace(base, **proven)
            if prices is not None:
                duals = duals_of(self.schedule, self.instance, prices, flow, machine_of)
                base = replace(base, duals=duals, proof=document_of(self.instance, prices))
        return replace(
            base,
            machine_of=machine_of,
            shares=shares if self.rules.shares is not None else {},
            placed=tuple(t for t in machine_of if before[t] is None),
            moved=tuple(t for t, m in machine_of.items() if before[t] not in (None, m)),
            stopped=tuple(t for t, m in before.items() if m is not None and t not in machine_of),
            slots={m.name: m.slots for m in self.instance.machines},
            job_of={view.task.name: view.job for view in views},
        )

    @staticmethod
    def _flow(outcome: Outcome) -> Integers:
        assert outcome.values is not None
        flow: Integers = np.rint(outcome.values).astype(np.int64)
        return flow
