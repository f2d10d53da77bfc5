r"""Which share of the time of each GPU type does each job get?

Newer GPUs speed up some jobs more than others, so the throughput of all jobs depends on where each runs. The policy
defines the objective: maximise the least normalised throughput (``max_min``), then the next least, and so on
(``water_filling``), by weights of entities and of jobs inside them (``hierarchical``), minimise the time when the last
job ends (``makespan``), minimise the largest finish time relative to an equal share of the cluster (``finish_time``),
maximise total steps per second (``max_throughput``), or meet deadlines at least cost (``min_cost``). Two jobs may share
GPUs if the instance has throughputs of pairs. Limits (floors and caps) hold under every policy.

A changed model is solved as one linear program under ``max_min``, ``makespan``, ``max_throughput`` and ``min_cost``,
and as a sequence of them under the other policies. These take rules, bounds and own continuous variables over shares,
but no costs, as each of their programs raises jobs. Parts take no changes. User-written constraints hold like limits.
The stage ``objective`` is the common rise of all jobs (under ``makespan`` :math:`T_0 / T`, where :math:`T_0` is a lower
bound on the makespan), throughput, or cost. ``share[job,partner,gpu_type]`` is the fraction of time of a job or pair
(in a pair, ``job`` is the earlier in the instance), ``runs[job,gpu_type]`` the fraction of time that a job runs on a
type, alone or in pairs.

Source: Narayanan et al. (OSDI 2020), sections 3 to 5. Exact where the paper approximates: makespan is one program in
1/T, water filling needs no integer program, and every solution has dual values that prove it from the instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import EngineError, EngineName, Outcome, SolveOptions, Status
from flowlex.instances.allocation import AllocationInstance
from flowlex.instances.model_changes import Bounds, Changes, Constraint, Cost, Drop, Fix, Variable
from flowlex.models.allocation.allocation_linear_program import Base, JobColumns, raised_program, sums_by_job
from flowlex.models.allocation.first_incumbent import first_answer
from flowlex.models.allocation.methods.pair_pricing import PairPrices
from flowlex.models.allocation.methods.random_partition import combined, divided
from flowlex.models.allocation.policies import Step, prices_of, quickest
from flowlex.models.allocation.policy_linear_programs import TOTALS, PolicyProgram, unit_of
from flowlex.models.allocation.solution import AllocationSolution, row_labels
from flowlex.models.allocation.statement import NEEDED, ROWS, state_policy
from flowlex.models.incumbents import offer
from flowlex.models.model_base import Dual, Model, ModelError, Run
from flowlex.models.problem_solution import ProblemSolution
from flowlex.models.process_pool import side_by_side

if TYPE_CHECKING:
    from flowlex.models.problem import Problem
    from flowlex.models.solution import Solution

Policy: TypeAlias = Literal[
    "max_min", "water_filling", "hierarchical", "makespan", "finish_time", "max_throughput", "min_cost"
]
#: Policies of one linear program; most pairs of a changed model.
_STATED, _LARGEST = ("max_min", "makespan", *TOTALS), 300_000
#: What the message says of other changes of the policies of several programs.
_RAISING = "policy {!r} raises jobs program by program: {}; it takes rules, bounds and continuous variables"
#: Policies whose objective is a time or a ratio, while their program maximises the common rise of all jobs.
_BY_RISE = ("makespan", "finish_time")


@dataclass(frozen=True)
class AllocationRun(Run):
    """The outcome of the last program, and all steps."""

    steps: tuple[Step, ...] = ()
    level: Floats | None = None
    columns: JobColumns = field(default_factory=JobColumns.none)


@dataclass(frozen=True, kw_only=True, eq=False)
class RaisedSolution(ProblemSolution):
    """The answer of a changed model whose policy takes several programs, with the steps that its problem is over."""

    steps: tuple[Step, ...] = ()
    level: Floats | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Allocation(Model[AllocationInstance, AllocationSolution, AllocationRun]):
    """Fair allocation of GPU time (see the module).

    Parameters
    ----------
    instance
        GPU types, job types, jobs, and optionally pairs, entities and limits.
    policy
        See the module. ``formulation`` is the first program; its optimum is the objective. Under ``makespan`` and
        ``finish_time``, which are not linear programs in their own unit, its optimum is ``solution.rise``.
    aware
        ``max_min`` and ``water_filling``: compare throughputs; False: compare fractions of time.
    sharing
        Whether two jobs may share GPUs, if the instance has throughputs of pairs.
    deadlines
        Whether deadlines are constraints; default: only under ``max_throughput`` and ``min_cost``.
    tolerance
        ``finish_time``: relative gap between the objective and its proven bound. The time in isolation assumes an equal
        share ``N_j / (M s_m)`` of every GPU type on which the job can run; its share of the other types is not used.
    pricing
        Generate the columns of pairs by pricing (column generation, always by HiGHS): the same optimum without all
        pairs. Default: if there are more than 2 000 pairs.
    parts
        Divide jobs and GPUs at random into this many parts and solve each alone (POP). Faster, but ``feasible`` instead
        of ``optimal``, with a proven bound (on the least level only). Not for ``hierarchical`` and ``finish_time``.
    seed
        Random seed of the division into parts.

    Raises
    ------
    ModelError
        The instance cannot be divided into ``parts``, a job lacks ``steps_left`` that the policy needs, an option does
        not apply to the policy, or ``min_cost`` has no deadlines and no floors.

    Examples
    --------
    >>> from flowlex import generate, solve
    >>> solution = solve(generate("gavel-like", jobs=4), policy="makespan")
    >>> solution.status
    <Status.OPTIMAL: 'optimal'>
    """

    policy: Policy = "max_min"
    aware: bool = True
    sharing: bool = True
    deadlines: bool | None = None
    tolerance: float = 1e-6
    pricing: bool | None = None
    parts: int = 1
    seed: int = 0

    name: ClassVar[str] = "allocation"
    title: ClassVar[str] = "Allocation of GPU time"
    comparison: ClassVar[str] = "flowlex.models.allocation.baselines:compare"
    main_stage: ClassVar[str] = "objective"
    needed: ClassVar[Mapping[str, str]] = NEEDED
    examples: ClassVar[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
        ("Max-min fairness, also the first program of water filling and hierarchies", "gavel-like", {}),
        ("Makespan", "gavel-like", {"policy": "makespan"}),
        ("Finish-time fairness, at one ratio", "gavel-like", {"policy": "finish_time"}),
        ("Most throughput", "gavel-like", {"policy": "max_throughput"}),
    )

    @classmethod
    def declared(cls) -> frozenset[str]:
        """The names that rows may have."""
        return ROWS

    def state(self, p: Problem) -> None:
        """State the program of the policy, the first if it takes several.

        Parameters
        ----------
        p
            The problem to state.
        """
        state_policy(p, self.policy_program)

    def _check(self) -> None:
        if not self.aware and self.policy not in ("max_min", "water_filling"):
            raise ModelError(f"policy {self.policy!r} compares throughputs; aware=False is for max_min, water_filling")
        if not 1e-9 <= self.tolerance < 1:
            raise ModelError(f"tolerance must be at least 1e-9 and below 1, got {self.tolerance:g}")
        if self.policy in ("makespan", "finish_time"):
            for job in self.instance.jobs:
                if job.steps_left is None:
                    raise ModelError(f"job {job.name!r} has no steps_left; policy {self.policy!r} needs it")
        self._check_parts()
        floors = any(limit.least_gpus for limit in self.instance.limits)
        if self.policy == "min_cost" and not (self.keeps_deadlines or floors):
            raise ModelError("policy 'min_cost' needs a deadline or a floor: without them running nothing is cheapest")

    def _check_parts(self) -> None:
        if self.parts < 1 or self.seed < 0:
            raise ModelError(f"parts must be at least 1 and seed at least 0, got {self.parts} and {self.seed}")
        if self.parts > 1 and self.policy in ("hierarchical", "finish_time"):
            raise ModelError(f"policy {self.policy!r} compares all jobs and is not solved by parts; leave parts at 1")
        if self.parts > 1:
            divided(self.instance, self.parts, self.seed)  # raises if the instance cannot be divided

    @cached_property
    def keeps_deadlines(self) -> bool:
        """Whether deadlines exist and are constraints."""
        wanted = self.policy in ("max_throughput", "min_cost") if self.deadlines is None else self.deadlines
        return wanted and any(job.deadline_s is not None for job in self.instance.jobs)

    @cached_property
    def policy_program(self) -> PolicyProgram:
        """The complete problem, without the solution method."""
        unit = unit_of(self.instance, self.policy, aware=self.aware)
        kept: Any = {"deadlines": self.keeps_deadlines, "sharing": self.sharing, "tolerance": self.tolerance}
        return PolicyProgram(self.instance, self.policy, self.declared(), unit=unit, **kept)

    @cached_property
    def _labels(self) -> list[str]:
        return [job.name for job in self.instance.jobs]

    def _formulate(self) -> LinearProgram:
        policy, none = self.policy_program, np.zeros(len(self._labels))
        base = policy.base()
        if self.policy == "min_cost":
            base.program.minimize(policy.cost(base))
            return base.program
        if self.policy in TOTALS:
            return policy.total(base)
        if self.policy in _BY_RISE:
            base.program.name += ": how far all jobs rise"
        if self.policy == "finish_time":
            needed = np.minimum(policy.times.needed(float(policy.times.ratio(policy.best).max())), policy.best)
            return raised_program(base, base.throughput, needed / needed.max(), none, self._labels)
        return raised_program(base, policy.gain(base), policy.pace(none > 0), none, self._labels)

    @property
    def unchangeable(self) -> str:
        """Why the model takes no changes; empty if it does."""
        if self.parts > 1:
            return "a rule may join jobs of several parts; use parts=1"
        pairs = PairPrices(self.instance, sharing=self.sharing).count
        return f"{pairs} pairs, more than {_LARGEST}; use sharing=False" if pairs > _LARGEST else ""

    def _applied(self, problem: Problem, changes: Changes) -> Problem:
        """Refuse what programs that follow from one another cannot carry."""
        for each in changes if self.policy not in _STATED else ():
            told = each.terms if isinstance(each, Constraint) else (getattr(each, "variables", None),)
            if isinstance(each, Cost):
                raise ModelError(_RAISING.format(self.policy, f"no cost can be added to {each.stage!r}"))
            if isinstance(each, Variable) and each.integer:
                raise ModelError(_RAISING.format(self.policy, f"integer variables {each.name!r} leave no dual values"))
            if isinstance(each, Drop) and each.name == "level":
                raise ModelError(_RAISING.format(self.policy, "rows 'level' are its own, they cannot be dropped"))
            if isinstance(each, (Constraint, Fix, Bounds)) and any(t and t.variable == "rise" for t in told):
                raise ModelError(_RAISING.format(self.policy, "each program has its own variable 'rise'"))
        return super()._applied(problem, changes)

    @property
    def objective_stage(self) -> str:
        """The first program's objective is the solution's."""
        fills = self.policy in ("water_filling", "hierarchical") and self.parts == 1
        return "rise_1" if fills and self.all_changes else self.main_stage

    def _run_statement(
        self, engine: EngineName, options: SolveOptions, start: Solution | None, certify: bool
    ) -> ProblemSolution:
        """Solve the statement; under policies of several programs, first find the steps that it is over."""
        if self.policy in _STATED or self._restated:
            return super()._run_statement(engine, options, start, certify)
        from flowlex.formulations.language.program_conversion import flat_program
        from flowlex.models.problem import Problem

        self._check_engine(engine, options)
        options = replace(options, offer=None)
        policy = replace(self.policy_program, engine=engine, options=options)

        def changed(**of: Any) -> Problem:
            p = Problem(self.instance.name)
            state_policy(p, policy, **of)
            return super(Allocation, self)._applied(p, self.all_changes)

        limits = flat_program(changed(rising=False), None)
        columns, n = policy.base().columns, len(self._labels)
        time, throughput = sums_by_job(columns, limits.variable("share"), n)
        raised = policy.raised(Base(columns, limits, limits.variable("share"), throughput, time, np.ones(n, np.int64)))
        if raised.level is None:
            if raised.outcome.status in (Status.INFEASIBLE, Status.UNBOUNDED):
                return super()._run_statement(engine, options, None, certify)
            raise EngineError("a linear program stopped at its limit; raise time_limit_s or max_steps")
        if raised.outcome.status is not Status.OPTIMAL:
            raise EngineError("the numbers of the instance differ too much in magnitude for floating point")
        if self.policy == "finish_time":
            final = changed(ratio=raised.steps[-1].value * (1 - 1e-9))
        else:
            before = np.vstack([np.zeros((1, n), bool), [step.full for step in raised.steps]])
            final = changed(fills=[np.flatnonzero(new).tolist() for new in before[1:] & ~before[:-1]])
        found = final.solve_with(options, certify=certify, leaves=not certify)
        facts = {each.name: getattr(found, each.name) for each in fields(found)}
        return RaisedSolution(**facts, steps=raised.steps, level=raised.level)

    def _read(self, found: ProblemSolution) -> AllocationSolution:
        solution = super()._read(found)
        if not isinstance(found, RaisedSolution) or not solution.status.has_answer:
            return solution
        solution = replace(solution, steps=found.steps, level=found.level)
        if self.policy != "finish_time":
            return solution
        reached, bound = float(self.policy_program.times.ratio(solution.throughput).max()), found.steps[-1].value
        if solution.status is not Status.OPTIMAL or reached > bound * (1 + self.tolerance):
            return replace(solution, status=Status.FEASIBLE, objective=reached, bound=None, gap=None)
        gap = abs(reached - bound) / max(1.0, abs(reached))
        return replace(solution, objective=reached, bound=bound, gap=gap)

    def _solution_of(self, values: Mapping[str, Floats] | None, facts: dict[str, Any]) -> AllocationSolution:
        columns = self.policy_program.base().columns
        share = np.zeros(columns.count) if values is None else np.clip(values["share"], 0.0, None)
        return AllocationSolution(**facts, columns=columns, share=share)

    def _prepare(self) -> None:
        _ = self.policy_program  # not the formulation: it contains all pairs, which solving may not need

    def _prices_pairs(self, options: SolveOptions) -> bool | None:
        """Whether to generate pairs by pricing; None: only if there are many."""
        plain = options.solver is None and options.max_steps is None and options.algorithm == "auto"
        if self.pricing and not plain:
            raise EngineError("pricing=True needs HiGHS's simplex method; leave out solver, max_steps, algorithm")
        if self.pricing is not None or not self.sharing:
            return bool(self.pricing) and self.sharing
        return None if plain else False

    def _run(self, engine: EngineName, options: SolveOptions) -> AllocationRun:
        how: Any = {"engine": engine, "options": replace(options, offer=None)}  # parts run in other processes
        how["priced"] = self._prices_pairs(options)
        if self.parts == 1:
            offer(options, self._first)
            answer = replace(self.policy_program, **how).solve()
            run = AllocationRun(self._named(answer.outcome), answer.steps, answer.level, answer.columns)
            return (self._weaker(run) if run.outcome.status is Status.FEASIBLE else None) or run
        parts = divided(self.instance, self.parts, self.seed)
        unit = self.policy_program.unit
        tasks = [
            replace(
                self.policy_program,
                **how,
                instance=part.instance,
                unit=None if unit is None else unit[part.jobs] * part.pieces,
            )
            for part in parts
        ]
        answer = combined(self.policy_program, parts, side_by_side(PolicyProgram.solve, tasks))
        return AllocationRun(answer.outcome, answer.steps, None, answer.columns)

    def _first(self) -> AllocationRun:
        outcome, steps, columns = first_answer(self.policy_program)
        return AllocationRun(outcome, steps, None, columns)

    def _weaker(self, run: AllocationRun) -> AllocationRun | None:
        if run.outcome.status is Status.INFEASIBLE:
            message = "no answer was found, and no proof in floating point that there is none"
            return replace(run, outcome=Outcome(Status.ERROR, run.outcome.engine, message=message))
        if not run.outcome.status.has_answer or self.parts > 1 or not run.steps:
            return None
        message = "the numbers of the instance differ too much in magnitude to prove optimality in floating point"
        steps: tuple[Step, ...] = ()
        if self.policy not in ("hierarchical", "finish_time"):
            pairs = PairPrices(self.instance, sharing=self.sharing)
            prices = run.steps[0].prices
            steps = (replace(run.steps[0], value=pairs.bound(pairs.all_rows(prices), self.policy_program.goal)[0]),)
        unknown: Any = {"objective": None, "bound": None, "message": message}
        return replace(run, outcome=replace(run.outcome, status=Status.FEASIBLE, **unknown), steps=steps)

    def _named(self, outcome: Outcome) -> Outcome:
        """Complete the message of an infeasible outcome with the names of jobs whose deadlines conflict."""
        if outcome.status in (Status.OPTIMAL, Status.FEASIBLE):
            return outcome
        if outcome.status.has_answer:  # a program stopped at its limit; nothing is proven
            raise EngineError("a linear program stopped at its limit; raise time_limit_s or max_steps")
        why = outcome.infeasibility
        names = [row[9:-1] for row in why.constraints if row.startswith("deadline[")] if why is not None else []
        if why is None or not names:
            return outcome
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        message = f"the deadlines of these jobs cannot be kept together: {shown}. {why.message}"
        return replace(outcome, message=message, infeasibility=replace(why, message=message))

    def _interpret(self, run: AllocationRun) -> AllocationSolution:
        outcome, columns = run.outcome, run.columns
        facts = self._facts(run)
        incumbent = outcome.status is Status.FEASIBLE
        if (run.steps or incumbent) and outcome.values is not None:
            share = np.maximum(outcome.values[: columns.count], 0.0)
            facts["status"] = Status.OPTIMAL if self.parts == 1 and not incumbent else Status.FEASIBLE
            if run.steps:
                objective, bound = self._values(run)
                if not np.isfinite(objective):
                    stuck = f"job {self._labels[int(columns.per_job(share, len(self._labels)).argmin())]!r}"
                    raise ModelError(
                        f"{stuck} gets no time within limits and deadlines, so it never ends; loosen them or choose "
                        "another policy"
                    )
                gap = abs(objective - bound) / max(1.0, abs(objective))
                facts |= {"objective": objective, "bound": bound, "gap": gap}
        else:
            share = np.zeros(columns.count)
        steps = run.steps
        if outcome.infeasibility is not None and outcome.infeasibility.farkas is not None:
            program = self.formulation
            assert isinstance(program, LinearProgram)
            rows = prices_of(program, outcome.infeasibility.farkas)
            steps = (Step(0.0, {name: row for name, row in rows.items() if name != "level"}, share > 0),)
        prices = run.steps[0].prices if run.steps else {}
        labels = row_labels(self.instance)
        duals = {name: Dual(price, labels[name]) for name, price in prices.items()}
        about: Any = {"steps": steps, "level": run.level, "policy": self.policy_program}
        return AllocationSolution(**facts, duals=duals, columns=columns, share=share, **about)

    def _objective_of(self, stages: Mapping[str, Fraction]) -> Fraction:
        """Convert the stage value to the objective: under ``makespan``, from the common rise to seconds."""
        value = super()._objective_of(stages)
        measured = self.policy == "makespan" and not self._main_cost_changed and value > 0
        return Fraction(quickest(self.instance)) / value if measured else value

    def _reached(self, columns: JobColumns, share: Floats) -> float:
        """Compute the common rise of all gains, or the total throughput or negative cost, of given shares."""
        view, n = self.instance.arrays, len(self._labels)
        throughput = columns.per_job(share, n)
        if self.policy == "max_throughput":
            return float(throughput.sum())
        if self.policy == "min_cost":
            return -float((share * view.scale[columns.first] * view.price[columns.gpu]).sum())
        unit = self.policy_program.unit
        gain = columns.per_job(share, n, speed=False) if unit is None else throughput * unit
        return float((gain / self.policy_program.pace(np.zeros(n, bool))).min())

    def _values(self, run: AllocationRun) -> tuple[float, float]:
        """Return objective and bound in the units of the policy."""
        first = run.steps[0].value
        if self.parts > 1 or run.outcome.status is Status.FEASIBLE:
            assert run.outcome.values is not None  # there are steps
            reached = self._reached(run.columns, run.outcome.values)
            if self.policy == "makespan":
                shortest = quickest(self.instance)
                return shortest / reached if reached > 0 else float("inf"), shortest / first
            return (-reached, -first) if self.policy == "min_cost" else (reached, first)
        if self.policy == "makespan":
            return (quickest(self.instance) / first if first > 0 else float("inf"),) * 2
        if self.policy == "finish_time":
            assert run.level is not None
            return float(self.policy_program.times.ratio(run.level).max()), run.steps[-1].value
        return (-first, -first) if self.policy == "min_cost" else (first, first)
