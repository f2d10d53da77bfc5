"""What an engine returns, whichever it is, and the options every engine understands."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

__all__ = ["Algorithm", "EngineError", "EngineName", "Infeasibility", "Outcome", "SolveOptions", "Status"]

EngineName: TypeAlias = Literal["pulp", "highs", "network"]
Algorithm: TypeAlias = Literal["auto", "simplex", "ipm", "hipo", "pdlp"]


class EngineError(RuntimeError):
    """An engine cannot do what was asked, or failed; the message says what to do instead."""


class Status(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    #: A feasible answer whose optimality is not proven (a limit stopped the search).
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    #: The time limit came before any feasible answer.
    TIME_LIMIT = "time_limit"
    ERROR = "error"

    @property
    def has_answer(self) -> bool:
        """Whether there are values to look at."""
        return self in (Status.OPTIMAL, Status.FEASIBLE)


@dataclass(frozen=True)
class SolveOptions:
    """Options of a solve; an engine that cannot honour one refuses it instead of ignoring it.

    Parameters
    ----------
    time_limit_s
        Stop after this many seconds; the answer is then ``feasible`` or ``time_limit``, never ``optimal``.
    gap
        Relative gap at which an integer program may stop (0 asks for a proven optimum).
    seed
        Random seed of the solver.
    threads
        Threads the solver may use; its own choice when None.
    log
        Show the solver's own log on standard output.
    algorithm
        For linear programs; ``auto`` chooses by size.
    solver
        Another PuLP solver by its PuLP name (``pulp`` engine only), such as ``"COIN_CMD"``.
    """

    time_limit_s: float | None = None
    gap: float = 0.0
    seed: int = 0
    threads: int | None = None
    log: bool = False
    algorithm: Algorithm = "auto"
    solver: str | None = None

    def __post_init__(self) -> None:
        if self.time_limit_s is not None and not 0 < self.time_limit_s < math.inf:
            raise ValueError(f"time_limit_s must be a positive number of seconds, got {self.time_limit_s}")
        if not (self.gap >= 0 and math.isfinite(self.gap)):
            raise ValueError(f"gap must be a finite number of at least 0, got {self.gap}")
        if self.seed < 0 or self.seed > 2**31 - 1:
            raise ValueError(f"seed must lie in 0..2147483647, got {self.seed}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")
        if self.algorithm not in ("auto", "simplex", "ipm", "hipo", "pdlp"):
            raise ValueError(f"unknown algorithm {self.algorithm!r}; one of auto, simplex, ipm, hipo, pdlp")

    def only(self, engine: str, *supported: str) -> None:
        """Raise if an option that ``engine`` cannot honour was changed from its default."""
        default = SolveOptions()
        for name in self.__dataclass_fields__:
            if name not in supported and getattr(self, name) != getattr(default, name):
                raise EngineError(f"engine {engine!r} has no option {name!r}; drop it or use another engine")


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
    """

    message: str
    constraints: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


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

    @property
    def gap(self) -> float | None:
        """Relative gap ``|objective - bound| / max(1, |objective|)``; None when either is unknown."""
        if self.objective is None or self.bound is None:
            return None
        return abs(float(self.objective - self.bound)) / max(1.0, abs(float(self.objective)))
