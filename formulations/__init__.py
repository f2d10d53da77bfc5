"""Mathematics that has never heard of a cluster: programs, networks, and the engines that solve them."""

from flowlex.formulations.engines import ENGINES, solve
from flowlex.formulations.expression import Expression, Variables
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork, NetworkBuilder
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineError, Infeasibility, Outcome, SolveOptions, Status

__all__ = [
    "ENGINES",
    "UNBOUNDED",
    "EngineError",
    "Expression",
    "FlowNetwork",
    "Infeasibility",
    "LinearProgram",
    "NetworkBuilder",
    "Outcome",
    "SolveOptions",
    "Status",
    "Variables",
    "solve",
]
