"""Engines: ways to solve a formulation. All give the same answer as the same `Outcome`, at different speed.

``auto``
    The default: ``network`` for flow networks, ``pulp`` if a PuLP solver is named, else ``highs``.
``pulp``
    The formulation as a PuLP problem, handed to HiGHS (or to any other PuLP solver on request).
``highs``
    The same arrays handed to HiGHS at once.
``network``
    Network simplex, for flow networks: exact integers throughout.

An engine declares what it can do (`Engine`), and `solve` refuses the rest. Other packages may `register` engines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from flowlex.formulations.engines.infeasibility_explanation import explained
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.solver_outcome import EngineError, OptionError, Outcome, SolveOptions

__all__ = ["ENGINES", "Engine", "chosen_engine", "register", "runs_highs", "solve", "solve_options"]

Kind: TypeAlias = Literal["flow networks", "linear programs", "integer programs"]
Gift: TypeAlias = Literal["duals", "bound", "exact integers"]


@dataclass(frozen=True)
class Engine:
    """A way to solve formulations, and what it can do."""

    name: str  # how `solve` is asked for it
    solves: frozenset[Kind]  # kinds of formulation it takes
    #: What comes with an optimum: ``duals`` (not of integer programs), a proven ``bound``, ``exact integers`` (of any
    #: size; engines without work in floating point).
    gives: frozenset[Gift]
    options: frozenset[str]  # names of `SolveOptions` that it honours; the others are refused
    #: Solves a formulation of these kinds with such options. It never looks for reasons: `solve` does, in one place.
    run: Callable[[Any, SolveOptions], Outcome]


#: Engines by name, in the order in which they are offered.
ENGINES: dict[str, Engine] = {}


def register(engine: Engine) -> Engine:
    """Offer an engine; a name that is taken is an error."""
    if engine.name in ENGINES:
        raise ValueError(f"an engine named {engine.name!r} exists already")
    ENGINES[engine.name] = engine
    return engine


def solve(
    formulation: LinearProgram | FlowNetwork,
    engine: str = "auto",
    options: SolveOptions | None = None,
    **keywords: Any,
) -> Outcome:
    """Solve a formulation.

    Parameters
    ----------
    formulation
        What to solve.
    engine
        One of ``ENGINES``, or ``auto``.
    options, keywords
        `SolveOptions`, as an object or as keywords; an unknown keyword raises.

    Returns
    -------
    Outcome
        Without an answer it explains why, with a proof from the formulation's data.

    Raises
    ------
    EngineError
        The engine cannot solve this formulation, or does not support an option.
    TypeError
        A keyword is not an option.
    """
    if options is not None and keywords:
        raise TypeError("pass either options or keywords, not both")
    wanted = options or solve_options(keywords)
    engine, wanted = chosen_engine(engine, wanted, network=isinstance(formulation, FlowNetwork))
    if engine not in ENGINES:
        raise EngineError(f"unknown engine {engine!r}; one of: auto, {', '.join(ENGINES)}")
    chosen, kind = ENGINES[engine], _kind(formulation)
    if kind not in chosen.solves:
        able = [name for name, other in ENGINES.items() if kind in other.solves]
        own = ", ".join(sorted(chosen.solves))
        raise EngineError(f"engine {engine!r} solves {own} only; for {kind} use {_one_of(able)}")
    for name in wanted.changed():
        if name not in chosen.options:
            able = [e for e, other in ENGINES.items() if name in other.options and kind in other.solves]
            raise EngineError(f"engine {engine!r} has no option {name!r}; drop it or use {_one_of(able)}")
    return explained(formulation, chosen.run(formulation, wanted), wanted)


def chosen_engine(engine: str, options: SolveOptions, *, network: bool) -> tuple[str, SolveOptions]:
    """The engine that ``auto`` stands for, with the options that it takes; others stay as they are.

    Network simplex is exact, needs one thread and draws no random numbers, so it meets any gap, threads and seed.

    Parameters
    ----------
    network
        Whether the formulation is a flow network.
    """
    if engine != "auto":
        return engine, options
    if options.solver is not None:
        return "pulp", options
    met = ENGINES["network"].options | {"gap", "threads", "seed"}
    if network and set(options.changed()) <= met:
        default = SolveOptions()
        return "network", replace(options, gap=default.gap, threads=default.threads, seed=default.seed)
    return "highs", options


def solve_options(keywords: dict[str, Any], *others: str) -> SolveOptions:
    """Build options from keywords; the error for an unknown one lists those that exist, also the caller's others."""
    known = [name for name in SolveOptions.__dataclass_fields__ if name != "offer"]  # set by models, not by users
    for name in keywords:
        if name not in known:
            raise OptionError(f"unknown solver option {name!r}; one of: {', '.join([*known, *others])}")
    return SolveOptions(**keywords)


def runs_highs(engine: str, options: SolveOptions) -> bool:
    """Whether the engine runs HiGHS, so that a session that keeps HiGHS between programs gives the same answers.

    True for ``highs``, and for ``pulp`` unless the options name another solver.
    """
    return engine == "highs" or (engine == "pulp" and options.solver in (None, "HiGHS"))


def _kind(formulation: LinearProgram | FlowNetwork) -> Kind:
    if isinstance(formulation, FlowNetwork):
        return "flow networks"
    return "integer programs" if formulation.is_mip else "linear programs"


def _one_of(engines: list[str]) -> str:
    return " or ".join(map(repr, engines)) or "none: no engine can"


# Solvers are imported when they are first used.
def _pulp(formulation: LinearProgram | FlowNetwork, options: SolveOptions) -> Outcome:
    from flowlex.formulations.engines.pulp import solve_with_pulp

    return solve_with_pulp(formulation, options)


def _highs(formulation: LinearProgram | FlowNetwork, options: SolveOptions) -> Outcome:
    from flowlex.formulations.engines.highs import solve_with_highs

    return solve_with_highs(formulation, options)


def _network(formulation: FlowNetwork, options: SolveOptions) -> Outcome:
    from flowlex.formulations.engines.network import solve_network

    return solve_network(formulation, options)


_ALL: frozenset[Kind] = frozenset(("flow networks", "linear programs", "integer programs"))
_HIGHS = frozenset(("time_limit_s", "max_steps", "gap", "seed", "threads", "log", "algorithm"))
register(Engine("pulp", _ALL, frozenset(("duals", "bound")), _HIGHS | {"solver"}, _pulp))
register(Engine("highs", _ALL, frozenset(("duals", "bound")), _HIGHS, _highs))
register(
    Engine(
        "network",
        frozenset(("flow networks",)),
        frozenset(("duals", "bound", "exact integers")),
        frozenset(("time_limit_s",)),
        _network,
    )
)
