"""Solve a problem of one's own: objective by objective, then the proof in exact numbers, then what is said of it."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np

from flowlex.formulations.engines.highs import CoefficientError, out_of_range
from flowlex.formulations.language import sorted_and_convex
from flowlex.formulations.language.labels import StatementError
from flowlex.formulations.language.program_conversion import flat_program
from flowlex.formulations.language.statement import Objective, Statement
from flowlex.formulations.lexicographic.branch_and_bound_leaves import StagesOutcome
from flowlex.formulations.lexicographic.objective_stages import solve_stages
from flowlex.formulations.lexicographic.scaling import Scaling, lost_in_integers
from flowlex.formulations.lexicographic.solver_watch import Watch
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays
from flowlex.formulations.program_files.named_program import INFINITE
from flowlex.formulations.solver_outcome import Infeasibility, SolveOptions, Status
from flowlex.models.equal_labels import EqualLabels, equal_labels
from flowlex.models.exact_proofs import answer_of, exact_proof, proven, snapped
from flowlex.models.incumbents import Offers
from flowlex.models.problem_solution import (
    ProblemSolution,
    ProblemSource,
    StageAnswers,
    duals_by_name,
    faults,
    stage_answers,
    stage_duals,
)
from flowlex.models.solution import Seconds
from flowlex.models.solve_progress import ProgressLine
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.proofs.checker import Verdict, judge
from flowlex.validation.proofs.exact_program import Exact, ExactProgram
from flowlex.validation.proofs.own_statement import exact_program
from flowlex.validation.proofs.proof import Proof

_log = logging.getLogger("flowlex.problem")
_log.addHandler(logging.NullHandler())  # silent until someone asks
#: Rounds of cuts before branching.
_CUT_ROUNDS = 15
#: A message names at most this many rows of a conflict, and shows so many terms of each.
_NAMED, _TERMS = 12, 8
#: Seconds in which a conflict is looked for.
_CONFLICT_S = 10.0


class SolvableStatement(Statement):
    """A statement that judges values, and can be restricted to what an objective reached; see `flowlex.Problem`."""

    def judged(self, x: Floats, engine: str, message: str) -> ProblemSolution:
        """Values as an answer of which nothing is claimed but that it satisfies the problem.

        Parameters
        ----------
        x
            (columns,) the values.
        engine, message
            What the answer says of where it comes from.
        """
        program = exact_program(self)
        exact = snapped(program, x)
        verdict = judge(program, exact, Proof(), "feasible")
        found = StagesOutcome(Status.FEASIBLE, x)
        stages = stage_answers(found, exact, program, verdict)
        main = next(iter(stages.values()), None)
        return ProblemSolution(
            model="problem",
            engine=engine,
            source=ProblemSource(self),  # type: ignore[arg-type]
            status=Status.FEASIBLE if verdict.certificate.ok else Status.ERROR,
            objective=main.value if main is not None else 0,
            stages=stages,
            certificate=verdict.certificate,
            message=message if verdict.certificate.ok else faults(verdict.certificate),
            problem=self,
            numbers=exact.floats,
            exact=exact,
            program=program,
        )

    @abstractmethod
    def keeping(self, k: int, reached: Floats | Fraction, given_away: float = 0) -> Self:
        """The problem in which objective k is as good as a value and what that gave away, less its tolerance."""


@dataclass(eq=False)
class Solving:
    """One solve of a problem; fields as in `flowlex.Problem.solve_with`."""

    problem: SolvableStatement
    options: SolveOptions
    engine: str = "highs"
    certify: bool = True
    first: Floats | None = None
    report: Callable[[ProblemSolution], None] | None = None
    strong: bool = True
    leaves: bool = False
    begun: float = field(default_factory=time.perf_counter)
    clock: float = field(default_factory=processor_seconds)
    compiled: float = field(default_factory=time.perf_counter)

    def solve(self) -> ProblemSolution:
        """Solve, prove and describe the answer."""
        problem, chosen = self.problem, self.options
        arrays = problem.arrays(None)
        costs = [(-1.0 if o.maximize else 1.0) * o.cost(problem.column_count) for o in problem.objectives]
        steps = [_step(o, arrays.integrality) for o in problem.objectives]
        self._refuse_extremes(arrays, costs, steps)
        _log.info("%s: %d variables, %d rows; solving", problem.name, problem.column_count, problem.row_count)
        self.compiled = time.perf_counter()
        if self.engine != "pulp" and chosen.solver is None and (equal := equal_labels(problem)) is not None:
            answer = self._counted(equal)
            if answer is not None:
                return answer
        offers = None if self.report is None else Offers(self.report)
        watch = Watch(found=None if offers is None else lambda x: offers(lambda: self._found(x), often=True))
        first = self.first
        if self.engine == "pulp" or chosen.solver is not None:
            try:
                first = self._through_pulp()
            except KeyboardInterrupt:
                watch.interrupted = True
            chosen = self.options = replace(chosen, solver=None)
            self.clock -= time.perf_counter() - self.compiled  # another process
        watch.tell = line = ProgressLine(
            [o.name for o in problem.objectives],
            [-1 if o.maximize else 1 for o in problem.objectives],
            [o.offset for o in problem.objectives],
        )

        def attempt(cut_rounds: int, first: Floats | None) -> tuple[StagesOutcome, ProblemSolution]:
            left = chosen
            if chosen.time_limit_s is not None:
                left = replace(chosen, time_limit_s=max(chosen.time_limit_s - self._spent, 0.01))
            found = solve_stages(
                arrays,
                costs,
                left,
                start=first,
                nodes=0 if self.engine == "pulp" and first is not None else None,
                steps=steps,
                allowance=self._allowance,
                cut_rounds=cut_rounds,
                watch=watch,
                strong=self.certify and self.strong,
                vectors=sorted_and_convex.sorted_vectors(problem),
            )
            line.end()
            return found, self._solution(found)

        found, solution = attempt(_CUT_ROUNDS if self.certify or self.leaves else 0, first)
        if watch.interrupted:
            _log.info("%s: interrupted", problem.name)
            if not solution.status.has_answer:
                return replace(solution, message="Interrupted before any answer was found.")
            return replace(solution, message=f"Interrupted; this is the best answer so far. {solution.message}".strip())
        late = chosen.time_limit_s is not None and self._spent > chosen.time_limit_s / 2
        exhausted = all(stage.proven for stage in found.stages)
        if self.certify and found.cuts and exhausted and not late and not _is_proven(solution):
            # Rounded coefficients of cuts may prove a little less than branching does.
            _, other = attempt(0, found.values)
            if _is_proven(other) or self._better(other, solution):
                return other
        return solution

    @property
    def _spent(self) -> float:
        """Processor seconds so far."""
        return processor_seconds() - self.clock

    def _refuse_extremes(self, arrays: LinearProgramArrays, costs: list[Floats], steps: list[float]) -> None:
        """Raise for numbers that solvers read as infinite or as 0, in any units."""
        problem = self.problem
        for names, sides in (
            (problem.column_names, (arrays.column_lower, arrays.column_upper)),
            (problem.row_names, (arrays.row_lower, arrays.row_upper)),
        ):
            for side in sides:
                large = np.flatnonzero(np.isfinite(side) & (np.abs(side) >= INFINITE))
                if len(large):
                    raise StatementError(
                        f"{names()[large[0]]}: solvers read {side[large[0]]:g} as infinite; state None for no bound, "
                        "or choose larger units"
                    )
        found = out_of_range(arrays)
        if found is None:
            return
        scaling = Scaling.of(arrays, costs, steps)
        scaled = arrays if scaling is None else scaling.applied(arrays, costs)[0]
        if out_of_range(scaled) is None:
            found = lost_in_integers(scaled)
        if found is not None:
            row, column, _ = found
            value = float(arrays.matrix[[row]].toarray()[0, column])
            raise CoefficientError(problem.row_names()[row], problem.names_of([column])[0], (row, column, value))

    def _counted(self, equal: EqualLabels[SolvableStatement]) -> ProblemSolution | None:
        """The answer of the problem whose equal labels are counted; None if it does not hold for this one."""
        problem, chosen, report, certify = self.problem, self.options, self.report, self.certify
        _log.info("%s: equal labels of %s are counted", problem.name, equal.level)

        def dealt(answer: ProblemSolution) -> None:
            assert answer.exact is not None and report is not None
            report(problem.judged(equal.dealt(answer.exact).floats, answer.engine, answer.message))

        found = replace(
            self,
            problem=equal.counted,
            engine="highs",
            first=None if self.first is None else equal.summed(self.first),
            report=None if report is None else dealt,
        ).solve()
        if found.status in (Status.UNBOUNDED, Status.ERROR) or found.program is None:
            return None
        program = exact_program(problem)
        exact = None if found.exact is None else equal.dealt(found.exact)
        proof = equal.expanded(found.found, found.program)
        claimed = str(found.status) if certify or exact is None else "feasible"
        budget = Budget.remaining(chosen.time_limit_s, self.clock)
        verdict = judge(program, exact, proof if certify else Proof(), claimed, budget)
        figures = [each.exact for each in found.stages.values()]
        same = [each.value for each in verdict.stages] == [value for value, _ in figures]
        shown = [each.bound for each in verdict.stages] == [bound for _, bound in figures]
        if not (verdict.certificate.ok and (same or exact is None)) or (certify and not shown and not verdict.late):
            _log.info("%s: the counted answer does not hold for single labels", problem.name)
            return None
        duals = None if exact is None else stage_duals(problem, 0, proof)
        return replace(
            found,
            source=ProblemSource(problem),  # type: ignore[arg-type]
            problem=problem,
            numbers=None if exact is None else exact.floats,
            exact=exact,
            program=program,
            found=proof,
            certificate=verdict.certificate if certify else None,
            duals=duals_by_name(problem, duals),  # type: ignore[arg-type]
            infeasibility=self._conflict(_CONFLICT_S) if found.status is Status.INFEASIBLE else None,
        )

    def _better(self, one: ProblemSolution, other: ProblemSolution) -> bool:
        """Whether an answer is better in the first objective in which they differ, or else more is proven of it."""
        if not (one.status.has_answer and other.status.has_answer):
            return one.status.has_answer
        signs = {o.name: -1 if o.maximize else 1 for o in self.problem.objectives}

        def key(each: ProblemSolution) -> tuple[list[float], list[float]]:
            stages = each.stages.values()
            minus_bounds = [np.inf if s.bound is None else -signs[s.name] * float(s.bound) for s in stages]
            return [signs[s.name] * s.value for s in stages], minus_bounds

        return key(one) < key(other)

    def _found(self, values: Floats) -> ProblemSolution | None:
        """An answer found on the way, if it satisfies all rows."""
        solution = self.problem.judged(values, "highs", "")
        return solution if solution.status.has_answer else None

    def _allowance(self, stage: int, value: float) -> float:
        if stage >= len(self.problem.objectives):
            return 0.0
        objective = self.problem.objectives[stage]
        sign = -1.0 if objective.maximize else 1.0
        size = abs(value + sign * objective.offset)
        return float(objective.within) * (size if objective.relative else 1.0)

    def _through_pulp(self) -> Floats | None:
        """Values of a PuLP solver, objective by objective; those to begin with if it finds none."""
        from flowlex.formulations.engines import solve

        problem, values, begun, options = self.problem, self.first, time.perf_counter(), self.options
        limit = options.time_limit_s
        for k in range(max(len(problem.objectives), 1)):
            if limit is not None:
                options = replace(options, time_limit_s=max(limit - (time.perf_counter() - begun), 0.01))
            outcome = solve(flat_program(problem, k), "pulp", options)
            if outcome.values is None:
                return values
            values = outcome.values
            if k + 1 < len(problem.objectives):
                problem = problem.keeping(k, values)
        return values

    def _solution(self, found: StagesOutcome) -> ProblemSolution:
        """The answer of an outcome, with its proof."""
        problem, limit, solved = self.problem, self.options.time_limit_s, time.perf_counter()
        answered = found.values is not None and found.status.has_answer
        program = exact_program(problem)
        exact, proof, verdict, trouble = self._proof(program, found, answer_of(program, found) if answered else None)
        stages = stage_answers(found, exact, program, verdict)
        if self.leaves:
            for stage, result in zip(tuple(stages.values()), found.stages, strict=False):
                value = stage.exact[0]
                stages[stage.name] = replace(stage, exact=(value, value if result.proven else None))
        status, message = _verdict_words(problem, found, verdict, stages)
        infeasibility = None
        if found.status is Status.INFEASIBLE:
            infeasibility = self._conflict(_CONFLICT_S if limit is None else max(limit - self._spent, 0.1 * limit))
            message = infeasibility.message
        for (name, stage), result in zip(stages.items(), found.stages, strict=False):
            words = "proven" if stage.proven else "not proven"
            _log.debug(
                "%s: objective %s = %s, %s; %d leaves", problem.name, name, stage.value, words, len(result.leaves)
            )
        claimed = "" if verdict is None else f"; {verdict.certificate.summary}"
        _log.info("%s: %s%s", problem.name, status, claimed)
        duals = stage_duals(problem, 0, proof, found)
        main = next(iter(stages.values()), None)
        bound = main.bound if main is not None else None
        gap = None
        if main is not None and bound is not None:
            gap = abs(float(main.value) - float(bound)) / max(1.0, abs(float(main.value)))
        return ProblemSolution(
            model="problem",
            engine="highs" if self.engine == "auto" else self.engine,
            source=ProblemSource(problem),  # type: ignore[arg-type]
            status=status,
            objective=main.value if main is not None else 0 if answered else None,
            bound=bound,
            gap=gap,
            stages=stages,
            duals=duals_by_name(problem, duals if answered else None),  # type: ignore[arg-type]
            certificate=verdict.certificate if verdict is not None else None,
            seconds=Seconds(self.compiled - self.begun, solved - self.compiled, time.perf_counter() - solved),
            message=f"{message} {trouble}".strip(),
            infeasibility=infeasibility,
            problem=problem,
            numbers=exact.floats if exact is not None else None,
            exact=exact,
            program=program,
            found=proof,
        )

    def _proof(
        self, program: ExactProgram, found: StagesOutcome, exact: Exact | None
    ) -> tuple[Exact | None, Proof, Verdict | None, str]:
        """The exact answer, its proof, what the checker says of it, and what the user is told if that is not all."""
        budget = Budget.remaining(self.options.time_limit_s, self.clock)
        if not self.certify:
            if self.leaves:
                return exact, exact_proof(program, found, budget), None, ""
            return exact, Proof(), None, "not certified: solved with certify=False"
        if not found.status.claims:
            return exact, Proof(), None, ""
        try:
            proved, proof, verdict = proven(program, found, None if exact is None else found.values, budget)
        except (Exception, KeyboardInterrupt) as error:  # whatever fails, the answer is not lost
            _log.warning("%s: the proof was not built: %s", self.problem.name, error)
            trouble = f"The proof was not built ({error or type(error).__name__}); the answer is the solver's."
            return exact, Proof(), judge(program, exact, Proof(), str(found.status)), trouble
        trouble = "The time limit passed before the whole proof was checked." if verdict.late else ""
        return exact if proved is None else proved, proof, verdict, trouble

    def _conflict(self, limit: float) -> Infeasibility:
        """Rows that cannot hold together, as formulas with numbers; those stated last come first."""
        from flowlex.formulations.engines.infeasibility_explanation import explained
        from flowlex.formulations.solver_outcome import Outcome

        problem = self.problem
        reason: Infeasibility | None = None
        try:
            outcome = Outcome(Status.INFEASIBLE, "highs")
            options = SolveOptions(time_limit_s=min(limit, _CONFLICT_S))
            reason = explained(flat_program(problem, None), outcome, options).infeasibility
        except CoefficientError:  # in other units, the conflict is not looked for
            pass
        if reason is None or not (reason.constraints or reason.bounds):
            bounds = [(b, np.ceil(b.lower - 1e-9) > np.floor(b.upper + 1e-9)) for b in problem.blocks.values()]
            for block, none in ((b, np.flatnonzero(gap & b.integer)) for b, gap in bounds):
                if len(none):
                    said = problem.written_bounds(block.start + int(none[0]))
                    return Infeasibility(f"No integer lies within the bounds {said}.")
            names = ", ".join(problem.rows)
            return Infeasibility(
                f"No values satisfy all rows ({names}); p.softened(name) shows by how much one must give."
            )
        places = {text: (block, k) for block in problem.rows.values() for k, text in enumerate(block.names())}
        texts = [
            problem.written_row(*places[name], most=_TERMS)
            for name in reversed(reason.constraints[:_NAMED])
            if name in places
        ]
        more = len(reason.constraints) - _NAMED
        listed = "; ".join(texts) + (f"; and {more} more" if more > 0 else "")
        columns = {text: b.start + k for b in problem.blocks.values() for k, text in enumerate(b.names())}
        within = [problem.written_bounds(columns[name]) for name in reason.bounds[:_NAMED] if name in columns]
        said = f"; with the bounds {', '.join(within)}" if within else ""
        return replace(reason, message=f"These rows cannot hold together: {listed}{said}.")


def _is_proven(solution: ProblemSolution) -> bool:
    """Whether a certificate proves what the status says, not only a bound or the solver's word."""
    certificate = solution.certificate
    return certificate is not None and certificate.claim == str(solution.status) and not solution.unproven


