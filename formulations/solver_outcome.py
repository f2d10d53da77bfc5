"""The outcome that every engine returns, and the options that every engine understands."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Real
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

from flowlex.errors import FlowlexError
from flowlex.formulations.program_arrays import Booleans, Floats

EngineName: TypeAlias = Literal["auto", "pulp", "highs", "network"]
Algorithm: TypeAlias = Literal["auto", "simplex", "ipm", "hipo", "pdlp"]


class EngineError(FlowlexError, RuntimeError):
    """An engine cannot do what was asked, or failed; the message says what to do instead."""


class OptionError(EngineError, ValueError, TypeError):
    """An option of a solve does not exist or has a wrong value; names it."""


class Status(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    #: A feasible answer whose optimality is not proven (a limit stopped the search).
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    #: A limit (of time or steps) came before any feasible answer.
    TIME_LIMIT = "time_limit"
    ERROR = "error"

    @property
    def has_answer(self) -> bool:
        """Whether there are values to look at."""
        return self in (Status.OPTIMAL, Status.FEASIBLE)

    @property
    def claims(self) -> bool:
        """Whether it states something about the problem that can be proven or refuted."""
        return self in (Status.OPTIMAL, Status.FEASIBLE, Status.INFEASIBLE, Status.UNBOUNDED)


@dataclass(frozen=True)
class SolveOptions:
    """Options of a solve; an engine refuses an option that it does not support.

    Parameters
    ----------
    time_limit_s
        Stop after this many seconds; the answer is then ``feasible`` or ``time_limit``, never ``optimal``. The
        certificate may take the processor seconds that are left, at least a tenth of the limit; it quotes the rest.
    max_steps
        Stop after this much work, whatever the clock says: iterations of a linear program, nodes of the search tree of
        an integer program. The same seed then gives the same answer on a busy machine. Ends like ``time_limit_s``.
    gap
        Relative gap at which an integer program may stop (0 asks for a proven optimum).
    seed
        Random seed of the solver.
    threads
        Threads the solver may use; its own choice when None.
    log
        Show the solver's own log on standard output.
    algorithm
        For linear programs; ``auto`` is the dual simplex method.
    solver
        Another PuLP solver (``pulp`` engine only): by its PuLP name, such as ``"COIN_CMD"``, or as an object with its
        own options, such as ``pulp.GUROBI(msg=False, timeLimit=60)``; other options are then refused.
    offer
        Set by ``Model.solve(report=...)``: receives intermediate answers of models with stages or a search.
        Engines ignore it.
    """

    time_limit_s: float | None = None
    max_steps: int | None = None
    gap: float = 0.0
    seed: int = 0
    threads: int | None = None
    log: bool = False
    algorithm: Algorithm = "auto"
    solver: Any = None
    offer: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("time_limit_s", "gap", "seed", "threads"):
            given: Any = getattr(self, name)
            if given is not None and not isinstance(given, Real):
                raise OptionError(f"{name} must be a number, got {given!r}")
        if self.time_limit_s is not None and not 0 < self.time_limit_s < math.inf:
            raise OptionError(f"time_limit_s must be a positive number of seconds, got {self.time_limit_s}")
        if self.max_steps is not None and (not isinstance(self.max_steps, int) or self.max_steps < 1):
            raise OptionError(f"max_steps must be an integer of at least 1, got {self.max_steps}")
        if not (self.gap >= 0 and math.isfinite(self.gap)):
            raise OptionError(f"gap must be a finite number of at least 0, got {self.gap}")
        if self.seed < 0 or self.seed > 2**31 - 1:
            raise OptionError(f"seed must lie in 0..2147483647, got {self.seed}")
        if self.threads is not None and self.threads < 1:
            raise OptionError(f"threads must be at least 1, got {self.threads}")
        if self.algorithm not in ("auto", "simplex", "ipm", "hipo", "pdlp"):
            raise OptionError(f"unknown algorithm {self.algorithm!r}; one of auto, simplex, ipm, hipo, pdlp")
        if self.solver is not None and not isinstance(self.solver, str) and not hasattr(self.solver, "actualSolve"):
            raise OptionError(f"solver must be a PuLP solver or the name of one, got {self.solver!r}")

    def changed(self) -> list[str]:
        """Names of the options that differ from their defaults."""
        compared = ((name, each.default) for name, each in self.__dataclass_fields__.items() if each.compare)
        return [name for name, default in compared if getattr(self, name) != default]


@dataclass(frozen=True)
class Infeasibility:
    """Why there is no feasible answer.

    Attributes
    ----------
    message
        One paragraph for a person.
    constraints
        Names of an irreducible infeasible set of rows (linear programs).
    bounds
        Names of the columns whose bounds take part.
    nodes
        Names of the nodes on the overloaded side of a cut (networks).
    farkas
        (m,) multipliers y of the rows (linear programs, when found): within the column bounds ``y'Ax`` stays below
        what the rows ask of it, the sum of ``y_i`` times the lower side (the upper one where ``y_i < 0``).
    cut
        (N,) nodes that must send out more than the arcs out of them carry (networks).
    """

    message: str
    constraints: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    farkas: Floats | None = field(default=None, repr=False)
    cut: Booleans | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Unboundedness:
    """Why the problem is unbounded.

    Attributes
    ----------
    message
        One sentence for a person.
    point
        (n,) a feasible answer.
    ray
        (n,) a ray of feasible answers from there along which the objective improves without bound.
    cycle
        (k,) arcs without capacity that form a cycle of negative cost (networks; the ray sends one unit along it).
    """

    message: str
    point: NDArray[Any] | None = field(default=None, repr=False)
    ray: NDArray[Any] | None = field(default=None, repr=False)
    cycle: NDArray[Any] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Outcome:
    """Plain data from an engine.

    Attributes
    ----------
    status
        Never ``optimal`` unless the engine proved it.
    objective
        Value of the answer; an exact integer for networks.
    bound
        Proven bound on the optimum (equal to the objective at a proven optimum).
    values
        (n,) values of columns or flows of arcs (int64 for networks); None without an answer.
    duals
        (m,) change of the objective per unit of right-hand side, in the problem's own direction;
        for networks the potential of each node; None for integer programs.
    reduced_costs
        (n,) ``cost - A' duals``; None for integer programs.
    """

    status: Status
    engine: str
    objective: float | int | None = None
    bound: float | int | None = None
    values: NDArray[Any] | None = field(default=None, repr=False)
    duals: NDArray[Any] | None = field(default=None, repr=False)
    reduced_costs: NDArray[Any] | None = field(default=None, repr=False)
    algorithm: str = ""
    iterations: int = 0
    seconds: float = 0.0
    message: str = ""
    infeasibility: Infeasibility | None = field(default=None, repr=False)
    unboundedness: Unboundedness | None = field(default=None, repr=False)

    @property
    def gap(self) -> float | None:
        """Relative gap ``|objective - bound| / max(1, |objective|)``; None when either is unknown."""
        if self.objective is None or self.bound is None:
            return None
        return abs(float(self.objective - self.bound)) / max(1.0, abs(float(self.objective)))
