"""The small protocol all models share: an instance becomes a formulation, the formulation a certified solution."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from numpy.typing import NDArray

from flowlex.formulations.engines import solve, solve_options
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, Infeasibility, Outcome, SolveOptions, Status
from flowlex.instances.base import Instance
from flowlex.validation.certificates import Certificate, Check, certify_network, certify_program

if TYPE_CHECKING:
    import pandas as pd
    import pulp
    from matplotlib.axes import Axes

__all__ = ["Equation", "Model", "ModelError", "Seconds", "Solution", "Symbol"]

InstanceT = TypeVar("InstanceT", bound=Instance)
SolutionT = TypeVar("SolutionT", bound="Solution")


class ModelError(ValueError):
    """An instance breaks an assumption of a model, or options contradict each other; names the offender."""


@dataclass(frozen=True)
class Symbol:
    """A set, parameter or variable of a model: its LaTeX and what it stands for."""

    latex: str
    says: str


@dataclass(frozen=True)
class Equation:
    """One family of constraints.

    Attributes
    ----------
    name
        The constraint's name in the formulation, in exported files and in ``solution.duals``.
    latex
        The equation.
    says
        In words.
    dual
        What its dual means; empty when it has none.
    """

    name: str
    latex: str
    says: str
    dual: str = ""


@dataclass(frozen=True)
class Seconds:
    """Where the time went."""

    compile: float = 0.0
    solve: float = 0.0
    check: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.compile + self.solve + self.check


@dataclass(frozen=True, kw_only=True)
class Solution:
    """What every solution tells; a model adds its domain result.

    Attributes
    ----------
    model, instance, engine
        Who solved what.
    status
        `Status`; only ``optimal`` and ``feasible`` come with an answer.
    objective, bound, gap
        In the model's units; ``bound`` is proven.
    duals
        Arrays by constraint name, see the model's equation table.
    certificate
        The recomputed checks; always attached to an answer.
    infeasibility
        Why there is no answer, when there is none.
    """

    model: str
    instance: str
    engine: str
    status: Status
    objective: float | int | None = None
    bound: float | int | None = None
    gap: float | None = None
    duals: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    certificate: Certificate | None = field(default=None, repr=False)
    seconds: Seconds = Seconds()
    message: str = ""
    infeasibility: Infeasibility | None = field(default=None, repr=False)

    def to_frame(self) -> pd.DataFrame:
        """The answer as a table."""
        raise NotImplementedError(f"{type(self).__name__} has no table")

    def plot(self, ax: Axes | None = None) -> Axes:
        """The answer as a picture."""
        raise NotImplementedError(f"{type(self).__name__} has no picture")

    def metrics(self) -> dict[str, float | int | str]:
        """The figures by which the answer is judged, in the order they should be printed."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a solution file; a model adds its placements."""
        return {
            "model": self.model,
            "instance": self.instance,
            "engine": self.engine,
            "status": str(self.status),
            "objective": self.objective,
            "bound": self.bound,
            "gap": self.gap,
            "message": self.message,
            "metrics": self.metrics() if self.status.has_answer else {},
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }

    def require_answer(self) -> None:
        """Raise `ModelError` saying why, unless there is an answer to look at."""
        if not self.status.has_answer:
            raise ModelError(f"{self.instance}: there is no answer ({self.status}). {self.message}".strip())

    def _repr_html_(self) -> str:
        facts = {"status": self.status, "objective": self.objective, "gap": self.gap, "engine": self.engine}
        if self.status.has_answer:
            facts |= self.metrics()
        if self.certificate is not None:
            facts["certificate"] = str(self.certificate).splitlines()[0]
        return _table(f"{self.model}: {self.instance}", facts)


