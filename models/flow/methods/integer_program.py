"""Solve capacities and task rules by one integer program over counts, stage by stage, with a proof of each stage.

1. The network, which knows slots only, is solved. If its schedule keeps all rows, it is the best one.
2. Otherwise greedy schedules give a first incumbent, and the relaxation says which sizes of slots its answer overfills;
   rows for these join those of the capacities (see `flowlex.models.flow.statement.with_sizes`).
3. The stages are minimised one after the other (`flowlex.formulations.lexicographic.objective_stages`). Counts are
   dealt to tasks and machines; if capacities keep them from fitting, a second program counts tasks machine by machine.

If the program is large or stops at its limit, the value and the proven bound of a stage differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.lexicographic.branch_and_bound_leaves import StagesOutcome
from flowlex.formulations.lexicographic.objective_stages import solve_stages
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import EngineError, EngineName, Outcome, SolveOptions, Status
from flowlex.models.flow.flow_data import Resources
from flowlex.models.flow.methods.counted_program import CountedProgram, Greedy
from flowlex.models.flow.methods.minimum_cost_flow import FlowRun, NetworkMethod, chosen_stage
from flowlex.models.flow.solution import score_of
from flowlex.models.flow.statement import Size
from flowlex.models.stated_model import in_plain_labels
from flowlex.validation.proofs.proof import to_document

if TYPE_CHECKING:
    from flowlex.formulations.language.statement import Objective
    from flowlex.models.problem import Problem

#: Without limits in the options: largest number of columns of an integer program, and of nodes per stage.
_COLUMNS, _NODES = 8_000, 500
#: Leaves of a stage: total number of columns of their linear programs, and limits of the number of leaves.
_WORK, _LEAVES = 400_000, (200, 3000)
#: Rounds of added slot sizes, and sizes added in a round.
_ROUNDS, _ADDED = 20, 400


@dataclass(frozen=True, eq=False)
class ProgramMethod:
    """The solution of an instance with capacities of machines, or with task rules that a network cannot model."""

    network: NetworkMethod

    @cached_property
    def resources(self) -> Resources:
        """Demands of tasks and capacities of machines."""
        return Resources.of(self.network.priced.instance)

    @cached_property
    def program(self) -> CountedProgram:
        """The integer program in counts."""
        return self.program_of(machines_alone=False)

    def program_of(self, *, machines_alone: bool) -> CountedProgram:
        """The integer program over classes of tasks and kinds of machines (single machines if ``machines_alone``)."""
        return CountedProgram.of(self.network.priced, counted=True, machines_alone=machines_alone)

    @cached_property
    def problem(self) -> Problem:
        """The program with the rows of all capacities that tasks could exceed."""
        return self.program.with_sizes(self.program.capacities)

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the program."""
        return {
            "formulation": "integer program",
            "columns": self.problem.column_count,
            "rows": self.problem.row_count,
        }

    @property
    def weights(self) -> Mapping[str, int] | None:
        """Weight of each stage in the objective, which the network's answers have too; None: the last stage's value."""
        return self.network.weights

    @property
    def why(self) -> str:
        """How the instance is solved, and which rules need an integer program."""
        rules = self.network.priced.task_rules
        parts = {
            "capacities": bool(self.network.priced.instance.resources),
            "gangs": any(team.whole for team in rules.teams),
            "affinities": any(not team.whole for team in rules.teams),
            "spreads": bool(rules.limits),
        }
        kinds = f"{len(self.program.task_count)} classes of tasks on {len(self.program.machine_count)} of machines"
        return f"integer program, stage by stage: {', '.join(n for n, there in parts.items() if there)}; {kinds}"

    def formulation(self, stage: str | None) -> LinearProgram:
        """Return the program of a stage, with the stages before it fixed at their values."""
        from flowlex.models.problem import flat_program

        names = [objective.name for objective in self.problem.objectives]
        wanted = chosen_stage(stage, names)
        before = names[: names.index(wanted)]
        known = self.program.columns(self.run("highs", SolveOptions()).machine) if before else np.zeros(0)
        kept = {o.name: _value(o, float(_cost(o, known) @ known)) for o in self.problem.objectives[: len(before)]}
        return flat_program(self.problem.alone(wanted, kept), 0)

    def run(self, engine: EngineName, options: SolveOptions) -> FlowRun:
        """Return the network's schedule if it satisfies all rows, else the schedule of the program."""
        proposal = self.network.run("network", SolveOptions(time_limit_s=options.time_limit_s))
        if proposal.outcome.status is Status.OPTIMAL and self.keeps(proposal.machine):
            return proposal
        if engine == "network":
            raise EngineError("engine 'network' solves flow networks only; for integer programs use 'pulp' or 'highs'")
        if options.solver is not None:
            raise EngineError(
                "capacities and task rules are solved stage by stage by HiGHS; hand model.compile(stage=...) to your "
                "solver, and what it solved to model.interpret()"
            )
        return _Search(self, engine, options).run(proposal.machine)

    def keeps(self, at: Integers) -> bool:
        """Return whether an assignment ``at`` (T,), -1 for none, satisfies capacities and task rules."""
        priced = self.network.priced
        tasks, machines = priced.instance.tasks, priced.instance.machines
        placed = {task.name: machines[m].name for task, m in zip(tasks, at.tolist(), strict=True) if m >= 0}
        return not any(priced.task_rules.broken(placed)) and not len(self.resources.over(at))


