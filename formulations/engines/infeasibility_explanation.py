"""Explain why a formulation is infeasible or unbounded, in its own names, with a proof."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction

import numpy as np

from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Booleans, Floats, Integers, LinearProgramArrays
from flowlex.formulations.solver_outcome import Infeasibility, Outcome, SolveOptions, Status, Unboundedness

_SHOWN = 8
#: HiGHS iis_strategy: search the linear program for a set that is irreducible.
_IIS_IRREDUCIBLE = 2 + 4
#: An explanation may not take longer than this; a larger set is then named instead.
_SECONDS = 60.0


def explained(
    formulation: LinearProgram | FlowNetwork, outcome: Outcome, options: SolveOptions, first: Collection[str] = ()
) -> Outcome:
    """Return the outcome, with the reason added if it has no answer; rows of the blocks ``first`` are named first."""
    if outcome.status is Status.INFEASIBLE:
        if isinstance(formulation, FlowNetwork):
            known = outcome.infeasibility
            cut = _cut(formulation) if known is None or known.cut is None else known.cut
            reason = explain_cut(formulation, cut)
            return replace(outcome, infeasibility=reason, message=reason.message)
        return replace(
            outcome, infeasibility=_conflict(formulation, min(_SECONDS, options.time_limit_s or _SECONDS), first)
        )
    if outcome.status is Status.UNBOUNDED:
        why = _endless_network(formulation) if isinstance(formulation, FlowNetwork) else _endless_program(formulation)
        return replace(outcome, unboundedness=why, message=why.message or outcome.message)
    return outcome


# Programs ----------------------------------------------------------------------------------------------------------
def _conflict(program: LinearProgram, seconds: float, first: Collection[str] = ()) -> Infeasibility:
    """An irreducible infeasible set, in the program's constraint names, and multipliers that prove it."""
    from flowlex.formulations.engines.highs import pass_model, quiet

    arrays = program.arrays()
    relaxation = replace(arrays, integrality=np.zeros_like(arrays.integrality))
    solver = quiet(iis_strategy=_IIS_IRREDUCIBLE, iis_time_limit=seconds)
    pass_model(solver, relaxation)
    _, iis = solver.getIis()
    if not iis.row_index_ and not iis.col_index_:
        message, infeasible = _without_set(relaxation, arrays.is_mip, seconds)
        return Infeasibility(message, farkas=_farkas(relaxation, None, seconds) if infeasible else None)
    rows, columns = program.row_names(), program.column_names()
    users = {row for name in first for row in range(*_rows_of(program, name))}
    constraints = tuple(rows[i] for i in sorted(iis.row_index_, key=lambda row: row not in users))
    bounds = tuple(columns[j] for j, kind in zip(iis.col_index_, iis.col_bound_, strict=True) if kind != _free())
    text = f"These constraints cannot hold together: {_some(constraints)}."
    if bounds:
        text += f" The bounds of {_some(bounds)} take part."
    text += " Relax or remove any one of them."
    return Infeasibility(text, constraints, bounds, farkas=_farkas(relaxation, list(iis.row_index_), seconds))


def _rows_of(program: LinearProgram, name: str) -> tuple[int, int]:
    """First row of a block, and the one after its last."""
    block = program.constraint_blocks[name]
    return block.start, block.start + block.count


def _free() -> int:
    import highspy

    return int(highspy.IisBoundStatus.kIisBoundStatusFree)


def _without_set(relaxation: LinearProgramArrays, is_mip: bool, seconds: float) -> tuple[str, bool]:
    """Explain why HiGHS names no set; also return whether the relaxation may be infeasible (unless solved, it may)."""
    from flowlex.formulations.engines.highs import solve_arrays

    if is_mip:
        free = replace(relaxation, cost=np.zeros_like(relaxation.cost))
        if solve_arrays(free, SolveOptions(time_limit_s=seconds)).status.has_answer:
            return "Without the integer requirements there are feasible answers; with them there are none.", False
    return (
        "HiGHS found no smaller set of constraints that explains it; the program may be infeasible by a hair: "
        "check its scaling, or leave constraints out until it has an answer."
    ), True


def _farkas(arrays: LinearProgramArrays, among: list[int] | None, seconds: float) -> Floats | None:
    """Multipliers that prove infeasibility, integers if possible; None if HiGHS has no valid ones."""
    from flowlex.formulations.engines.highs import pass_model, quiet, run

    rows = np.arange(len(arrays.row_lower)) if among is None else np.array(sorted(among), np.int64)
    part = replace(
        arrays,
        matrix=arrays.matrix.tocsr()[rows].tocsc(),
        row_lower=arrays.row_lower[rows],
        row_upper=arrays.row_upper[rows],
        cost=np.zeros_like(arrays.cost),
    )
    solver = quiet(presolve="off", solver="simplex", time_limit=seconds)
    pass_model(solver, part)
    run(solver)
    _, found, ray = solver.getDualRay()
    whole = np.zeros(len(arrays.row_lower))
    # A single row may be found infeasible before the simplex method starts; HiGHS then has no multipliers.
    raw = np.asarray(ray, np.float64) if found else np.full(len(rows), float(len(rows) == 1))
    if not raw.any():
        return None
    for candidate in (_whole(raw), raw):
        for signed in (candidate, -candidate):
            whole[rows] = signed
            if farkas_margin(arrays, whole) > 0:
                return whole
    return None