@dataclass(frozen=True, eq=False, repr=False)
class Model(ABC, Generic[InstanceT, SolutionT]):
    """A scheduling problem stated as mathematics. Immutable; options are typed fields of the subclass.

    A subclass declares its mathematics once, as class variables, and gives ``_formulate`` (instance to
    formulation) and ``_interpret`` (outcome to solution). ``_verify`` recomputes the answer from the instance.
    """

    instance: InstanceT

    name: ClassVar[str]
    title: ClassVar[str]
    sets: ClassVar[tuple[Symbol, ...]] = ()
    parameters: ClassVar[tuple[Symbol, ...]] = ()
    unknowns: ClassVar[tuple[Symbol, ...]] = ()
    objective: ClassVar[str] = ""
    equations: ClassVar[tuple[Equation, ...]] = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.instance.kind} {self.instance.name!r}>"

    @cached_property
    def formulation(self) -> LinearProgram | FlowNetwork:
        """The mathematics as arrays, made once."""
        return self._formulate()

    @abstractmethod
    def _formulate(self) -> LinearProgram | FlowNetwork: ...

    def _facts(self, outcome: Outcome) -> dict[str, Any]:
        """The fields that every solution takes from an outcome; objective and bound in the formulation's units."""
        return {
            "model": self.name,
            "instance": self.instance.name,
            "engine": outcome.engine,
            "status": outcome.status,
            "objective": outcome.objective,
            "bound": outcome.bound,
            "gap": outcome.gap,
            "message": outcome.message,
            "infeasibility": outcome.infeasibility,
        }

    @abstractmethod
    def _interpret(self, outcome: Outcome) -> SolutionT:
        """Turn an outcome (with or without an answer) into the model's solution, in its units."""

    def _verify(self, solution: SolutionT) -> tuple[Check, ...]:
        """Recompute the answer from the instance, not from the formulation."""
        return ()

    def _optimise(self, engine: EngineName, options: SolveOptions) -> Outcome:
        """Solve the formulation; a model with several stages overrides this."""
        return solve(self.formulation, engine, options)

    def _certify(self, outcome: Outcome) -> Certificate:
        """Certificate of the formulation's outcome; a model with several stages overrides this."""
        formulation = self.formulation
        if isinstance(formulation, FlowNetwork):
            return certify_network(formulation, outcome)
        return certify_program(formulation, outcome)

    def compile(self) -> pulp.LpProblem:
        """The model as a PuLP problem, to read, to export, or to hand to any PuLP solver."""
        return self.formulation.to_pulp()

    def solve(self, engine: EngineName = "pulp", **options: Any) -> SolutionT:
        """Solve to a certified answer.

        Parameters
        ----------
        engine
            ``pulp``, ``highs`` or (networks) ``network``: the same answer at different speed.
        options
            See `flowlex.formulations.SolveOptions`.

        Raises
        ------
        CertificateError
            The answer does not stand up to the instance's data (a defect, never an input error).
        EngineError
            The engine cannot solve this model or honour an option.
        """
        chosen = solve_options(options)
        started = time.perf_counter()
        self._prepare()
        compiled = time.perf_counter()
        outcome = self._optimise(engine, chosen)
        solved = time.perf_counter()
        solution = self._interpret(outcome)
        if outcome.status.has_answer or outcome.infeasibility is not None:
            solution = replace(solution, certificate=self._certificate(outcome, solution))
        done = time.perf_counter()
        return replace(solution, seconds=Seconds(compiled - started, solved - compiled, done - solved))

    def _prepare(self) -> None:
        """Build what solving needs; a model that is not solved as one program builds less."""
        _ = self.formulation

    def _certificate(self, outcome: Outcome, solution: SolutionT) -> Certificate | None:
        if not outcome.status.has_answer and not isinstance(self.formulation, FlowNetwork):
            return None  # an irreducible infeasible set names rows; it proves nothing by itself
        certificate = self._certify(outcome)
        if outcome.status.has_answer:
            certificate = certificate.including(self._verify(solution))
        return certificate.require(f"{self.name}: {self.instance.name}")

    def sizes(self) -> dict[str, int | str]:
        """Sizes of the formulation."""
        formulation = self.formulation
        if isinstance(formulation, FlowNetwork):
            return {"formulation": "flow network", "nodes": formulation.node_count, "arcs": formulation.arc_count}
        kind = "integer program" if formulation.is_mip else "linear program"
        return {"formulation": kind, "columns": formulation.column_count, "rows": formulation.row_count}

    def details(self) -> list[tuple[str, pd.DataFrame]]:
        """Tables that ``flowlex show`` prints below the sizes: (caption, frame); none by default."""
        return []

    @classmethod
    def to_latex(cls) -> str:
        """The model as LaTeX: objective and constraints, with their names."""
        lines = [rf"\text{{minimise}}\quad & {cls.objective} &&"] if cls.objective else []
        lines += [rf"& {e.latex} && \text{{{e.name.replace('_', chr(92) + '_')}}}" for e in cls.equations]
        return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"

    def _repr_latex_(self) -> str:
        return f"$$\n{self.to_latex()}\n$$"

    def _repr_html_(self) -> str:
        parts = [_table(f"{self.title}: {self.instance.name}", {**self.instance.summary(), **self.sizes()})]
        for caption, symbols in (("Sets", self.sets), ("Parameters", self.parameters), ("Variables", self.unknowns)):
            if symbols:
                parts.append(_table(caption, {f"${s.latex}$": s.says for s in symbols}))
        head = "<tr><th>equation</th><th>name</th><th>says</th><th>dual</th></tr>"
        rows = "".join(
            f"<tr><td>${escape(e.latex)}$</td><td><code>{escape(e.name)}</code></td>"
            f"<td>{escape(e.says)}</td><td>{escape(e.dual)}</td></tr>"
            for e in self.equations
        )
        return "".join(parts) + f"<table>{head}{rows}</table>"


def _table(caption: str, facts: Mapping[str, Any]) -> str:
    left = "style='text-align:left'"
    rows = "".join(
        f"<tr><th {left}>{escape(str(key))}</th><td {left}>{escape(_text(value))}</td></tr>"
        for key, value in facts.items()
    )
    return f"<table><caption>{escape(caption)}</caption>{rows}</table>"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
