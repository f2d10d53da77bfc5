"""The small protocol all models share: an instance becomes a formulation, the formulation a certified solution."""

from __future__ import annotations

import pkgutil
import time
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from typing_extensions import TypeVar

from flowlex.formulations.deferred_compilation import small_work
from flowlex.formulations.engines import chosen_engine, solve, solve_options
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.gc_pause import collector_paused
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.solver_outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.instances.instance_base import Instance
from flowlex.instances.model_changes import Changes, read_changes
from flowlex.models.incumbents import Offers
from flowlex.models.model_options import check_option, option_types, plain_options
from flowlex.models.solution import Dual, ModelError, Seconds, Solution, Stated, plain
from flowlex.models.stated_model import StatedModel
from flowlex.validation.certificates import (
    Budget,
    Certificate,
    Check,
    SolutionError,
    certify_network,
    certify_program,
    changed_finding,
    verifier_for,
    verify,
)

if TYPE_CHECKING:
    import pandas as pd

    from flowlex.models.problem_solution import ProblemSolution

__all__ = ["Dual", "Model", "ModelError", "Run", "Seconds", "Solution"]


#: Message of an answer without a certificate.
UNCERTIFIED = "not certified: solved with certify=False"
#: Message of an answer whose facts hold, but not the proof of its optimum or bound.
UNPROVEN = "what the solver claims beyond the answer itself is not shown; please report this with the instance"
#: Message of an answer whose certificate was cut short by the time limit.
QUOTED = "certificate: the time limit passed before every proof was recomputed; `flowlex verify` has no limit"


@dataclass(frozen=True)
class Run:
    """Result of a solve, from which the answer is made. A model with stages of its own adds fields.

    Attributes
    ----------
    outcome
        What the engine returned; objective and bound are in the units of the formulation.
    """

    outcome: Outcome


InstanceT = TypeVar("InstanceT", bound=Instance)
SolutionT = TypeVar("SolutionT", bound=Solution)
RunT = TypeVar("RunT", bound=Run, default=Run)


