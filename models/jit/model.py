r"""Schedule transfers and their rates such that no computation waits and the loads are as small as possible.

Every transfer of a DAG job gets a latest arrival time (`flowlex.models.jit.latest_arrival`). Among all schedules that
meet these times, we choose one with the lexicographically least sorted vector of loads (by pair of machines and slot,
or by port and slot).

Programs of the paper: ``P1`` minimises the largest load (solved as P2); ``P2`` is the lexicographic minimum (here in
stages with 0/1 coefficients); ``P3`` is the separable convex sum of ``|delta|**delta_u`` in increments; ``P4`` is the
same in lambda form. All can be compiled as in the paper. P3 and P4 refuse sizes at which their weights lose precision.

Source: Shi, Wen, Fei, Zhang 2021, and docs/papers/jit-bandwidth.md: the constraint matrix is not totally unimodular,
so integrality is tested, not assumed; the weights would overflow, so stages are used instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from flowlex.formulations.lexicographic.lexicographic_problem import WHOLE, Integrality
from flowlex.formulations.lexicographic.weighted_stages import weighted_program
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import EngineError, EngineName, Outcome, SolveOptions, Status
from flowlex.instances.jit import JitInstance
from flowlex.models.incumbents import offer
from flowlex.models.jit.baselines import is_early
from flowlex.models.jit.incumbent import incumbent
from flowlex.models.jit.interval_schedules import Blocks
from flowlex.models.jit.latest_arrival import Rule
from flowlex.models.jit.load_levels import find_plan
from flowlex.models.jit.mathematical_equations import EQUATIONS
from flowlex.models.jit.paper_programs import solve_printed
from flowlex.models.jit.plan_search import Plan, Search, SearchState
from flowlex.models.jit.reference_formulation import rate_cells, state_bandwidth, window_ends
from flowlex.models.jit.slot_programs import Cells, Horizon, lexicographic_program
from flowlex.models.jit.solution import JitSolution, stages_of
from flowlex.models.jit.transfer_slot_grid import Grid, Load, ShareOf, Windows, make_grid
from flowlex.models.model_base import Equation, Model, ModelError, Run, Symbol
from flowlex.models.statement.rows_and_objectives import Statement
from flowlex.models.statement.solve_statement import StatementRun

ProgramName: TypeAlias = Literal["P1", "P2", "P3", "P4"]


@dataclass(frozen=True)
class JitRun(Run):
    """An outcome with its plan."""

    plan: Plan


@dataclass(frozen=True, eq=False, repr=False)
class JitBandwidth(Model[JitInstance, JitSolution, JitRun]):
    """Just-in-time bandwidth (see the module).

    A changed model (`with_constraint` and the others) is stated by slot, in integer units. Variables: ``rate`` by
    transfer and slot, with the labels job, sender, receiver, link (``a>b``) and time (in seconds, so that ``slice(2,
    3)`` selects); ``level`` by load, slot and step, 1 if the load reaches the step; ``largest``. User rows hold in
    every stage: lateness, then the largest load, then the number of loads at each level are minimised. Transfers may be
    late up to the end by which every unchanged schedule of least lateness has finished; for a rule that needs more
    slots, raise ``extra_slots``. Equal schedules are not compared further.

    Parameters
    ----------
    horizon
        ``slots``, or ``intervals`` between consecutive starts and latest arrivals, with interchangeable slots and the
        same optimum. It applies to P3, P4, and P2 without presolve; with presolve, intervals are always used. The
        statement uses slots; elastic windows are solved over intervals that end where a port has sent all late units
        (`flowlex.models.jit.least_lateness`).
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
    sets: ClassVar[tuple[Symbol, ...]] = (
        Symbol("M", "machines"),
        Symbol("T", "slots"),
        Symbol("F", "planned transfers"),
        Symbol("U", "loads: pairs (or ports) in each slot"),
    )
    parameters: ClassVar[tuple[Symbol, ...]] = (
        Symbol("d_f", "size of transfer f, units"),
        Symbol("s_f, l_f", "first slot, and end of the window by the latest arrival time"),
        Symbol("C", "units a port carries in a slot, each way"),
    )
    unknowns: ClassVar[tuple[Symbol, ...]] = (
        Symbol("x_f^t", "units of f sent in slot t, integer"),
        Symbol(r"\delta_u", "load: sum of the rates of a pair (or port) in a slot"),
        Symbol("y_u^s", "1 if load u is at least s"),
    )
    objective_latex: ClassVar[str] = r"\operatorname{lex} ( \sum_u y_u^C, \sum_u y_u^{C-1}, \dots, \sum_u y_u^1 )"
    equations: ClassVar[tuple[Equation, ...]] = EQUATIONS

    def has_rows(self, name: str) -> bool:
        """Return whether the formulation has rows of a name.

        Parameters
        ----------
        name
            Name of an equation, such as ``egress``; False if unknown. The first call builds the formulation.
        """
        program = self.formulation
        return isinstance(program, LinearProgram) and name in program.constraint_blocks

    def _check(self) -> None:
        if not 0 < self.share <= 1:
            raise ModelError(f"share must lie above 0 and at most at 1, got {self.share}")
        if self.presolve and self.program in ("P3", "P4"):
            raise ModelError(f"{self.program} is solved as printed; presolve works for P1 and P2 only")
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
    def chosen_windows(self) -> Windows:
        """The option ``windows``, or its default for the program."""
        return self.windows or ("elastic" if self.program == "P2" else "strict")

    @cached_property
    def cells(self) -> Cells:
        """Slots or intervals of all planned transfers."""
        return Cells(self.grid, np.arange(self.grid.count), self.grid.stop, self.horizon)

    def _state(self) -> Statement:
        """``rate`` by transfer and slot, ``level`` by load, slot and step, and the ``largest`` load."""
        if self.program in ("P3", "P4"):
            raise ModelError(f"{self.program} weighs loads in one sum and takes no changes; change program='P2'")
        return self._state_of(None)

    def _state_of(
        self, members: Integers | None, *, elastic: bool | None = None, levels: bool | None = None
    ) -> Statement:
        """The statement of some transfers (all if None), without the others."""
        return state_bandwidth(
            self.grid,
            self.load,
            elastic=self.chosen_windows == "elastic" if elastic is None else elastic,
            levels=self.program == "P2" if levels is None else levels,
            whole=self.integrality != "lp",
            rows=self.declared(),
            members=members,
        )

    def _read(self, run: StatementRun) -> JitSolution:
        solution = super()._read(run)
        return replace(solution, message=f"{solution.message} {self._longer(solution)}".strip())

    def _longer(self, solution: JitSolution) -> str:
        """Names the option that lengthens elastic windows, if these may be what makes the rules infeasible."""
        ends = window_ends(self.grid, elastic=True)
        if (
            solution.status is not Status.INFEASIBLE
            or self.chosen_windows == "strict"
            or (ends == self.grid.firm).all()
        ):
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
            cells = rate_cells(self.grid, np.arange(self.grid.count), elastic=elastic)
            whole = np.rint(rate)
            near = np.abs(rate - whole).max(initial=0.0) <= WHOLE
            blocks = cells.blocks(whole.astype(np.int64) if near else np.where(rate > WHOLE, rate, 0.0))
        return JitSolution(
            **facts, grid=self.grid, blocks=blocks, load=self.load, program=self.program, route=("statement",)
        )

    def _formulate(self) -> LinearProgram:
        """Return the program of a stage; P3 and P4 as in the paper."""
        if self.program in ("P3", "P4"):
            return self._weighted()
        elastic = self.chosen_windows == "elastic"
        if self.stage is None and (not elastic or is_early(self.grid)):
            return self._state_of(None, elastic=False, levels=False).stage_program("largest")
        settled = self._settled()
        self._check_stage(settled)
        statement, stage = self._state_of(None, levels=self.stage is not None), self.stage or "largest"
        order = [each.name for each in statement.stages]
        before = {name: Fraction(settled[name]) for name in order[: order.index(stage)] if name in settled}
        return statement.stage_program(stage, before)

    def _weighted(self) -> LinearProgram:
        problem = lexicographic_program(self.cells, self.load, name=self.instance.name)
        return weighted_program(problem, form="lambda" if self.program == "P4" else "increments")

    def _check_stage(self, settled: Mapping[str, float | int]) -> None:
        unnamed = {"largest"} if self.chosen_windows == "elastic" else {"largest", "lateness"}
        names = [name for name in settled if name not in unnamed]
        if self.stage not in (None, *names):
            raise ModelError(f"there is no stage {self.stage!r}; the stages are: {', '.join(names)}")

    def _settled(self) -> dict[str, float | int]:
        """Optimal values of all stages."""
        plan = find_plan(self.grid, self._search("highs", SolveOptions()))
        if plan.status is not Status.OPTIMAL:
            raise ModelError(f"the stages are not settled: {plan.message}")
        stages = stages_of(self.grid, plan, self.load)
        return stages | {"largest": max((int(name[6:]) for name in stages if name.startswith("level_")), default=0)}

    def _search(self, engine: EngineName, options: SolveOptions) -> Search:
        presolve = self.presolve if self.presolve is not None else self.integrality != "lp"
        return Search(self.load, self.horizon, self.chosen_windows, self.integrality, presolve, engine, options)

    def _prepare(self) -> None:
        """Build the grid only; programs are built when they are solved."""
        _ = self.grid

    def _run(self, engine: EngineName, options: SolveOptions) -> JitRun:
        """Find a plan; P3 and P4 are solved as in the paper, P1 as P2."""
        if engine == "network":
            raise EngineError("engine 'network' solves flow networks only; use 'highs' or 'pulp' for this model")
        if options.solver is not None:  # checked even if presolve solves the model
            if engine != "pulp":
                raise EngineError(f"engine {engine!r} has no option 'solver'; drop it or use 'pulp'")
            from flowlex.formulations.engines.pulp import asked_solver

            asked_solver(options)
        search = self._search(engine, options)

        def seen(found: Callable[[], Plan | None]) -> None:
            offer(options, lambda: self._run_of(found(), engine), often=True)

        if self.program in ("P1", "P2"):
            plan = find_plan(self.grid, search, seen)
        else:
            seen(lambda: incumbent(SearchState(self.grid, search)))
            plan = solve_printed(self._weighted(), self.cells, self.integrality, engine, options)
        found = self._run_of(plan, engine)
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
