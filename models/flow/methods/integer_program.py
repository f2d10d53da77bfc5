"""Solve capacities and rules across tasks: the network proposes a schedule, else the statement is solved as it stands.

The network knows slots only. Where its schedule keeps capacities and rules, it is the best one. Otherwise the stages
of the statement are minimised one after the other, and equal tasks are counted (`flowlex.models.equal_labels`).

What the proposal is worth (`benchmarks/paired.py`, "flow, 100 machines, quincy, network"): 0.06 s instead of 0.7 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import EngineError, EngineName, Outcome, SolveOptions, Status
from flowlex.models.flow.flow_data import Resources
from flowlex.models.flow.methods.minimum_cost_flow import FlowRun, NetworkMethod, chosen_stage
from flowlex.models.flow.solution import score_of
from flowlex.models.model_base import ModelError
from flowlex.models.stated_model import in_plain_labels
from flowlex.validation.proofs.proof import to_document

if TYPE_CHECKING:
    from flowlex.models.problem import Problem
    from flowlex.models.problem_solution import ProblemSolution

#: Without limits in the options: leaves of a stage times columns, and limits of the number of leaves.
_WORK, _LEAVES = 400_000, (200, 3000)


@dataclass(frozen=True, eq=False)
class ProgramMethod:
    """The solution of an instance with capacities of machines, or with task rules that a network cannot model."""

    network: NetworkMethod
    stated: Callable[[], Problem]

    @cached_property
    def problem(self) -> Problem:
        """The statement."""
        return self.stated()

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the program."""
        p = self.problem
        return {"formulation": "integer program", "columns": p.column_count, "rows": p.row_count}

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
        return f"integer program, stage by stage: {', '.join(n for n, there in parts.items() if there)}"

    def formulation(self, stage: str | None) -> LinearProgram:
        """Return the program of a stage, with the stages before it fixed at their values."""
        from flowlex.models.problem import flat_program

        names = [objective.name for objective in self.problem.objectives]
        wanted = chosen_stage(stage, names)
        before = names[: names.index(wanted)]
        known = self.run("highs", SolveOptions()).stages if before else {}
        return flat_program(self.problem.alone(wanted, {name: known[name] for name in before}), 0)

    def run(self, engine: EngineName, options: SolveOptions) -> FlowRun:
        """Return the network's schedule if it satisfies all rows, else the schedule of the statement."""
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
        if options.time_limit_s is None and options.max_steps is None:
            leaves = int(np.clip(_WORK // max(self.problem.column_count, 1), *_LEAVES))
            options = replace(options, max_steps=leaves)
        limited = options.time_limit_s is not None
        return self._read(engine, self.problem.solve_with(replace(options, offer=None), engine, strong=limited))

    def keeps(self, at: Integers) -> bool:
        """Return whether an assignment ``at`` (T,), -1 for none, satisfies capacities and task rules."""
        priced = self.network.priced
        tasks, machines = priced.instance.tasks, priced.instance.machines
        placed = {task.name: machines[m].name for task, m in zip(tasks, at.tolist(), strict=True) if m >= 0}
        return not any(priced.task_rules.broken(placed)) and not len(Resources.of(priced.instance).over(at))

    def _read(self, engine: EngineName, found: ProblemSolution) -> FlowRun:
        """The schedule of an answer of the statement, with the proof of its stages."""
        priced, p = self.network.priced, self.problem
        if found.exact is None or found.program is None or not found.status.has_answer:
            raise ModelError(f"{p.name}: {found.message or f'no schedule was found ({found.status})'}")
        at, x = np.full(len(priced.views), -1), p.blocks["x"]
        runs = np.flatnonzero(found.exact.floats[x.columns] > 0.5)
        place = {machine.name: m for m, machine in enumerate(priced.instance.machines)}
        where = np.array([place[name] for name in x.index.levels["machine"].labels], np.int64)
        at[x.index.codes["task"][runs]] = where[x.index.codes["machine"][runs]]
        if not self.keeps(at):
            raise ModelError(f"{p.name}: capacities and demands differ in too many digits; write them with fewer")
        values = {name: int(stage.exact[0]) for name, stage in found.stages.items()}
        bounds: dict[str, int] = {}
        for name, stage in found.stages.items():
            if stage.exact[1] is None:
                break
            bounds[name] = int(stage.exact[1])
        open_ = [
            f"{name} {value} (at least {bounds.get(name, 'nothing')})"
            for name, value in values.items()
            if bounds.get(name) != value
        ]
        last, weights = list(values)[-1], self.weights
        objective = values[last] if weights is None else sum(weights[name] * value for name, value in values.items())
        earlier = any(bounds.get(name) != value for name, value in values.items() if name != last)
        bound = None if earlier or last not in bounds else objective - values[last] + bounds[last]
        outcome = Outcome(
            Status.FEASIBLE if open_ else Status.OPTIMAL,
            engine,
            objective=objective,
            bound=bound,
            message=f"not proven best: {', '.join(open_)}" if open_ else "",
        )
        score = score_of(priced.instance.jobs, priced.rules, priced.waiting_by_job(at), values)
        proof = to_document(found.found, in_plain_labels(found.program, p))
        return FlowRun(outcome, self.why, at, score, values, bounds, weights, lambda: {"proof": proof})