def _step(objective: Objective, integrality: Any) -> float:
    """The unit of which values of an objective (without its constant) are multiples; 0 if they may be fractions."""
    if not len(objective.columns):
        return 1.0
    if objective.unit is None or not integrality[objective.columns].all():
        return 0.0
    return float(np.gcd.reduce(np.abs(objective.values).astype(np.int64)) * objective.unit)


def _verdict_words(
    problem: SolvableStatement, found: StagesOutcome, verdict: Verdict | None, stages: StageAnswers
) -> tuple[Status, str]:
    """Status and message of an outcome."""
    if not found.status.has_answer:
        words = {
            Status.UNBOUNDED: "An objective improves without end; give bounds to what it uses.",
            Status.TIME_LIMIT: "The limit came before any answer.",
        }
        return found.status, words.get(found.status, found.message)
    if verdict is None:
        return (Status.OPTIMAL if found.sure else found.status), found.message if not found.sure else ""
    if not verdict.certificate.ok:
        return Status.ERROR, f"The solver's values do not satisfy the problem: {faults(verdict.certificate)}."
    if verdict.claim == "optimal":
        return Status.OPTIMAL, ""
    open_ = next(s for s in verdict.stages if not s.proven)
    quoted = stages[open_.name].quoted
    side = "at most" if next(o.maximize for o in problem.objectives if o.name == open_.name) else "at least"
    proven = f"proven {side} {float(open_.bound):g}" if open_.bound is not None else "no bound is proven"
    by_solver = f", {quoted:g} by the solver" if quoted is not None else ""
    status = Status.OPTIMAL if found.sure else Status.FEASIBLE
    word = "optimal by the solver's word, not proven" if found.sure else "feasible"
    return status, f"{word.capitalize()}: objective {open_.name!r}: {float(open_.value):g}; {proven}{by_solver}."