def _whole(direction: Floats) -> Floats:
    """Scale a direction to its smallest integers; return it unchanged if these are not small."""
    members = direction[direction != 0]
    if not len(members):
        return direction
    scaled = direction / np.abs(members).min()
    parts = {Fraction(value).limit_denominator(1000).denominator for value in np.unique(scaled).tolist()}
    factor = math.lcm(*parts)
    whole = np.rint(scaled * min(factor, 10**9))
    return whole if np.abs(scaled * factor - whole).max() <= 1e-6 * factor else direction


def farkas_margin(arrays: LinearProgramArrays, farkas: Floats) -> float:
    """Amount by which the rows, times their multipliers, exceed what the column bounds allow; infeasible if > 0.

    Column sums below 1e-9 of the sum of their absolute terms count as zero.
    """
    asked = np.where(farkas > 0, arrays.row_lower, arrays.row_upper)[farkas != 0] @ farkas[farkas != 0]
    column = arrays.matrix.T @ farkas
    column[np.abs(column) <= 1e-9 * (abs(arrays.matrix).T @ np.abs(farkas))] = 0.0
    bound = np.where(column > 0, arrays.column_upper, arrays.column_lower)[column != 0]
    margin = float(asked - bound @ column[column != 0])
    return margin if np.isfinite(margin) else -np.inf


def _endless_program(program: LinearProgram) -> Unboundedness:
    from flowlex.formulations.engines.highs import pass_model, quiet, run, solve_arrays

    arrays = program.arrays()
    point = solve_arrays(replace(arrays, cost=np.zeros_like(arrays.cost)), SolveOptions(time_limit_s=_SECONDS))
    relaxation = replace(arrays, integrality=np.zeros_like(arrays.integrality))
    solver = quiet(presolve="off", solver="simplex", simplex_strategy=4, time_limit=_SECONDS)  # the primal simplex
    pass_model(solver, relaxation)
    run(solver)
    _, found, values = solver.getPrimalRay()
    if not found:
        return Unboundedness("", point=point.values)
    ray = _whole(np.asarray(values, np.float64))
    names = np.array(program.column_names(), dtype=object)[ray != 0]
    return Unboundedness(f"{_some(tuple(names))} may change without end, for the better. Bound one", point.values, ray)


# Networks ----------------------------------------------------------------------------------------------------------
def _cut(network: FlowNetwork) -> Booleans:
    from flowlex.formulations.engines.network import infeasible_cut

    inside = infeasible_cut(network)
    if inside is None:
        raise ValueError(f"{network.name} is feasible, there is nothing to explain")
    return inside


def explain_cut(network: FlowNetwork, inside: Booleans) -> Infeasibility:
    """Explain with numbers from the network why the nodes ``inside`` cannot be balanced."""
    leaving = inside[network.tail] & ~inside[network.head]
    entering = ~inside[network.tail] & inside[network.head]
    supply = sum(network.supply[inside].tolist())
    out, forced = _total(network.upper, leaving), _total(network.lower, entering)
    nodes = tuple(np.array(network.node_names, dtype=object)[inside].tolist())
    complement = tuple(np.array(network.node_names, dtype=object)[~inside].tolist())
    if len(complement) < len(nodes):  # describe the smaller side
        who, them = _some(complement), "it" if len(complement) == 1 else "them"
        text = f"{_subject(complement)} {who} must take in {supply + forced}, "
        text += f"but the arcs into {them} carry at most {out}"
        nodes = complement
    else:
        whose = "its" if len(nodes) == 1 else "their"
        carried = f"{supply}" + (f" of {whose} own and {forced} that lower bounds force in" if forced else "")
        text = f"{_subject(nodes)} {_some(nodes)} must send out {carried}, but the arcs out carry at most {out}"
    text += f": short by {supply + forced - out}. Add capacity there or reduce the supply."
    return Infeasibility(text, nodes=nodes, cut=inside)


def _endless_network(network: FlowNetwork) -> Unboundedness:
    from flowlex.formulations.engines.network import solve_exactly

    cycle, answer = _endless_cycle(network), solve_exactly(replace(network, cost=np.zeros_like(network.cost)))
    assert answer is not None
    ray = np.zeros(network.arc_count, np.int64)
    ray[cycle] = 1
    named = f"a cycle of negative cost through {network.describe_arc(int(cycle[0]))} has no capacity"
    return Unboundedness(f"{named}; bound one of its arcs", point=answer[0], ray=ray, cycle=cycle)


def _endless_cycle(network: FlowNetwork) -> Integers:
    """Arcs without capacity that form a cycle of negative cost, in order."""
    import networkx as nx

    graph = nx.DiGraph()
    for arc in np.flatnonzero(network.upper == UNBOUNDED).tolist():
        tail, head, cost = int(network.tail[arc]), int(network.head[arc]), int(network.cost[arc])
        if cost < graph.get_edge_data(tail, head, {"weight": math.inf})["weight"]:
            graph.add_edge(tail, head, weight=cost, arc=arc)
    graph.add_weighted_edges_from([(-1, node, 0) for node in graph])
    nodes = nx.find_negative_cycle(graph, -1)
    return np.array([graph.edges[step]["arc"] for step in itertools.pairwise(nodes)])


def _total(values: Integers, chosen: Booleans) -> int:
    picked = values[chosen].tolist()
    return UNBOUNDED if UNBOUNDED in picked else sum(picked)


def _subject(names: tuple[str, ...]) -> str:
    return "Node" if len(names) == 1 else "Nodes"


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
