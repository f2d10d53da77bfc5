r"""When should each transfer be sent, and at which rate, so that no computation waits and little bandwidth is held?

Every transfer of a DAG job gets a latest arrival time (`flowlex.models.jit.latest_arrival`). Among all
schedules that meet them, the sorted vector of loads (pair of machines and slot, or port and slot) is made
lexicographically least.

Programs of the paper, by name: ``P1`` minimises the largest load; ``P2`` is the lexicographic minimum (here in stages
with 0/1 coefficients); ``P3`` is the separable convex sum of ``|delta|**delta_u``, in increments; ``P4`` the same in
lambda form. All can be compiled as printed. P3 and P4 refuse sizes at which their weights lose precision.

Source: Shi, Wen, Fei, Zhang 2021, and the findings of shared/papers/jit-bandwidth.md: the constraint matrix is not
totally unimodular, so integers are tested, not assumed; and the weights overflow, so the stages have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from flowlex.formulations.lexicographic.levels import Integrality
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineError, EngineName, Outcome, SolveOptions, Status
from flowlex.instances.jit import JitInstance
from flowlex.models.base import Equation, Model, ModelError, Run, Symbol
from flowlex.models.incumbents import offer
from flowlex.models.jit.grid import Grid, Load, ShareOf, Windows, make_grid
from flowlex.models.jit.latest_arrival import Rule
from flowlex.models.jit.levels import find_plan
from flowlex.models.jit.printed import printed_program, require_stage, solve_printed, stage_program
from flowlex.models.jit.program import Cells, Horizon, lexicographic_program
from flowlex.models.jit.search import Kept, Plan, Search, SearchState
from flowlex.models.jit.so_far import so_far
from flowlex.models.jit.solution import JitSolution, stages_of
from flowlex.validation.certificates import Certificate, Check
from flowlex.validation.certificates.jit import JitSchedule, as_stated, certify_schedule, no_schedule

__all__ = ["JitBandwidth", "ProgramName"]

ProgramName: TypeAlias = Literal["P1", "P2", "P3", "P4"]


@dataclass(frozen=True)
class JitRun(Run):
    """A plan, whatever programs it took."""

    plan: Plan


@dataclass(frozen=True, eq=False, repr=False)
class JitBandwidth(Model[JitInstance, JitSolution, JitRun]):
    """Just-in-time bandwidth (see the module).

    Parameters
    ----------
    horizon
        ``slots``, or ``intervals`` between neighbouring starts and latest arrivals, in which all slots are alike and
        which have the same optimum. Concerns the programs as printed, and what is solved without presolve; with it,
        intervals are used anyway. Elastic programs are printed over slots, because being a slot later costs more, and
        solved over intervals that end where a port has sent what is late (`flowlex.models.jit.lateness`).
    share, share_of
        First share of every job's ``transfers`` or ``bytes``, in topological order, that is planned; the rest is
        background.
    load
        What is counted in every slot: a ``pair`` of machines, a ``port`` (both sides), or only what a machine sends
        (``sender``) or receives (``receiver``). Where the other ports do not bind, all but ``port`` need no solver.
    integrality
        ``auto``: linear programs, whose answers are tested; integers only where an answer is fractional. ``lp``:
        linear programs only, rates may be fractional. ``mip``: integer programs only.
    windows
        ``strict``: every planned transfer arrives by its latest arrival time, or there is no answer. ``elastic`` (the
        default of P2; the other programs know strict windows only): least total lateness (units times slots) first.
    program
        ``P1`` to ``P4``, see the module.
    presolve
        Look at structure before any solver (P1 and P2; on unless integers are not asked of the linear programs).
    stage
        P2: the stage (a key of ``solution.stages``) whose program `formulation`, `compile` and ``flowlex export``
        give; without one it is the program of the largest load. Solving goes through all whatever it says.
    lat
        How latest arrival times are derived, ``critical`` or ``paper``: see `flowlex.models.jit.latest_arrival`.
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

    #: What stays of an earlier plan: no option of a user's, see `after`.
    _kept: ClassVar[Kept | None] = None

    name: ClassVar[str] = "jit-bandwidth"
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
    equations: ClassVar[tuple[Equation, ...]] = (
        Equation(
            "egress",
            r"\sum_{f \text{ out of } i} x_f^t \le C \quad \forall i \in M, t \in T",
            "a port sends at most its capacity",
            "minus what one more unit of capacity saves at most in the first goal that it matters for",
            "loads (of lateness: units x slots) per unit",
            "Shi et al. 2021, (4)",
        ),
        Equation(
            "ingress",
            r"\sum_{f \text{ into } j} x_f^t \le C \quad \forall j \in M, t \in T",
            "a port receives at most its capacity",
            "as for egress",
            "loads (of lateness: units x slots) per unit",
            "Shi et al. 2021, (5)",
        ),
        Equation(
            "size",
            r"\sum_{t=s_f}^{l_f - 1} x_f^t = d_f \quad \forall f \in F",
            "all of a transfer arrives within its window",
            "what one unit less of the transfer saves at most in the first goal above level 1 that it matters for",
            "loads (of lateness: units x slots) per unit",
            "Shi et al. 2021, (6)",
        ),
        Equation(
            "lateness",
            r"\sum_f \sum_{t} (t + 1 - l_f)^+ x_f^t \le L",
            "transfers are late by no more than they must be, units times slots",
            when="elastic windows where some transfer must be late, and the stage is not lateness itself",
            exists=lambda m: m.has_rows("lateness"),
        ),
        Equation(
            "largest_link",
            r"\delta_u \le z \quad \forall u \in U",
            "no load is above the largest",
            source="Shi et al. 2021, P1",
            when="P1, and P2 without a stage",
            exists=lambda m: m.has_rows("largest_link"),
        ),
        Equation(
            "level_link",
            r"\delta_u = \sum_{s=1}^{C} y_u^s, \quad 0 \le y_u^s \le 1 \quad \forall u \in U",
            "a load is cut into levels",
            source="P3 in increments; ours",
            when="stage=level_s, and P3",
            exists=lambda m: m.has_rows("level_link"),
        ),
        Equation(
            "levels_above",
            r"\sum_u y_u^r \le N_r \quad \forall r > s",
            "levels above the stage stay at their optima",
            when="stage=level_s below the highest",
            exists=lambda m: m.has_rows("levels_above"),
        ),
        Equation(
            "lambda_link",
            r"\sum_{s=0}^{C} s \lambda_u^s = \delta_u \quad \forall u \in U",
            "a load as a mixture of whole loads",
            source="Shi et al. 2021, P4",
            when="P4",
            exists=lambda m: m.program == "P4",
        ),
        Equation(
            "lambda_one",
            r"\sum_{s=0}^{C} \lambda_u^s = 1 \quad \forall u \in U",
            "the weights of a mixture sum to one",
            source="Shi et al. 2021, P4",
            when="P4",
            exists=lambda m: m.program == "P4",
        ),
    )

    def has_rows(self, name: str) -> bool:
        """Whether the formulation has rows of a name."""
        program = self.formulation
        return isinstance(program, LinearProgram) and name in program.constraint_blocks

    def _check(self) -> None:
        if not 0 < self.share <= 1:
            raise ModelError(f"share must lie above 0 and at most at 1, got {self.share}")
        if self.presolve and self.program in ("P3", "P4"):
            raise ModelError(f"{self.program} is solved as printed; presolve works for P1 and P2 only")
        if self.presolve and self.integrality == "lp":
            raise ModelError("presolve looks for whole units; drop it or choose integrality='auto'")
        if self.stage is not None and self.program != "P2":
            raise ModelError(f"stages are those of P2, {self.program} is one program; leave stage out")
        if self.windows == "elastic" and self.program != "P2":
            raise ModelError(f"elastic windows are available for P2 only, not for {self.program}")

    @cached_property
    def grid(self) -> Grid:
        """The planned transfers on the grid."""
        return make_grid(self.instance, self.share, self.chosen_windows, self.lat, self.share_of)

    @property
    def chosen_windows(self) -> Windows:
        """Strict or elastic, as asked for, or as the program knows them."""
        return self.windows or ("elastic" if self.program == "P2" else "strict")

    @cached_property
    def cells(self) -> Cells:
        """Slots or intervals of all planned transfers."""
        return Cells(self.grid, np.arange(self.grid.count), self.grid.stop, self.horizon)

    def _formulate(self) -> LinearProgram:
        """The named program with every row and label; of P2 the stage asked for."""
        name = self.instance.name
        if self.program != "P2":
            return printed_program(self.cells, self.load, self.program, name)
        elastic, whole = self.chosen_windows == "elastic", self.integrality != "lp"
        return stage_program(
            self.grid, self.load, self.horizon, self.stage, self._settled, elastic=elastic, whole=whole, name=name
        )

    def _settled(self) -> dict[str, float | int]:
        """All stages of the optimum, for the program of one of them."""
        plan = find_plan(self.grid, self._search("highs", SolveOptions()))
        if plan.status is not Status.OPTIMAL:
            raise ModelError(f"the stages are not settled: {plan.message}")
        return stages_of(self.grid, plan, self.load)

    def _search(self, engine: EngineName, options: SolveOptions) -> Search:
        presolve = self.presolve if self.presolve is not None else self.integrality != "lp"
        kept = self._kept if presolve else None
        return Search(self.load, self.horizon, self.chosen_windows, self.integrality, presolve, engine, options, kept)

    def after(self, kept: Kept | None) -> JitBandwidth:
        """The same model, which plans only what does not stay of an earlier plan (`flowlex.models.jit.kept`)."""
        same = replace(self)
        same.__dict__.update(self.__dict__ | {"_kept": kept})
        return same

    def _prepare(self) -> None:
        """The grid; the named program is compiled only when it is the one to be solved."""
        _ = self.grid

    def _run(self, engine: EngineName, options: SolveOptions) -> JitRun:
        """Find a plan: the named program itself for P3, P4, and P1 without presolve."""
        if engine == "network":
            raise EngineError("engine 'network' solves flow networks only; use 'highs' or 'pulp' for this model")
        if options.solver is not None:  # structure alone may give the answer: refused all the same
            if engine != "pulp":
                raise EngineError(f"engine {engine!r} has no option 'solver'; drop it or use 'pulp'")
            from flowlex.formulations.engines.pulp import asked_solver

            asked_solver(options)
        search = self._search(engine, options)

        def seen(found: Callable[[], Plan | None]) -> None:
            offer(options, lambda: self._run_of(found(), engine), often=True)

        if self.program == "P2" or (self.program == "P1" and search.presolve):
            plan = find_plan(self.grid, search, seen)
        else:
            seen(lambda: so_far(SearchState(self.grid, search)))
            program = self.formulation
            assert isinstance(program, LinearProgram)
            plan = solve_printed(program, self.program, self.cells, self.load, self.integrality, engine, options)
        found = self._run_of(plan, engine)
        assert found is not None
        return found

    @staticmethod
    def _run_of(plan: Plan | None, engine: EngineName) -> JitRun | None:
        if plan is None:
            return None
        return JitRun(Outcome(plan.status, engine, message=plan.message, infeasibility=plan.infeasibility), plan)

    def _interpret(self, run: JitRun) -> JitSolution:
        solution = JitSolution.of(self._facts(run), self.grid, run.plan, self.load, self.program)
        if self.stage is not None and solution.status is Status.OPTIMAL:
            require_stage(self.stage, stages_of(self.grid, run.plan, self.load), self.chosen_windows)
        return solution

    def _certify(self, run: JitRun, solution: JitSolution) -> Certificate | None:
        if solution.status is Status.INFEASIBLE:
            return no_schedule(self.instance, self.lat, self.chosen_windows)
        if not solution.status.has_answer:
            return None
        schedule = self._schedule(solution)
        certificate = certify_schedule(self.instance, schedule)
        if certificate.ok:
            certificate = certificate.including((as_stated(self.instance, schedule, solution.stages),))
        return certificate if run.plan.weighted is None else self._weighted_claim(certificate, solution)

    def _weighted_claim(self, certificate: Certificate, solution: JitSolution) -> Certificate:
        """P3 and P4: the sum of weights, recomputed from the loads, against the solver's bound (quoted)."""
        problem = lexicographic_program(self.cells, self.load, name=self.instance.name, labels=False)
        size, loads = float(problem.width.sum()), solution.sorted_loads
        total = float((size ** loads.astype(np.float64)).sum()) + size - len(loads)  # an empty load weighs 1
        assert solution.bound is not None
        ok = abs(total - float(solution.bound)) <= 1e-6 * total
        check = Check("sum of weights meets the solver's bound", ok, 0.0, f"{total:.12g}", how="quoted")
        return replace(certificate, claim="bounded", exact=False, tolerance=1e-6).including((check,))

    def _schedule(self, solution: JitSolution) -> JitSchedule:
        blocks = solution.blocks
        proven = solution.status is Status.OPTIMAL or 1 < solution.lowest <= solution.largest
        return JitSchedule(
            share=self.share,
            share_of=self.share_of,
            load=self.load,
            lat=self.lat,
            windows=self.chosen_windows,
            planned=self.grid.transfer,
            transfer=self.grid.transfer[blocks.item],
            begin=blocks.begin,
            end=blocks.end,
            amount=blocks.amount,
            lateness=solution.lateness,
            integral=blocks.whole,
            parts=solution.plan_parts if proven else (),
            least=None if proven else solution.least,
            levels_claimed="largest" if solution.route[:1] == ("printed",) else solution.lowest,
        )

    def details(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Latest arrival times, for `flowlex show`."""
        columns = self.grid.latest.to_columns()
        planned = np.isin(np.arange(len(columns.pop("rank"))), self.grid.transfer)
        return [("Latest arrival times", {**columns, "planned": planned})]
