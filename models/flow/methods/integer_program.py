"""Solve capacities and rules across tasks: the network proposes a schedule, else the statement is solved as it stands.

The network knows slots only. Where its schedule keeps capacities and rules, it is the best one. Otherwise the stages
of the statement are minimised one after the other, and equal tasks are counted (`flowlex.models.equal_labels`).

Capacities are exact: a set of tasks fits if the sum of their amounts as written is at most the capacity. A solver does
not tell 2 from 2 + 1e-300. Where its answer breaks a capacity, amounts are rounded so that nothing overfull fits, and
the network's proof bounds the answer.

What the proposal is worth (`benchmarks/paired.py`, "flow, 100 machines, quincy, network"): 0.06 s instead of 0.7 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.language.labels import StatementError
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import EngineError, EngineName, Outcome, SolveOptions, Status
from flowlex.models.flow.methods.minimum_cost_flow import FlowRun, NetworkMethod, chosen_stage
from flowlex.models.flow.solution import score_of
from flowlex.models.flow.statement import completed, state, values_of
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
        from flowlex.formulations.language.program_conversion import flat_program

        names = [objective.name for objective in self.problem.objectives]
        wanted = chosen_stage(stage, names)
        before = names[: names.index(wanted)]
        known = values_of(self.problem, self._columns(self.run("highs", SolveOptions()).machine)) if before else {}
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
        start, options, begun = self._repaired(proposal.machine), replace(options, offer=None), processor_seconds()
        for problem in self._programs():
            try:
                found = problem.solve_with(options, engine, first=self._columns(start), certify=problem is self.problem)
            except (EngineError, StatementError, RuntimeError, ArithmeticError):  # numbers that a solver does not read
                found = None
            if found is not None and found.status.has_answer and self.keeps(at := self._placed(found)):
                return self._read(engine, found, at) if found.certificate else self._unproven(engine, proposal, at)
            if options.time_limit_s is not None:
                spent = processor_seconds() - begun
                options = replace(options, time_limit_s=max(options.time_limit_s - spent, 0.1))
        return self._unproven(engine, proposal, start)

    def _programs(self) -> Iterator[Problem]:
        """The statement, if a solver reads its amounts, then one with amounts rounded to the safe side."""
        from flowlex.models.problem import Problem

        if self.network.priced.resources.readable:
            yield self.problem
        rounded = Problem(self.problem.name)
        state(rounded, self.network.priced, self.network.priced.pairs(), rounded=True)
        yield rounded

    def _repaired(self, at: Integers) -> Integers:
        """The (T,) machines of tasks without those that break a capacity or a rule; held tasks come first."""
        priced, at = self.network.priced, at.copy()
        free, demand = priced.resources.capacity.copy(), priced.resources.demand
        held = np.array([view.held for view in priced.views], bool)
        for t in np.lexsort((-priced.levels[priced.job], ~held)).tolist():
            if at[t] >= 0 and (demand[t] <= free[at[t]]).all():
                free[at[t]] -= demand[t]
            else:
                at[t] = -1
        while broken := {task for rule in priced.task_rules.broken(self._machines(at)) for task in rule}:
            gone = np.array([name in broken for name in priced.task_names], bool) & ~held & (at >= 0)
            if not gone.any():
                break
            at[gone] = -1
        return at

    def _columns(self, at: Integers) -> Floats:
        """Values of the statement's variables for (T,) machines of tasks, -1 for none."""
        p, priced = self.problem, self.network.priced
        x = p.blocks["x"].index.codes
        found: dict[str, Any] = completed(p, priced, at[x["task"]] == x["machine"], at < 0)
        placed = self._machines(at)
        tags = {machine.name: machine.tags for machine in priced.instance.machines}
        for team in priced.task_rules.teams:
            there = [tags[placed[task]] for task in team.tasks if task in placed]
            if team.whole:
                found.setdefault("gang", []).append(bool(there))
            inside = (bool(there) and all(tag in each for each in there) for tag in team.domains)
            found.setdefault(f"{team.kind}_domain", []).extend(inside)
        return np.concatenate([np.asarray(found[name], np.float64) for name in p.blocks])

    def _machines(self, at: Integers) -> dict[str, str]:
        """Machine of each running task, by name."""
        tasks, machines = self.network.priced.task_names, self.network.priced.machine_names
        return {task: machines[m] for task, m in zip(tasks, at.tolist(), strict=True) if m >= 0}

    def _placed(self, found: ProblemSolution) -> Integers:
        """(T,) machine of each task in an answer, -1 for none."""
        assert found.exact is not None
        at, x = np.full(len(self.network.priced.views), -1), self.problem.blocks["x"]
        runs = np.flatnonzero(found.exact.floats[x.columns] > 0.5)
        at[x.index.codes["task"][runs]] = x.index.codes["machine"][runs]
        return at

    def keeps(self, at: Integers) -> bool:
        """Return whether an assignment ``at`` (T,), -1 for none, satisfies capacities and task rules, exactly."""
        broken = any(self.network.priced.task_rules.broken(self._machines(at)))
        return not broken and not len(self.network.priced.resources.over(at))

    def _read(self, engine: EngineName, found: ProblemSolution, at: Integers) -> FlowRun:
        """The schedule of an answer of the statement, with the proof of its stages."""
        assert found.program is not None
        values = values_of(self.problem, self._columns(at))  # an answer in time may use expensive slots
        bounds = {name: int(stage.exact[1]) for name, stage in found.stages.items() if stage.exact[1] is not None}
        proof = to_document(found.found, in_plain_labels(found.program, self.problem))
        return self._run_of(engine, at, values, bounds, lambda: {"proof": proof})

    def _unproven(self, engine: EngineName, network: FlowRun, at: Integers) -> FlowRun:
        """A schedule that keeps all rows; the network without capacities and rules bounds and proves its stages."""
        if not (network.outcome.status.has_answer and self.keeps(at)):  # shares and limits of stops are the network's
            raise ModelError(f"{self.problem.name}: no schedule was found; give the solver more time or steps")
        x = self._columns(network.machine)[self.problem.blocks["x"].columns]
        bounded = network.outcome.status is Status.OPTIMAL and int(x.sum()) == np.count_nonzero(network.machine >= 0)
        prove = (lambda: {"proof": network.prove().get("proof", {})}) if bounded else dict
        least = values_of(self.problem, self._columns(network.machine)) if bounded else {}
        return self._run_of(engine, at, values_of(self.problem, self._columns(at)), least, prove)

    def _run_of(
        self,
        engine: EngineName,
        at: Integers,
        values: Mapping[str, int],
        least: Mapping[str, int],
        prove: Callable[[], dict[str, Any]],
    ) -> FlowRun:
        """The run of a schedule; a bound (``least``) holds while all earlier stages reach theirs."""
        priced, bounds = self.network.priced, dict[str, int]()
        for name, value in values.items():
            if name not in least:
                break
            bounds[name] = least[name]
            if least[name] != value:
                break
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
        return FlowRun(outcome, self.why, at, score, values, bounds, self.weights, prove)
