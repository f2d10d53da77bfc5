r"""Assign tasks to machines, or let them wait, by one minimum-cost flow with composable goals.

Sets and data: tasks t of jobs j, machines m with K_m slots, groups g of machines (the cluster, racks, machines with
a label). Every task sends one unit to the sink, through a machine (it runs) or through its job's unscheduled
vertex (it waits).

All rows are balance rows of one node-arc incidence matrix, which is totally unimodular: an integer optimum always
exists and is found exactly. Tasks that must run on different machines have their own groups, which reach each machine
through one arc of capacity 1 (see `flowlex.models.flow.network.single_files`): still a network. Source: Sirius (Journal
of Software 28(3), 2017), Quincy (SOSP 2009); strict priorities, elastic shares (see
`flowlex.models.flow.arc_costs.StageWeights`) and single files are reconstructed. With capacities of machines or rules
across tasks, the network only gives a first proposal for an integer program:
`flowlex.models.flow.methods.integer_program`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import InstanceOf

from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import EngineName, SolveOptions, Status
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.goal_interface import Scale, task_views
from flowlex.models.flow.goals import FairShares, Goal, Placement, Preset, Priority, common_scale, preset
from flowlex.models.flow.lexicographic_costs import StrictOrder
from flowlex.models.flow.methods.integer_program import ProgramMethod
from flowlex.models.flow.methods.minimum_cost_flow import FlowRun, NetworkMethod, chosen_stage
from flowlex.models.flow.own_goals import AskedGoal, ask
from flowlex.models.flow.priced_instance import PricedInstance
from flowlex.models.flow.solution import FlowSolution, Score, score_of
from flowlex.models.flow.statement import NEEDED, ROWS, completed, state, values_of
from flowlex.models.flow.task_rules import TaskRules
from flowlex.models.flow.waiting_reasons import CHANGED, SHARE_USED, WORTH_MORE, waiting_reasons
from flowlex.models.html_report import html_table
from flowlex.models.model_base import Model, ModelError
from flowlex.models.stated_model import StatedModel

if TYPE_CHECKING:
    from flowlex.models.problem import Problem

#: Pairs of tasks and machines up to which the mathematics shown is that of the whole instance.
_SHOWN = 50_000


@dataclass(frozen=True, eq=False, repr=False)
class FlowScheduling(Model[FlowInstance, FlowSolution, FlowRun]):
    """The flow-scheduling model.

    Parameters
    ----------
    goals
        The goals; they override ``preset``. Goals are Python objects, also of classes of your own
        (docs/howto/extend.md); on the command line, choose a ``preset``.
    preset
        A cost model by name, see `flowlex.models.flow.goals.PRESETS`.
    wait_cost
        Cost of a waiting task; None (the default): running tasks has priority over every other cost.
    order
        How strict orders are solved: by ``weights`` that are provably large enough, by ``phases`` (one solve per
        stage), or (``auto``) by weights unless they overflow exact integers; `FlowSolution.method` says which.
    lexicographic
        Minimise the goals' costs in the order of ``goals`` instead of their weighted sum. Explicit costs of tasks
        and ``wait_cost`` belong to the first goal that has costs.
    stage
        By phases, the stage whose program `formulation`, `compile` and ``flowlex export`` return (None: the last);
        `FlowSolution.stages` contains the optimum of each stage by name. `solve` always runs every stage.
    scale
        Factor that makes real-valued costs integers; None: computed from the data.
    """

    goals: tuple[InstanceOf[Goal], ...] | None = None
    preset: Preset = "borg"
    wait_cost: int | float | None = None
    order: Literal["auto", "weights", "phases"] = "auto"
    lexicographic: bool = False
    scale: int | None = None
    stage: str | None = None

    name: ClassVar[str] = "flow-scheduling"
    title: ClassVar[str] = "Flow scheduling"
    needed: ClassVar[Mapping[str, str]] = NEEDED
    examples: ClassVar[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
        ("Strict priorities, placement, continuity and an even load (borg)", "flow-testbed", {}),
        ("Placement, data locality and continuity (quincy)", "flow-random", {"preset": "quincy"}),
        ("Max-min fair shares", "flow-testbed", {"goals": (FairShares(), Placement())}),
        ("Sirius' vector cost as printed", "flow-random", {"goals": (Priority(mode="published"), Placement())}),
    )

    @classmethod
    def declared(cls) -> frozenset[str]:
        """The names that rows of statements and networks may have."""
        return ROWS | {"group", "sink"}

    def _check(self) -> None:
        if self.wait_cost is not None and not 0 <= self.wait_cost < float("inf"):
            raise ModelError(f"wait_cost is {self.wait_cost}; it must be a finite number of at least 0")
        if self.scale is not None and self.scale < 1:
            raise ModelError(f"scale is {self.scale}; it must be a whole number of at least 1")

    @cached_property
    def chosen_goals(self) -> tuple[Goal, ...]:
        """The goals of this model: ``goals``, or those of ``preset``."""
        return preset(self.preset) if self.goals is None else tuple(self.goals)

    @cached_property
    def rules(self) -> Rules:
        """The goals, prepared for this instance."""
        goals = self.chosen_goals
        factor = self.scale or common_scale(self.instance, goals, self.wait_cost)
        order = StrictOrder.phases(goals) if self.lexicographic else None
        return Rules(goals, self.wait_cost, Scale(factor), task_views(self.instance), order)

    @cached_property
    def priced(self) -> PricedInstance:
        """The instance as its goals price it."""
        return PricedInstance(self.instance, self.rules, TaskRules.of(self.instance))

    @cached_property
    def solution_method(self) -> NetworkMethod | ProgramMethod:
        """The method that solves this instance; the integer program starts from the network's solution."""
        network = NetworkMethod(self.priced, self.order)
        if not (self.priced.task_rules or self.instance.resources):
            return network
        return ProgramMethod(network, lambda: self.unchanged_problem)

    @property
    def method(self) -> str:
        """The solution method, and the reason for it."""
        return super().method if self.as_stated else self.solution_method.why

    def _prepare(self) -> None:
        method = self.solution_method  # build the network only: a stage's program needs solves of those before it
        _ = (method.network if isinstance(method, ProgramMethod) else method).schedule

    def sizes(self) -> dict[str, int | str]:
        """Sizes of the network (with capacities or task rules: of the integer program), equal for all stages."""
        return super().sizes() if self.as_stated else self.solution_method.sizes

    def _stage_program(self, stage: str | None, before: Mapping[str, Any] | None) -> LinearProgram:
        """By default the program of the option ``stage``."""
        return super()._stage_program(self.stage if stage is None and self.as_stated else stage, before)

    def state(self, p: Problem) -> None:
        """State the schedule: ``x`` by task and machine, ``waits`` by task; see `flowlex.models.flow.statement`.

        Parameters
        ----------
        p
            The problem to state.
        """
        self._state_over(p, None)

    def _state_over(self, p: Problem, most: int | None) -> None:
        """State the schedule; ``most``: with pairs of so many tasks only."""
        state(p, self.priced, self.priced.pairs(most))

    @cached_property
    def _formulas(self) -> Problem:
        """The problem; of a large instance with pairs of few tasks, which has the same formulas."""
        if self.instance.cells <= _SHOWN:
            return self.problem
        from flowlex.models.problem import Problem

        p = Problem(self.instance.name)
        self._state_over(p, 1 + _SHOWN // len(self.instance.machines))
        return p

    def to_latex(self) -> str:
        """The model as LaTeX, derived from its statement."""
        return self._formulas.to_latex()

    def _repr_html_(self) -> str:
        return html_table(f"{self.title}: {self.instance.name}", self.sizes()) + self._formulas._repr_html_()

    def _inherit(self, before: StatedModel[FlowSolution], changes: Sequence[Any]) -> None:
        super()._inherit(before, changes)
        assert isinstance(before, FlowScheduling)
        self.__dict__.update(rules=before.rules, priced=before.priced)  # changes leave goals as they are

    def _objective_of(self, stages: Mapping[str, Fraction]) -> Fraction:
        """The unchanged model's weighted sum, so that the cost of a rule is a difference of objectives."""
        weights = self.solution_method.weights
        if weights is None:
            return super()._objective_of(stages)
        return sum((weights[name] * value for name, value in stages.items()), Fraction(0))

    def _solution_of(self, values: Mapping[str, Floats] | None, facts: dict[str, Any]) -> FlowSolution:
        base = FlowSolution(
            **facts,
            method=self.method,
            scale=self.rules.scale.factor,
            weights=self.solution_method.weights,
            shares=self._shares_by_job,
        )
        if values is None:
            return base
        index = self.unchanged_problem.blocks["x"].index
        whole = [(t, m) for (t, m), x in zip(index.tuples(), values["x"].tolist(), strict=True) if x > 1 - 1e-6]
        parts = int((np.abs(values["x"] - np.rint(values["x"])) > 1e-6).sum())
        text = f" {parts} tasks and machines share fractions; the table shows what runs as one piece." if parts else ""
        order = {task.name: k for k, task in enumerate(self.instance.tasks)}
        machine_of = {str(t): str(m) for t, m in sorted(whole, key=lambda pair: order[str(pair[0])])}
        solution = replace(base, message=f"{base.message}{text}".lstrip())
        return self._with_schedule(solution, machine_of, self._score_of(values))

    def _score_of(self, values: Mapping[str, Floats]) -> Score:
        """Score of values of the statement's variables, by the costs of the unchanged model.

        Used slots and shortfalls are counted, as a change may drop the rows that tie them to the tasks.
        """
        problem, priced = self.unchanged_problem, self.priced
        found = {**values, **completed(problem, priced, values["x"], values["waits"])}
        waiting = np.bincount(priced.job, found["waits"], len(priced.levels)).tolist()
        costs = values_of(problem, np.concatenate([found[name] for name in problem.blocks]))
        return score_of(self.instance.jobs, self.rules, waiting, costs)

    def _formulate(self) -> FlowNetwork | LinearProgram:
        """The combined network, or by phases the network of the requested stage with earlier optima fixed."""
        return self.solution_method.formulation(self.stage)

    def _own_goals(self) -> tuple[AskedGoal, ...]:
        return ask(self.instance, self.chosen_goals)

    @property
    def _is_network(self) -> bool:
        return isinstance(self.solution_method, NetworkMethod)

    def _run(self, engine: EngineName, options: SolveOptions) -> FlowRun:
        return self.solution_method.run(engine, options)

    def _interpret(self, run: FlowRun) -> FlowSolution:
        base = FlowSolution(
            **self._facts(run),
            method=run.method,
            stages=run.stages,
            scale=self.rules.scale.factor,
            weights=run.weights,
            bounds=run.bounds,
        )
        if self.stage is not None and run.outcome.status is Status.OPTIMAL:
            chosen_stage(self.stage, run.stages)
        if not run.outcome.status.has_answer:
            return base
        instance = self.instance
        pairs = zip(instance.tasks, run.machine.tolist(), strict=True)
        machine_of = {task.name: instance.machines[m].name for task, m in pairs if m >= 0}
        return replace(self._with_schedule(base, machine_of, run.score), **run.prove())

    @cached_property
    def _shares_by_job(self) -> dict[str, tuple[int, int]]:
        """(least, most) running tasks of each job; empty without a goal of shares."""
        bounds = self.priced.shares if self.rules.shares is not None else ()
        return {job.name: (int(a), int(b)) for job, (a, b) in zip(self.instance.jobs, bounds, strict=False)}

    def _with_schedule(self, base: FlowSolution, machine_of: dict[str, str], score: Score | None) -> FlowSolution:
        """Complete a solution by the assignment ``machine_of``, with the reasons of waiting tasks."""
        instance, views = self.instance, self.priced.views
        before = {view.task.name: view.machine for view in views}
        waiting = waiting_reasons(self.priced, machine_of)
        if self.as_stated:
            waiting = {t: CHANGED if why.startswith((WORTH_MORE, SHARE_USED)) else why for t, why in waiting.items()}
        return replace(
            base,
            score=score,
            waiting=waiting,
            machine_of=machine_of,
            shares=self._shares_by_job,
            placed=tuple(t for t in machine_of if before[t] is None),
            moved=tuple(t for t, m in machine_of.items() if before[t] not in (None, m)),
            stopped=tuple(t for t, m in before.items() if m is not None and t not in machine_of),
            slots={m.name: m.slots for m in instance.machines},
            job_of={view.task.name: view.job for view in views},
        )
