r"""Schedule transfers and their rates such that no computation waits and the loads are as small as possible.

Every transfer of a DAG job gets a latest arrival time (`flowlex.models.jit.latest_arrival`). Among all schedules that
meet these times, we choose one with the lexicographically least sorted vector of loads (by pair of machines and slot,
or by port and slot).

The programs of the paper, P1 to P4, are stated once, in `flowlex.models.jit.statement`, and each can be changed. ``P1``
(the largest load) is solved as ``P2`` (the lexicographic minimum, in stages). ``P3`` and ``P4`` weigh all loads in one
sum; they are solved as they are stated, and refuse sizes at which their weights lose precision.

Source: Shi, Wen, Fei, Zhang 2021, and docs/papers/jit-bandwidth.md: the constraint matrix is not totally unimodular,
so integrality is tested, not assumed; the weights would overflow, so stages are used instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from flowlex.formulations.engines import solve_options
from flowlex.formulations.lexicographic.lexicographic_problem import WHOLE, Integrality
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import EngineError, EngineName, Outcome, SolveOptions, Status
from flowlex.instances.jit import JitInstance
from flowlex.models.incumbents import offer
from flowlex.models.jit.baselines import is_early
from flowlex.models.jit.interval_schedules import Blocks
from flowlex.models.jit.latest_arrival import Rule
from flowlex.models.jit.methods.incumbent import incumbent
from flowlex.models.jit.methods.load_levels import find_plan
from flowlex.models.jit.methods.plan_search import Plan, SearchState
from flowlex.models.jit.methods.presolve import ELASTIC
from flowlex.models.jit.slot_programs import Horizon
from flowlex.models.jit.solution import JitSolution, stages_of
from flowlex.models.jit.statement import NEEDED, ROWS, rate_cells, state, window_ends
from flowlex.models.jit.transfer_slot_grid import Grid, Load, ShareOf, Windows, make_grid
from flowlex.models.model_base import UNPROVEN, Model, ModelError, Run

if TYPE_CHECKING:
    from flowlex.models.problem import Problem
    from flowlex.models.problem_solution import ProblemSolution

ProgramName: TypeAlias = Literal["P1", "P2", "P3", "P4"]
#: Statements of at most so many rates are solved to prove what a plan leaves open.
_PROVEN_RATES = 2_000


@dataclass(frozen=True)
class JitRun(Run):
    """An outcome with its plan."""

    plan: Plan


@dataclass(frozen=True, eq=False, repr=False)
class JitBandwidth(Model[JitInstance, JitSolution, JitRun]):
    """Just-in-time bandwidth (see the module).

    A changed model (`with_constraint` and the others) is solved as stated, slot by slot: user rows hold in every stage.
    Labels of ``rate`` are transfer, slot, job, sender, receiver, link (``a>b``) and time (in seconds, so that
    ``slice(2, 3)`` selects). Transfers may be late up to the end by which every unchanged schedule of least lateness
    has finished; for a rule that needs more slots, raise ``extra_slots``. Equal schedules are not compared further.

    Parameters
    ----------
    horizon
        ``slots``, or ``intervals`` between consecutive starts and latest arrivals, with interchangeable slots and the
        same optimum. It applies to P1 and P2 without presolve; with presolve, intervals are always used. The
        statement uses slots; elastic windows are solved over intervals that end where a port has sent all late units
        (`flowlex.models.jit.methods.least_lateness`).
    share, share_of
        First share of every job's ``transfers`` or ``bytes``, in topological order, that is planned; the rest is
        background.
    load
        The load that is counted in every slot: of a ``pair`` of machines, of a ``port`` (both sides), or only of a
        machine's egress (``sender``) or ingress (``receiver``). All except ``port`` need no solver if no port binds.
    integrality
        ``auto``: linear programs with a test of integrality; integer programs only if a solution is fractional.
        ``lp``: linear programs only, rates may be fractional. ``mip``: integer programs only.
    windows
        ``strict``: every planned transfer arrives by its latest arrival time, else the model is infeasible.
        ``elastic`` (the default of P2; not available for other programs): minimise total lateness (units times slots)
        first.
    program
        ``P1`` to ``P4``, see the module.
    presolve
        Presolve without a solver (P1 and P2); by default on unless ``integrality`` is ``lp``.
    stage
        P2: the stage (a key of ``solution.stages``) whose program `formulation`, `compile` and ``flowlex export``
        return, with a row for each earlier stage; by default the program of the largest load. `solve` always runs
        every stage.
    lat
        Rule for latest arrival times, ``critical``, ``paper``, ``paper-job``: see `flowlex.models.jit.latest_arrival`.
    extra_slots
        Elastic windows of a changed model: further slots for transfers that rules delay. Others need none.
    """

    horizon: Horizon = "slots"
    share: float = 0.4
    load: Load = "pair"
    integrality: Integrality = "auto"
    windows: Windows | None = None
    program: ProgramName = "P2"
    presolve: bool | None = None
    lat: Rule = "critical"
    share_of: ShareOf = "transfers"
    stage: str | None = None
    extra_slots: int = 0

    name: ClassVar[str] = "jit-bandwidth"
    main_stage: ClassVar[str] = "largest"
    title: ClassVar[str] = "Just-in-time bandwidth"
    needed: ClassVar[Mapping[str, str]] = NEEDED
    examples: ClassVar[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
        ("P2: least lateness, then the lexicographic minimum", "jit-figure4", {}),
        ("P1: the largest load", "jit-figure4", {"program": "P1", "lat": "paper-job"}),
        ("P3: weights in increments", "jit-figure4", {"program": "P3", "lat": "paper-job", "share": 0.25}),
        ("P4: weights in lambda form", "jit-figure4", {"program": "P4", "lat": "paper-job", "share": 0.25}),
    )

    @classmethod
    def declared(cls) -> frozenset[str]:
        """The names that rows may have."""
        return ROWS

    @property
    def objective_stage(self) -> str:
        """Name of the stage whose value is the objective."""
        return "weighted" if self.program in ("P3", "P4") else "largest"

    def _check(self) -> None:
        if not 0 < self.share <= 1:
            raise ModelError(f"share must lie above 0 and at most at 1, got {self.share}")
        if self.presolve and self.program in ("P3", "P4"):
            raise ModelError(f"{self.program} is solved as printed; presolve works for P1 and P2 only")
        if self.horizon == "intervals" and self.program in ("P3", "P4"):
            raise ModelError(f"{self.program} is solved as printed, slot by slot; horizon works for P1 and P2 only")
        if self.presolve and self.integrality == "lp":
            raise ModelError("presolve looks for integer units; drop it or choose integrality='auto'")
        if self.stage is not None and self.program != "P2":
            raise ModelError(f"stages are those of P2, {self.program} is one program; leave stage out")
        if self.windows == "elastic" and self.program != "P2":
            raise ModelError(f"elastic windows are available for P2 only, not for {self.program}")
        if self.extra_slots < 0:
            raise ModelError(f"extra_slots must be at least 0, got {self.extra_slots}")
        if self.extra_slots and self.chosen_windows == "strict":
            raise ModelError("extra_slots lengthen elastic windows only; drop them or choose windows='elastic'")

    @cached_property
    def grid(self) -> Grid:
        """The planned transfers on the grid."""
        return make_grid(self.instance, self.share, self.chosen_windows, self.lat, self.share_of, self.extra_slots)

    @property
    def as_stated(self) -> bool:
        """Whether the statement itself is solved: the model is changed, or no other method knows program or loads."""
        return self.program in ("P3", "P4") or not self.grid.loads(self.load).cut or super().as_stated

    @property
    def method(self) -> str:
        """How the model is solved, and why."""
        if self.as_stated and not super().as_stated:
            what = self.program if self.program in ("P3", "P4") else f"loads of kind {self.load}"
            return f"integer or linear program, stage by stage: {what}"
        return super().method

    @property
    def chosen_windows(self) -> Windows:
        """The option ``windows``, or its default for the program."""
        return self.windows or ("elastic" if self.program == "P2" else "strict")

    def state(self, p: Problem) -> None:
        """State the program of the paper that is chosen.

        Parameters
        ----------
        p
            The problem to state.
        """
        elastic, whole = self.chosen_windows == "elastic", self.integrality != "lp"
        state(p, self.grid, self.load, program=self.program, elastic=elastic, whole=whole)

    def _stated(self, program: ProgramName, *, elastic: bool = False, whole: bool = True) -> Problem:
        """The statement of a program, to be solved or exported."""
        from flowlex.models.problem import Problem

        p = Problem(self.instance.name)
        state(p, self.grid, self.load, program=program, elastic=elastic, whole=whole and self.integrality != "lp")
        return p

    def _read(self, found: ProblemSolution) -> JitSolution:
        solution = super()._read(found)
        return replace(solution, message=f"{solution.message} {self._longer(solution)}".strip())

    def _longer(self, solution: JitSolution) -> str:
        """Names the option that allows later arrivals, if the windows may be what makes the rules infeasible."""
        if solution.status is not Status.INFEASIBLE:
            return ""
        if self.chosen_windows == "strict":
            return ELASTIC if self.program == "P2" else ""
        ends = window_ends(self.grid, elastic=True)
        if (ends == self.grid.firm).all():
            return ""
        return (
            f"This holds for transfers in slots 0 to {int(ends.max()) - 1}; if they may wait longer, raise the option "
            f"extra_slots (now {self.extra_slots})."
        )

    def _solution_of(self, values: Mapping[str, Floats] | None, facts: dict[str, Any]) -> JitSolution:
        """Make the solution of the rates, which may be fractional if integrality was dropped."""
        blocks = Blocks.empty()
        if values is not None:
            elastic, rate = self.chosen_windows == "elastic", values["rate"]
            cells = rate_cells(self.grid, elastic=elastic)
            whole = np.rint(rate)
            near = np.abs(rate - whole).max(initial=0.0) <= WHOLE
            blocks = cells.blocks(whole.astype(np.int64) if near else np.where(rate > WHOLE, rate, 0.0))
        return JitSolution(
            **facts, grid=self.grid, blocks=blocks, load=self.load, program=self.program, route=("statement",)
        )

    def _formulate(self) -> LinearProgram:
        """Return the program of a stage."""
        from flowlex.formulations.language.program_conversion import flat_program

        elastic = self.chosen_windows == "elastic"
        if self.program != "P2":
            return flat_program(self._stated(self.program), 0)
        if self.stage is None and (not elastic or is_early(self.grid)):
            return flat_program(self._stated("P1"), 0)
        settled = self._settled()
        self._check_stage(settled)
        statement = self._stated("P1" if self.stage is None else "P2", elastic=elastic)
        stage = self.stage or "largest"
        order = [objective.name for objective in statement.objectives]
        before = {name: Fraction(settled[name]) for name in order[: order.index(stage)] if name in settled}
        return flat_program(statement.alone(stage, before), 0)

    def _check_stage(self, settled: Mapping[str, float | int]) -> None:
        unnamed = {"largest"} if self.chosen_windows == "elastic" else {"largest", "lateness"}
        names = [name for name in settled if name not in unnamed]
        if self.stage not in (None, *names):
            raise ModelError(f"there is no stage {self.stage!r}; the stages are: {', '.join(names)}")

    def _settled(self) -> dict[str, float | int]:
        """Optimal values of all stages."""
        plan = find_plan(self._search("highs", SolveOptions()))
        if plan.status is not Status.OPTIMAL:
            raise ModelError(f"the stages are not settled: {plan.message}")
        stages = stages_of(self.grid, plan, self.load)
        return stages | {"largest": max((int(name[6:]) for name in stages if name.startswith("level_")), default=0)}

    def _search(self, engine: EngineName, options: SolveOptions) -> SearchState:
        presolve = self.presolve if self.presolve is not None else self.integrality != "lp"
        return SearchState(
            self.grid, self.load, self.horizon, self.chosen_windows, self.integrality, presolve, engine, options
        )

    def _prepare(self) -> None:
        """Build the grid only; programs are built when they are solved."""
        _ = self.grid

    def solve(
        self,
        engine: EngineName = "auto",
        *,
        certify: bool = True,
        report: Callable[[JitSolution], None] | None = None,
        start: JitSolution | None = None,
        **options: Any,
    ) -> JitSolution:
        """Solve like `Model.solve`; what the search for a plan cannot prove of few rates is solved as it is stated.

        So it is where a level needs an integer program, and where no cut of few transfers shows that there is no plan.

        Parameters
        ----------
        engine, certify, report, start, options
            As for `Model.solve`.
        """
        found = super().solve(engine, certify=certify, report=report, start=start, **options)
        judged, limit = found.certificate, options.get("time_limit_s")
        settled = Status.OPTIMAL, Status.INFEASIBLE
        proven = judged is not None and judged.verdict == "proven" and found.status in settled
        stopped = found.status is Status.FEASIBLE and UNPROVEN not in found.message
        left = math.inf if limit is None else float(limit) - found.seconds.total
        if proven or stopped or self.as_stated or not certify or left <= 0:
            return found
        if rate_cells(self.grid, elastic=self.chosen_windows == "elastic").columns.count > _PROVEN_RATES:
            return found
        chosen = solve_options(options | {"time_limit_s": limit and left})
        begin = found if found.status.has_answer else None
        answer = self._solve(engine, chosen, certify, report, begin, stated=True)
        return answer if answer.status in settled else found

    def _run(self, engine: EngineName, options: SolveOptions) -> JitRun:
        """Find a plan; P1 is solved as P2."""
        if engine == "network":
            raise EngineError("engine 'network' solves flow networks only; use 'highs' or 'pulp' for this model")
        if options.solver is not None:  # checked even if presolve solves the model
            if engine != "pulp":
                raise EngineError(f"engine {engine!r} has no option 'solver'; drop it or use 'pulp'")
            from flowlex.formulations.engines.pulp import asked_solver

            asked_solver(options)
        search = self._search(engine, options)

        def seen(draft: Callable[[], SearchState | None]) -> None:
            def made() -> JitRun | None:
                found = draft()
                return None if found is None else self._run_of(incumbent(found), engine)

            offer(options, made, often=True)

        search.seen = seen
        found = self._run_of(find_plan(search), engine)
        assert found is not None
        return found

    def _run_of(self, plan: Plan | None, engine: EngineName) -> JitRun | None:
        if plan is None:
            return None
        plan = replace(plan, blocks=plan.blocks.cut(self.grid))
        return JitRun(Outcome(plan.status, engine, message=plan.message, infeasibility=plan.infeasibility), plan)

    def _interpret(self, run: JitRun) -> JitSolution:
        solution = JitSolution.of(self._facts(run), self.grid, run.plan, self.load, self.program)
        if self.stage is not None and solution.status is Status.OPTIMAL:
            self._check_stage(stages_of(self.grid, run.plan, self.load))
        return solution

    def details(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Latest arrival times, for `flowlex show`."""
        columns = self.grid.latest.to_columns()
        planned = np.isin(np.arange(len(columns.pop("rank"))), self.grid.transfer)
        return [("Latest arrival times", {**columns, "planned": planned})]
