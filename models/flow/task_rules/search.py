"""Schedules under rules that tie tasks together: stage by stage, an integer program where relaxation leaves a doubt.

The relaxation of every stage bounds it. Where the bound says that the best known schedule might be beaten, the integer
program is solved, by the engine that was asked for; its choices (which gangs run, in which domain, which tasks in which
cell) leave a network, whose lexicographic optimum is the schedule, in exact integers. A tree of relaxations then proves
the stage. It may have so many leaves at most; beyond, the bound of the open ones is all that is claimed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flowlex.formulations.arrays import Floats, Integers, exact_dot
from flowlex.formulations.engines import solve
from flowlex.formulations.expression import Expression
from flowlex.formulations.lexicographic.integers import Leaf, Relaxation, Search, prove
from flowlex.formulations.lexicographic.network import solve_lexicographic
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.proof import document_of, prices_of
from flowlex.models.flow.task_rules.program import BondProgram

__all__ = ["MOST_LEAVES", "Found", "bond_proof", "search", "stage_program"]

#: Leaves of the tree of one stage.
MOST_LEAVES = 200
#: Nodes of an integer program of HiGHS, where the caller says nothing.
_NODES = 20_000
#: The same where the program is to find a good schedule only.
_GUIDED = 200


@dataclass(frozen=True)
class Found:
    """The best schedule found, as a flow with its value at every stage, and what proves the stages."""

    flow: Integers
    values: Mapping[str, int]
    searches: Mapping[str, Search]
    outcome: Outcome


class _Best:
    """The best flow so far."""

    def __init__(
        self, schedule: ScheduleNetwork, bonded: BondProgram, costs: Mapping[str, Integers], sum_of: Integers | None
    ) -> None:
        self._schedule, self._bonded, self._costs = schedule, bonded, list(costs.values())
        self._solved = self._costs if sum_of is None else [sum_of]
        self.values: tuple[int, ...] = ()
        self.flow: Integers = np.zeros(0, np.int64)
        self.look(np.zeros(bonded.program.column_count))  # none of the tied tasks runs: always possible

    def look(self, values: Floats) -> None:
        """Take the choices of an answer of the program, if the best schedule under them is better."""
        network = self._bonded.chosen(self._schedule.network, values)
        outcome = solve_lexicographic(network, self._solved, "network")[-1].outcome
        if outcome.status is not Status.OPTIMAL or outcome.values is None:
            return
        flow: Integers = np.rint(outcome.values).astype(np.int64)
        each = tuple(exact_dot(cost, flow) for cost in self._costs)
        if not self.values or each < self.values:
            self.values, self.flow = each, flow


def search(
    schedule: ScheduleNetwork,
    bonded: BondProgram,
    costs: Mapping[str, Integers],
    engine: EngineName,
    options: SolveOptions,
    sum_of: Integers | None = None,
) -> Found:
    """Minimise the stages one after the other; stops at the first that is not proven.

    ``sum_of``: one cost that comes to the same as the stages on a network; None where that would not be exact.
    """
    started = time.perf_counter()
    until = None if options.time_limit_s is None else started + options.time_limit_s
    relaxation = Relaxation(bonded.program.arrays())
    best, searches, known = _Best(schedule, bonded, costs, sum_of), dict[str, Search](), dict[str, int]()

    def attempt(name: str, *, guided: bool) -> None:
        outcome = solve(stage_program(bonded, costs, name, known, guided=guided), engine, _left(options, until, guided))
        if outcome.values is not None:
            best.look(outcome.values)

    attempt(next(iter(costs)), guided=True)
    message = ""
    for k, (name, cost) in enumerate(costs.items()):
        wide = np.pad(cost, (0, bonded.program.column_count - len(cost)))
        relaxation.minimise(wide)

        def found(values: Floats, k: int = k) -> int:
            best.look(values)
            return best.values[k]

        if best.values[k] == 0 and (cost >= 0).all():
            each = Search(0, (relaxation.leaf((), np.zeros(0), 1),))  # nothing is less than 0
        else:
            each = prove(relaxation, best.values[k], found, most=1)
        for guided in (True, False):
            if not each.proven:
                attempt(name, guided=guided)
                each = prove(relaxation, best.values[k], found, most=1 if guided else MOST_LEAVES, until=until)
        searches[name], known[name] = each, best.values[k]
        if not each.proven:
            message = f"stage {name}: {best.values[k]}, at least {each.bound}; later stages were not looked at"
            break
        relaxation.keep(wide, best.values[k])
    values = dict(zip(costs, best.values, strict=True))
    last = list(searches)[-1]
    outcome = Outcome(
        Status.FEASIBLE if message else Status.OPTIMAL,
        objective=values[last],
        bound=searches[last].bound,
        values=best.flow,
        message=message or "Optimal",
        engine=engine,
        seconds=time.perf_counter() - started,
    )
    return Found(best.flow, values, searches, outcome)


def _left(options: SolveOptions, until: float | None, guided: bool) -> SolveOptions:
    """Options of one integer program."""
    left = replace(options, offer=None)
    if until is not None:
        left = replace(left, time_limit_s=max(until - time.perf_counter(), 0.001))
    if left.solver is not None:
        return left
    if guided:
        return replace(left, gap=max(left.gap, 1e-3), max_steps=min(left.max_steps or _GUIDED, _GUIDED))
    return replace(left, max_steps=left.max_steps or _NODES)


def stage_program(
    bonded: BondProgram, costs: Mapping[str, Integers], name: str, known: Mapping[str, int], *, guided: bool = False
) -> LinearProgram:
    """The integer program of a stage, with the stages before it kept at their values.

    With ``guided``, later stages count too, each less than those before: no stage is then surely at its best, but the
    answer is good at all.
    """
    program = bonded.program.copy()
    cost = costs[name]
    if guided:
        later = list(costs)[list(costs).index(name) :][::-1]
        swap = 2 * int(np.abs(costs[later[0]]).max(initial=0)) + 1
        cost = np.sum([costs[other] * (swap * k if k else 1) for k, other in enumerate(later)], axis=0)
    program.minimize(_rows([cost]))
    before = [other for other in known if other != name and costs[other].any()]
    if before:
        rows = _rows([costs[other] for other in before])
        program.constrain("stage", rows, "<=", [known[other] for other in before], labels=before)
    return program


def _rows(costs: list[Integers]) -> Expression:
    row, column = np.nonzero(np.stack(costs))
    return Expression(row, column, np.stack(costs)[row, column].astype(np.float64), np.zeros(len(costs)))


def bond_proof(
    schedule: ScheduleNetwork,
    bonded: BondProgram,
    costs: Mapping[str, Integers],
    found: Found,
    instance: FlowInstance,
) -> dict[str, Any]:
    """The trees of all stages by name, over the instance's own names; judged by `flowlex.validation.certificates`."""
    names = list(costs)
    return {
        "trees": {
            stage: [
                _leaf(schedule, bonded, costs, names[: names.index(stage) + 1], leaf, instance) for leaf in s.leaves
            ]
            for stage, s in found.searches.items()
        }
    }


def _leaf(
    schedule: ScheduleNetwork,
    bonded: BondProgram,
    costs: Mapping[str, Integers],
    stages: list[str],
    leaf: Leaf,
    instance: FlowInstance,
) -> dict[str, Any]:
    weights = dict(zip(stages, [*(-each for each in leaf.earlier), leaf.own], strict=True))
    cost: Integers = np.sum([weight * costs[name] for name, weight in weights.items()], axis=0)
    prices = prices_of(schedule, weights, cost, leaf.duals[: schedule.network.node_count])
    spread: dict[str, dict[str, int]] = defaultdict(dict)
    if bonded.limits:
        rows = bonded.program.constraint_blocks["spread"].rows
        for (name, tag), dual in zip(bonded.limits, leaf.duals[rows].tolist(), strict=True):
            if dual < 0:
                spread[name][tag] = -dual
    fixed, named = [(bonded.choices[column], value) for column, value in leaf.fixed], document_of(instance, prices)
    return {
        "fixed": [[c.kind, c.subject, list(c.tags), value] for c, value in fixed],
        "weights": {name: int(weight) for name, weight in weights.items() if weight},
        **{name: named[name] for name in ("machine_price", "job_price", "apart_price")},
        "spread_price": dict(spread),
    }
