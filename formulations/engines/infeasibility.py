"""Why a formulation has no answer, in its own names."""

from __future__ import annotations

from dataclasses import replace

import highspy
import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Integers
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.linear_program import LinearProgram, LinearProgramArrays
from flowlex.formulations.outcome import Infeasibility, Outcome, SolveOptions

__all__ = ["explain_cut", "explain_network", "explain_program"]

_SHOWN = 8
#: HiGHS iis_strategy: search the linear program for a set that is irreducible.
_IIS_IRREDUCIBLE = 2 + 4
#: An explanation may not take longer than this; a larger set is then named instead.
_IIS_SECONDS = 60.0


def explain_program(program: LinearProgram, arrays: LinearProgramArrays, outcome: Outcome) -> Outcome:
    """Add an irreducible infeasible set, in the program's constraint names, to an infeasible outcome."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("iis_strategy", _IIS_IRREDUCIBLE)
    solver.setOptionValue("iis_time_limit", _IIS_SECONDS)
    relaxation = replace(arrays, integrality=np.zeros_like(arrays.integrality))
    from flowlex.formulations.engines.highs import pass_model

    pass_model(solver, relaxation)
    _, iis = solver.getIis()
    rows, columns = program.row_names(), program.column_names()
    if not iis.row_index_ and not iis.col_index_:
        return replace(outcome, infeasibility=Infeasibility(_without_set(relaxation, arrays.is_mip)))
    constraints = tuple(rows[i] for i in iis.row_index_)
    free = highspy.IisBoundStatus.kIisBoundStatusFree
    bounds = tuple(columns[j] for j, kind in zip(iis.col_index_, iis.col_bound_, strict=True) if kind != int(free))
    text = f"These constraints cannot hold together: {_some(constraints)}."
    if bounds:
        text += f" The bounds of {_some(bounds)} take part."
    text += " Relax or remove any one of them."
    return replace(outcome, infeasibility=Infeasibility(text, constraints, bounds))


def _without_set(relaxation: LinearProgramArrays, is_mip: bool) -> str:
    """Say why HiGHS names no set; only a solved relaxation may be called feasible."""
    from flowlex.formulations.engines.highs import solve_arrays

    if is_mip:
        answer = solve_arrays(replace(relaxation, cost=np.zeros_like(relaxation.cost)), SolveOptions(time_limit_s=60.0))
        if answer.status.has_answer:
            return "Without the integer requirements there are feasible answers; with them there are none."
    return (
        "HiGHS found no smaller set of constraints that explains it; the program may be infeasible by a hair: "
        "check its scaling, or leave constraints out until it has an answer."
    )


def explain_network(network: FlowNetwork) -> Infeasibility:
    """Find nodes whose supply cannot leave them: a cut that proves infeasibility."""
    from flowlex.formulations.engines.network import infeasible_cut

    inside = infeasible_cut(network)
    if inside is None:
        raise ValueError(f"{network.name} is feasible, there is nothing to explain")
    return explain_cut(network, inside)


def explain_cut(network: FlowNetwork, inside: NDArray[np.bool_]) -> Infeasibility:
    """Say in numbers why the nodes ``inside`` cannot be balanced, recomputed from the network."""
    leaving = inside[network.tail] & ~inside[network.head]
    entering = ~inside[network.tail] & inside[network.head]
    supply = sum(network.supply[inside].tolist())
    out, forced = _total(network.upper, leaving), _total(network.lower, entering)
    nodes = tuple(np.array(network.node_names, dtype=object)[inside].tolist())
    complement = tuple(np.array(network.node_names, dtype=object)[~inside].tolist())
    if len(complement) < len(nodes):  # say the same of the smaller side
        who, them = _some(complement), "it" if len(complement) == 1 else "them"
        text = f"{_subject(complement)} {who} must take in {supply + forced}, "
        text += f"but the arcs into {them} carry at most {out}"
        nodes = complement
    else:
        whose = "its" if len(nodes) == 1 else "their"
        carried = f"{supply}" + (f" of {whose} own and {forced} that lower bounds force in" if forced else "")
        text = f"{_subject(nodes)} {_some(nodes)} must send out {carried}, but the arcs out carry at most {out}"
    text += f": short by {supply + forced - out}. Add capacity there or reduce the supply."
    return Infeasibility(text, nodes=nodes)


def _total(values: Integers, chosen: NDArray[np.bool_]) -> int:
    picked = values[chosen].tolist()
    return UNBOUNDED if UNBOUNDED in picked else sum(picked)


def _subject(names: tuple[str, ...]) -> str:
    return "Node" if len(names) == 1 else "Nodes"


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
