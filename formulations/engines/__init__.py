"""Engines: ways to solve a formulation. All give the same answer as the same `Outcome`, at different speed.

``pulp``
    The default: the formulation as a PuLP problem, handed to HiGHS (or to any other PuLP solver on request).
``highs``
    The same arrays handed to HiGHS whole.
``network``
    Network simplex, for flow networks: exact integers throughout.
"""

from __future__ import annotations

from typing import Any

from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineError, EngineName, Outcome, SolveOptions

__all__ = ["ENGINES", "solve"]

ENGINES: tuple[EngineName, ...] = ("pulp", "highs", "network")


def solve(
    formulation: LinearProgram | FlowNetwork,
    engine: EngineName = "pulp",
    options: SolveOptions | None = None,
    **keywords: Any,
) -> Outcome:
    """Solve a formulation.

    Parameters
    ----------
    formulation
        What to solve.
    engine
        One of ``ENGINES``.
    options, keywords
        `SolveOptions`, whole or as keywords; an unknown keyword raises.

    Raises
    ------
    EngineError
        The engine cannot solve this formulation, or cannot honour an option.
    TypeError
        A keyword is not an option.
    """
    if options is not None and keywords:
        raise TypeError("pass either options or keywords, not both")
    chosen = options or solve_options(keywords)
    if engine not in ENGINES:
        raise EngineError(f"unknown engine {engine!r}; one of: {', '.join(ENGINES)}")
    if engine == "network":
        if not isinstance(formulation, FlowNetwork):
            raise EngineError("engine 'network' solves flow networks only; use 'highs' or 'pulp' for this model")
        from flowlex.formulations.engines.network import solve_network

        return solve_network(formulation, chosen)
    if isinstance(formulation, FlowNetwork):
        from flowlex.formulations.engines.network_as_program import solve_network_as_program

        return solve_network_as_program(formulation, engine, chosen)
    if engine == "highs":
        from flowlex.formulations.engines.highs import solve_program

        return solve_program(formulation, chosen)
    from flowlex.formulations.engines.pulp import solve_with_pulp

    return solve_with_pulp(formulation, chosen)


def solve_options(keywords: dict[str, Any]) -> SolveOptions:
    """Build options from keywords; the error for an unknown one lists those that exist."""
    known = SolveOptions.__dataclass_fields__
    for name in keywords:
        if name not in known:
            raise TypeError(f"unknown solver option {name!r}; one of: {', '.join(known)}")
    return SolveOptions(**keywords)