@dataclass(frozen=True, eq=False, repr=False)
class Model(StatedModel[SolutionT], ABC, Generic[InstanceT, SolutionT, RunT]):
    """A scheduling problem stated as mathematics. Immutable; options are typed fields of the subclass.

    A subclass states its problem once, in ``state(p)``: mathematics, changes and exports follow. It implements

    - ``_check``: refuse an instance that breaks an assumption, and options that contradict each other;
    - ``_formulate``: instance to what its method solves;
    - ``_run``: engine and options to a `Run` (by default the formulation is solved, once);
    - ``_interpret``: run to solution;
    - ``_certify``: run and solution to a certificate (by default the verifier of the kind judges the document).

    Options and the type of the instance are checked when the model is made, from their declared types.

    Parameters
    ----------
    instance
        The problem's data, of the class that `instance_type` gives.
    changes
        Changes of the statement: `Changes`, their plain data, or the path of their file. `with_constraint` and similar
        methods add them.

    Raises
    ------
    InstanceError
        The changes cannot be read.
    ModelError
        The instance has another type or breaks an assumption, or an option is wrong.
    """

    instance: InstanceT
    changes: Changes = field(default_factory=Changes, kw_only=True)

    name: ClassVar[str]
    title: ClassVar[str]
    #: ``module:function`` that tabulates policies and baselines on one instance; empty when there are none.
    comparison: ClassVar[str] = ""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        family = cls if "name" in cls.__dict__ else cls._family
        if cls is not family and family is not None and "_formulate" in cls.__dict__:
            raise TypeError(
                f"{cls.__name__} overrides _formulate, which its method does not solve; "
                "override state (the problem) or use with_constraint"
            )
        cls._family, cls._restated = family, cls is not family and (cls._restated or "state" in cls.__dict__)

    def __post_init__(self) -> None:
        wanted = self.instance_type()
        if not isinstance(self.instance, wanted):
            kind = getattr(self.instance, "kind", None)
            got = f"an instance of kind {kind!r}" if isinstance(kind, str) else repr(self.instance)[:80]
            hint = "`model_for(instance)` finds its model" if kind else "read a file with `read_instance(path)` first"
            raise ModelError(f"{type(self).__name__} takes a {wanted.__name__}, got {got}; {hint}")
        object.__setattr__(self, "changes", read_changes(self.changes))
        for name in option_types(type(self)):
            object.__setattr__(self, name, check_option(type(self), name, getattr(self, name)))
        self._check()

    @classmethod
    def instance_type(cls) -> type[Instance]:
        """The class of instances that the model solves, as its declaration ``Model[...]`` says."""
        for base in cls.__mro__:
            for parent in getattr(base, "__orig_bases__", ()):
                first = next(iter(typing.get_args(parent)), None)
                if isinstance(first, type) and issubclass(first, Instance):
                    return first
        raise TypeError(f"{cls.__name__} does not say which instances it solves: class ...(Model[MyInstance, ...])")

    @classmethod
    def compare(cls, instance: InstanceT, **options: Any) -> pd.DataFrame:
        """One table of the problem's policies and baselines on one instance.

        Parameters
        ----------
        instance
            The instance on which all of them are solved.
        options
            Keywords of the problem's own table, such as ``engine``.

        Raises
        ------
        ModelError
            The model has no table of comparison.
        """
        if not cls.comparison:
            raise ModelError(f"{cls.__name__} has nothing to compare with")
        tabulate: Callable[..., pd.DataFrame] = pkgutil.resolve_name(cls.comparison)
        return tabulate(instance, **options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.instance.kind} {self.instance.name!r}>"

    def _check(self) -> None:
        """Raise `ModelError` for an instance that breaks an assumption, or options that contradict each other."""

    @cached_property
    def formulation(self) -> LinearProgram | FlowNetwork:
        """The mathematics as arrays, made once."""
        return self._formulate()

    @abstractmethod
    def _formulate(self) -> LinearProgram | FlowNetwork: ...

    @classmethod
    def declared(cls) -> frozenset[str]:
        """The names that rows of statements and formulations may have."""
        return frozenset()

    def _facts(self, run: RunT) -> dict[str, Any]:
        """The fields that every solution takes from a run; objective and bound in the formulation's units."""
        outcome = run.outcome
        return {
            "model": self.name,
            "source": self.instance,
            "options": plain_options(type(self), self),
            "engine": outcome.engine,
            "status": outcome.status,
            "objective": outcome.objective,
            "bound": outcome.bound,
            "gap": outcome.gap,
            "message": outcome.message,
            "infeasibility": outcome.infeasibility,
            "unboundedness": outcome.unboundedness,
        }

    def _run(self, engine: EngineName, options: SolveOptions) -> RunT:
        """Solve; a model with several stages overrides this and returns its own kind of `Run`."""
        return typing.cast(RunT, Run(solve(self.formulation, engine, options)))

    @abstractmethod
    def _interpret(self, run: RunT) -> SolutionT:
        """Turn a run (with or without an answer) into the model's solution, in its units."""

    def _verify(self, solution: SolutionT) -> tuple[Check, ...]:
        """Recompute the answer from the instance, not from the formulation."""
        return ()

    def _own_goals(self) -> tuple[Any, ...]:
        """Goals that must be passed to a verifier, as no file holds them."""
        return ()

    def _certify(self, run: RunT, solution: SolutionT, budget: Budget) -> Certificate | None:
        """Certificate of a run and its solution; None when there is nothing to certify.

        If this kind of instance has a verifier, it judges the document that a solution file would hold. Proofs stop
        when ``budget`` is spent; the rest is quoted.
        """
        verifier = verifier_for(self.instance.kind)
        if solution.stated is not None:
            return (
                None if self._restated else verify(solution.to_dict(), self.instance, budget, goals=self._own_goals())
            )
        if verifier is not None:
            document = solution.to_dict()
            provable = document["answer"] or document["proof"] or verifier.solvable
            return verify(document, self.instance, budget, goals=self._own_goals()) if provable else None
        formulation, outcome = self.formulation, run.outcome
        if isinstance(formulation, FlowNetwork):
            if not outcome.status.has_answer and outcome.infeasibility is None:
                return None
            certificate = certify_network(formulation, outcome)
        else:
            certificate = certify_program(formulation, outcome)
            if not solution.status.has_answer and certificate.claim == "feasible":
                return None  # an irreducible infeasible set names rows; it proves nothing by itself
        return certificate.including(self._verify(solution)) if outcome.status.has_answer else certificate

    def solve(
        self,
        engine: EngineName = "auto",
        *,
        certify: bool = True,
        report: Callable[[SolutionT], None] | None = None,
        start: SolutionT | None = None,
        **options: Any,
    ) -> SolutionT:
        """Solve to a certified answer.

        Parameters
        ----------
        engine
            ``pulp``, ``highs`` or (networks) ``network``: the same answer at different speed. ``auto``: ``network``
            where the formulation is one, ``pulp`` if a PuLP ``solver`` is named, else ``highs``.
        certify
            False: trust the engine and recompute nothing. The solution then has no certificate and its message says
            so; ``flowlex verify`` can still judge its file. For simulations that solve thousands of times.
        report
            Called with the best answer so far, certified, while solving goes on (models with stages or a search; about
            once a second, and between stages).
        start
            An initial answer, of this model or of one with other changes. It is used if the statement itself is
            solved; otherwise the message says that it was not.
        options
            See `flowlex.formulations.SolveOptions`.

        Raises
        ------
        CertificateError
            The answer contradicts the instance's data (a defect, never an input error).
        EngineError
            The engine cannot solve this model or does not support an option.
        """
        with small_work(self.instance.cells):
            chosen = solve_options(options, "certify", "start", "report")
            return self._solve(engine, chosen, certify, report, start, self.as_stated)

    def _solve(
        self,
        engine: EngineName,
        chosen: SolveOptions,
        certify: bool,
        report: Callable[[SolutionT], None] | None,
        start: SolutionT | None,
        stated: bool,
        *,
        twice: bool = True,
    ) -> SolutionT:
        """Solve by the method of the unchanged model, or (``stated``) the statement itself.

        ``twice``: the proof of a statement is judged where it is made, which makes its multipliers exact, and then by
        the verifier; False: only by the verifier.
        """
        remaining = partial(Budget.remaining, chosen.time_limit_s, processor_seconds())
        started = time.perf_counter()
        if report is not None:
            chosen = replace(chosen, offer=Offers(lambda run: self._hand_on(run, report, started, remaining())))
        if stated:
            self._prepare_statement()
        else:
            self._prepare()
        network = engine == "auto" and not stated and self._is_network
        name, chosen = chosen_engine(engine, chosen, network=network)
        engine = typing.cast(EngineName, name)
        compiled = time.perf_counter()
        if stated:
            found = self._run_statement(engine, chosen, start, certify and twice)
            solved = time.perf_counter()
            run, solution = typing.cast(RunT, found), self._read(found)
        else:
            run = self._run(engine, chosen)
            solved = time.perf_counter()
            solution = self._interpret(run)
            if start is not None:
                note = "The start was not used: the unchanged model has a method that needs none."
                solution = replace(solution, message=f"{solution.message} {note}".lstrip())
        budget = remaining()
        certificate = None
        if certify and solution.status.claims:
            solution, certificate = self._certified(run, solution, budget)
        unproven = QUOTED if budget.quoting else "" if certify else UNCERTIFIED
        if self._restated and certify:
            unproven = f"not certified: {type(self).__name__} states a problem that no verifier knows"
        if unproven:
            solution = replace(solution, message=f"{solution.message} {unproven}".lstrip())
        done = time.perf_counter()
        return solution.finished(certificate, Seconds(compiled - started, solved - compiled, done - solved))

    @property
    def _is_network(self) -> bool:
        """Whether the unchanged model is solved as a flow network."""
        return type(self)._run is Model._run and isinstance(self.formulation, FlowNetwork)

    def _certified(self, run: RunT, solution: SolutionT, budget: Budget) -> tuple[SolutionT, Certificate | None]:
        """A solution with its certificate; if only the proof fails, with weaker claims or as a feasible answer."""
        certificate = first = self._judged(run, solution, budget)
        if first is None or first.ok:
            return solution, first
        failed = next(check for check in first.checks if not check.ok)
        why = f"{UNPROVEN} ({failed.name}: {failed.detail or failed.worst})"
        if solution.stated is not None:
            for weaker_solution in self._with_weaker_claims(solution, solution.stated, why, budget):
                certificate = self._judged(run, weaker_solution, budget)
                if certificate is None or certificate.ok:
                    return weaker_solution, certificate
            first.require(f"{self.name}: {self.instance.name}")
        weaker = self._weaker(run)
        if weaker is not None:
            run, solution = weaker, self._interpret(weaker)
            certificate = self._judged(run, solution, budget) if solution.status.claims else None
            if certificate is None or certificate.ok:
                return solution, certificate
        if solution.status.has_answer:
            solution = solution.without_claims(why)
            certificate = self._judged(run, solution, budget)
        if certificate is None or not certificate.ok:
            first.require(f"{self.name}: {self.instance.name}")
        return solution, certificate

    def _judged(self, run: RunT, solution: SolutionT, budget: Budget) -> Certificate | None:
        """The certificate of a solution; if its document cannot even be read, one that fails."""
        try:
            with collector_paused():
                return self._certify(run, solution, budget)
        except SolutionError as error:
            return Certificate("feasible", True, (Check("can be judged", False, detail=str(error)[:300]),))

    def _with_weaker_claims(self, solution: SolutionT, stated: Stated, why: str, budget: Budget) -> Iterator[SolutionT]:
        """The answer of a changed model with what its proof shows, then without proof."""
        bare = replace(solution, stated=replace(stated, proof={}))
        if not solution.status.has_answer:
            yield replace(bare, message=f"{solution.message} {why}".lstrip())
            return
        lowered = replace(solution.without_claims(why), unproven=False)
        found = changed_finding(lowered.to_dict(), self.instance, budget, goals=self._own_goals())
        if found is not None and found.objective is not None and found.bound is not None:
            objective, bound = Fraction(found.objective), Fraction(found.bound)
            gap = float(abs(objective - bound) / max(Fraction(1), abs(objective)))
            yield replace(lowered, bound=plain(bound), gap=gap)
        yield replace(lowered, stated=bare.stated)

    def _hand_on(
        self, run: RunT | ProblemSolution, report: Callable[[SolutionT], None], started: float, budget: Budget
    ) -> None:
        """Report an intermediate answer, unless its certificate fails."""
        found = time.perf_counter()
        solution = self._interpret(run) if isinstance(run, Run) else self._read(run)
        run = typing.cast(RunT, run)
        certificate = self._certify(run, solution, budget) if solution.status is Status.FEASIBLE else None
        if certificate is not None and certificate.ok:
            report(solution.finished(certificate, Seconds(solve=found - started, check=time.perf_counter() - found)))

    def _weaker(self, run: RunT) -> RunT | None:
        """The run with a claim that needs less proof, for when its own proof fails; None if there is none."""
        return None

    def _prepare(self) -> None:
        """Build what solving needs; a model that is not solved as one program builds less."""
        _ = self.formulation

    def sizes(self) -> dict[str, int | str]:
        """Sizes of the formulation."""
        if self.as_stated:
            problem = self.problem
            kind = "integer program" if any(b.integer.any() for b in problem.blocks.values()) else "linear program"
            return {"formulation": kind, "columns": problem.column_count, "rows": problem.row_count}
        formulation = self.formulation
        if isinstance(formulation, FlowNetwork):
            return {"formulation": "flow network", "nodes": formulation.node_count, "arcs": formulation.arc_count}
        kind = "integer program" if formulation.is_mip else "linear program"
        return {"formulation": kind, "columns": formulation.column_count, "rows": formulation.row_count}

    def details(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Tables that ``flowlex show`` prints below the sizes: (caption, columns); none by default."""
        return []