@dataclass(eq=False)
class _Search:
    method: ProgramMethod
    engine: EngineName
    options: SolveOptions
    machines: dict[bytes, Integers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        limit = self.options.time_limit_s
        self.limited = limit is not None or self.options.max_steps is not None
        self.until = inf if limit is None else processor_seconds() + limit

    def run(self, proposal: Integers) -> FlowRun:
        """Search with kinds of machines; if capacities leave a stage unproven, also with single machines."""
        program = self.method.program
        found = self._solved(program, self._first(program, proposal))
        if found.outcome.status is Status.OPTIMAL or not program.capacities:
            return found
        single = self.method.program_of(machines_alone=True)
        both = [found] if self._large(single) else [found, self._solved(single, found.machine, known=found.bounds)]
        return min(both, key=lambda each: (list(each.stages.values()), [-bound for bound in each.bounds.values()]))

    def _large(self, program: CountedProgram) -> bool:
        return bool(program.capacities) and program.problem.column_count > _COLUMNS and not self.limited

    def _solved(self, program: CountedProgram, at: Integers, known: Mapping[str, int] | None = None) -> FlowRun:
        """Minimise the stages from a schedule."""
        self.machines = {}
        start = self._known(program, at)
        sizes = self._overfull(program, start)
        problem, options = program.with_sizes(sizes), self.options
        left = None if self.until == inf else max(self.until - processor_seconds(), 0.1)
        columns, large = problem.column_count, self._large(program)
        leaves = options.max_steps or int(np.clip(_WORK // max(columns, 1), *_LEAVES))
        found = solve_stages(
            problem.arrays(None),
            [_cost(objective, start) for objective in problem.objectives],
            replace(options, time_limit_s=left, max_steps=1 if large else leaves, offer=None),
            start=start,
            accept=lambda values: self._dealt(program, values),
            nodes=0 if large else options.max_steps or _NODES,
            known=None if known is None else [float(bound) for bound in known.values()],
        )
        assert found.values is not None
        return self._left(program, problem, sizes, found, self.machines[found.values.tobytes()])

    def _first(self, program: CountedProgram, proposal: Integers) -> Integers:
        """The better of two greedy schedules near the network's."""
        kind = np.where(proposal >= 0, program.kind_of[proposal], -1)
        made = []
        for tight in (False, True):
            greedy = Greedy(program, tight=tight)
            greedy.deal(kind)
            made.append(greedy.fill())
        return min(made, key=lambda at: self._values(program, at))

    @staticmethod
    def _values(program: CountedProgram, at: Integers) -> tuple[float, ...]:
        columns = program.columns(at)
        return tuple(float(_cost(objective, columns) @ columns) for objective in program.problem.objectives)

    def _known(self, program: CountedProgram, at: Integers) -> Floats:
        """Return the columns of a schedule, and remember the schedule."""
        columns = program.columns(at)
        self.machines.setdefault(columns.tobytes(), at)
        return columns

    def _dealt(self, program: CountedProgram, values: Floats) -> Floats:
        """Return the columns of a schedule for given counts; of a near one if the counts do not fit."""
        counts, kind = program.counts(values), np.full(len(program.views), -1, np.int64)
        for k, each in enumerate(counts):
            members = np.flatnonzero(program.class_of == k)
            kinds = np.repeat(np.arange(len(each)), each)[: len(members)]
            kind[members[: len(kinds)]] = kinds
        stops = {t for t, view in enumerate(program.views) if view.held and kind[t] < 0}
        greedy = Greedy(program, tight=True, stops=stops)
        return self._known(program, greedy.at if greedy.deal(kind) else greedy.fill())

    def _overfull(self, program: CountedProgram, start: Floats) -> list[Size]:
        """Every capacity, and sizes that the relaxation of a stage overfills, the stages before as in the ``start``."""
        from flowlex.models.problem import flat_program

        sizes = dict.fromkeys(program.capacities)
        values = dict[str, Any]()
        for objective in program.problem.objectives:
            for _ in range(_ROUNDS):
                problem = program.with_sizes(list(sizes)).alone(objective.name, values)
                lp = flat_program(problem, 0).with_integer()
                outcome = solve(lp, "highs")
                if outcome.status is not Status.OPTIMAL or outcome.values is None:
                    break
                fresh = program.sizes_overfull(outcome.values, sizes, _ADDED)
                if not fresh:
                    break
                sizes |= dict.fromkeys(fresh)
            values[objective.name] = _value(objective, float(_cost(objective, start) @ start))
        return list(sizes)

    def _left(
        self, program: CountedProgram, problem: Problem, sizes: list[Size], found: StagesOutcome, at: Integers
    ) -> FlowRun:
        each = list(zip(problem.objectives, found.stages, strict=True))
        values = {objective.name: int(_value(objective, result.value)) for objective, result in each}
        bounds = {objective.name: int(_value(objective, result.bound)) for objective, result in each}
        open_ = [f"{name} {value} (at least {bounds[name]})" for name, value in values.items() if bounds[name] < value]
        columns = self.method.program.problem.column_count
        limit = (
            f"; no integer program is tried beyond {_COLUMNS} columns ({columns}) without a limit of its work; give "
            "time_limit_s or max_steps"
        )
        last, weights = list(values)[-1], self.method.weights
        objective = values[last]
        if weights is not None:
            objective = sum(weights[name] * value for name, value in values.items())
        earlier = any(bounds[name] < value for name, value in values.items() if name != last)
        bound = None if earlier else objective - values[last] + bounds[last]
        outcome = Outcome(
            Status.FEASIBLE if open_ else Status.OPTIMAL,
            self.engine,
            objective=objective,
            bound=bound,
            message=f"not proven best: {', '.join(open_)}{limit if self._large(program) else ''}" if open_ else "",
        )
        instance, rules = program.instance, program.rules
        score = score_of(instance.jobs, rules, program.priced.waiting_by_job(at), values)
        proof = self._proof(program, problem, sizes, found)
        return FlowRun(outcome, self.method.why, at, score, values, bounds, weights, lambda: {"proof": proof})

    @staticmethod
    def _proof(program: CountedProgram, problem: Problem, sizes: list[Size], found: StagesOutcome) -> dict[str, Any]:
        """Proof document: classes and kinds by their first member, sizes, and the leaves of each stage."""
        c, resources = program, program.resources
        names = [machine.name for machine in program.instance.machines]
        stated = [
            {"machine": names[c.first_machine[m]], "resource": resources.names[r], "size": str(d * resources.units[r])}
            for m, r, d in sizes
        ]
        from flowlex.models.exact_proofs import exact_proof
        from flowlex.validation.proofs.own_statement import exact_program

        exact = exact_program(problem)
        return {
            "classes": _groups(c.class_of, [view.task.name for view in program.views]),
            "machines": _groups(c.kind_of, names),
            "sizes": stated,
            **to_document(exact_proof(exact, found), in_plain_labels(exact, problem)),
        }


def _cost(objective: Objective, columns: Floats) -> Floats:
    """(n,) coefficients to be minimised."""
    return (-1.0 if objective.maximize else 1.0) * objective.cost(len(columns))


def _value(objective: Objective, minimised: float) -> Fraction:
    """The value of an objective: a multiple of its unit where it is near to one."""
    unit = objective.unit or Fraction(1)
    internal = minimised / float(unit)
    whole = Fraction(round(internal)) if abs(internal - round(internal)) < 1e-6 else Fraction(internal)
    return ((-whole if objective.maximize else whole) + Fraction(objective.constant)) * unit


def _groups(of: Integers, names: list[str]) -> dict[str, list[str]]:
    """Groups named by their first member, with their other members; groups of one are omitted."""
    found: dict[int, list[str]] = {}
    for name, group in zip(names, of.tolist(), strict=True):
        found.setdefault(group, []).append(name)
    return {members[0]: members[1:] for members in found.values() if len(members) > 1}
