r"""Large schedules by parts: machines and tasks dealt at random, each part solved alone, and a bound on the whole.

A part is the network with only its tasks and machines; groups are in all. Machines of one rack, size and labels go
round the parts. A running task goes where its machine is; then, the most important first, each to the part with room
where it is cheapest, that with the most room of equals. So tasks of one job are in many parts, and where data lie
counts. The flows of the parts add up to one of the whole.

How far it is from the best is proven by prices p of the machines' slots, whatever they are (see
`flowlex.validation.certificates.flow.prices`): with d(t) the cheapest way of task t to run (slot included) or wait,

    cost >= sum_t d(t) - sum_m sum over m's slots of max(0, p_m - cost of the slot).

Each machine is in one part, so the parts' duals are prices of the whole. Where parts are not equally full they differ
for machines that are alike; they are then clipped from below and above, as long as that raises the bound.

Source: Narayanan et al., *Solving Large-Scale Granular Resource Allocation Problems Efficiently with POP* (SOSP 2021);
how tasks are dealt and the bound are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from flowlex.formulations.arrays import Integers, exact_dot
from flowlex.formulations.engines import solve
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.outcome import EngineError, EngineName, Outcome, SolveOptions, Status
from flowlex.instances.flow import FlowInstance
from flowlex.models.base import ModelError
from flowlex.models.flow.direct import Direct
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.offers import Rules
from flowlex.models.flow.places import placements
from flowlex.models.flow.stages import flow_score
from flowlex.models.flow.ways import FlowRun, flow_of, numbered
from flowlex.models.parallel import side_by_side

__all__ = ["ByParts", "Parted", "refuse_parts"]

#: More than any way costs.
_NEVER = 2**61
_INNER = ("offers", "single file", "blocks")
#: Groups lead to blocks, blocks to smaller ones; deeper ways than this are not looked for.
_DEPTH = 8


@dataclass(frozen=True, eq=False)
class Parted(FlowRun):
    """An answer by parts: machine by running task, values and bounds of the stages, prices that prove them."""

    whole: Direct
    placed: Mapping[str, str]
    reached: Mapping[str, int]
    bounds: Mapping[str, int]
    proof: Mapping[str, Any]

    @cached_property
    def machine(self) -> Integers:
        """(T,) machines, those of all parts."""
        return numbered(self.whole.instance, self.placed)

    @property
    def values(self) -> Mapping[str, int]:
        """Of the whole flow."""
        return self.reached

    def told(self, machine_of: Mapping[str, str], waiting: dict[str, str]) -> dict[str, Any]:
        """Bounds of the whole, whatever the parts."""
        way = self.whole
        score = flow_score(way.instance, way.schedule, way.rules, flow_of(self.outcome))
        return {"waiting": waiting, "score": score, "proof": self.proof, "bounds": self.bounds}


@dataclass(frozen=True, eq=False)
class ByParts:
    """The network dealt into so many parts, by a seed."""

    whole: Direct
    parts: int
    seed: int

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the whole."""
        return self.whole.sizes

    def program(self, stage: str | None) -> FlowNetwork:
        """The whole network: no program of its own says what parts leave."""
        return self.whole.program(stage)

    def run(self, engine: EngineName, options: SolveOptions) -> Parted:
        """Deal tasks and machines, solve every part, add up the flows, and bound every stage.

        Raises
        ------
        EngineError
            A part has no answer within its limits.
        """
        way, weights = self.whole, self.whole.weights
        refuse_parts(way.instance, way.rules, self.parts, self.seed, "weights" if weights else "phases")
        assert weights is not None
        costs = {name: way.costs[name] for name in weights if name in way.costs}
        combined = np.sum([weights[name] * cost for name, cost in costs.items()], axis=0)
        flow, placed, price = self._joined(self._divided(combined, engine, replace(options, offer=None)))
        values = {name: exact_dot(cost, flow) for name, cost in costs.items()}
        bounds, proofs = {}, {}
        last = list(costs)[-1]
        for name in costs:
            if values[name] or name == last:  # nothing is below 0 but costs of goals
                bounds[name], found = _bounded(way.schedule, costs, weights, values, name, price)
                proofs[name] = _document(way.schedule, way.instance, found, bounds[name], name, weights)
        message = f"{self.parts} parts, each solved alone; bounds are of the whole"
        facts: dict[str, Any] = {"objective": values[last], "bound": bounds[last], "values": flow, "message": message}
        best = all(bounds[name] == values[name] for name in bounds)
        outcome = Outcome(Status.OPTIMAL if best else Status.FEASIBLE, engine, **facts)
        return Parted(outcome, way.method, way, placed, values, bounds, {"stages": proofs})

    def _divided(self, cost: Integers, engine: EngineName, options: SolveOptions) -> list[_Part]:
        network, blocks = self.whole.schedule.network, self.whole.schedule.network.node_blocks
        task, machine = _dealt(self.whole.schedule, self.whole.instance, cost, self.parts, self.seed)
        pieces = []
        for number in range(self.parts):
            kept = np.ones(network.node_count, bool)
            kept[blocks["task"].slice], kept[blocks["machine"].slice] = task == number, machine == number
            arcs = np.flatnonzero(kept[network.tail] & kept[network.head])
            place = np.cumsum(kept) - 1
            supply = network.supply[kept]
            supply[-1] = -np.count_nonzero(task == number)
            part = FlowNetwork.from_arrays(
                place[network.tail[arcs]],
                place[network.head[arcs]],
                lower=network.lower[arcs],
                upper=network.upper[arcs],
                cost=cost[arcs],
                supply=supply,
                name=f"{network.name}, part {number + 1}",
            )
            pieces.append(_Part(part, arcs, np.flatnonzero(kept), engine, options))
        return pieces

    def _joined(self, pieces: list[_Part]) -> tuple[Integers, dict[str, str], Integers]:
        """Solve the parts: the flow of the whole, machine by running task, (M,) prices of the machines' slots."""
        network, placed = self.whole.schedule.network, dict[str, str]()
        flow, price = np.zeros(network.arc_count, np.int64), np.zeros(network.node_count, np.int64)
        for number, (piece, outcome) in enumerate(zip(pieces, side_by_side(_Part.solve, pieces), strict=True)):
            if outcome.status is not Status.OPTIMAL or outcome.values is None or outcome.duals is None:
                raise EngineError(
                    f"part {number + 1} of {self.parts} ended as {outcome.status}; raise time_limit_s or ask for more "
                    f"parts. {outcome.message}".rstrip()
                )
            own = np.zeros_like(flow)
            own[piece.arcs] = flow_of(outcome)
            flow += own
            placed |= placements(self.whole.schedule, self.whole.instance, own)
            dual = np.rint(outcome.duals.astype(np.float64) if outcome.duals.dtype == object else outcome.duals)
            price[piece.nodes] = (dual - dual[-1]).astype(np.int64)  # the sink is last
        return flow, placed, np.maximum(price[network.node_blocks["machine"].slice], 0)


@dataclass(frozen=True, eq=False)
class _Part:
    """The network of a part; (a,), (n,) arcs and nodes of the whole."""

    network: FlowNetwork
    arcs: Integers
    nodes: Integers
    engine: EngineName
    options: SolveOptions

    def solve(self) -> Outcome:
        return solve(self.network, self.engine, self.options)


def refuse_parts(instance: FlowInstance, rules: Rules, parts: int, seed: int, method: str) -> None:
    """Raise `ModelError` where parts cannot be solved apart."""
    if parts < 1 or seed < 0:
        raise ModelError(f"parts must be at least 1 and seed at least 0, got {parts} and {seed}")
    if parts == 1:
        return
    working = sum(machine.slots > 0 for machine in instance.machines)
    if parts > working:
        raise ModelError(f"parts={parts} for {working} machines with slots; ask for at most {max(working, 1)} parts")
    limited = next((job.name for job in instance.jobs if job.preemptions_per_hour is not None), "")
    for there, what in (
        (bool(instance.resources), "capacities of machines"),
        (bool(instance.gangs or instance.spreads or instance.affinities), "gangs, spreads or affinities"),
        (rules.shares is not None, "shares of jobs"),
        (bool(limited), f"the limit on preemptions of job {limited!r}"),
        (method != "weights", "goals in strict order (by phases)"),
    ):
        if there:
            raise ModelError(f"parts cannot keep {what}, which concern the whole; leave parts at 1")


def _dealt(
    schedule: ScheduleNetwork, instance: FlowInstance, cost: Integers, parts: int, seed: int
) -> tuple[Integers, Integers]:
    """(T,) part of every task, (M,) part of every machine."""
    rng, machines = np.random.default_rng(seed), instance.machines
    order = rng.permutation(len(machines)).tolist()
    order.sort(key=lambda m: (machines[m].slots, machines[m].rack, machines[m].labels))
    of_machine = np.empty(len(machines), np.int64)
    of_machine[order] = np.arange(len(machines)) % parts
    room = np.bincount(of_machine, weights=[machine.slots for machine in machines], minlength=parts)
    at = {machine.name: of_machine[m] for m, machine in enumerate(machines)}
    of_task = np.array([-1 if t.running is None else at[t.running.machine] for t in instance.tasks], np.int64)
    np.subtract.at(room, of_task[of_task >= 0], 1)
    way, rank = _ways(schedule, cost, of_machine, parts), schedule.columns.level[_arcs(schedule, "share")]
    waiting = rng.permutation(np.flatnonzero(of_task < 0))
    job = np.repeat(np.arange(len(instance.jobs)), [len(job.tasks) for job in instance.jobs])
    for t in waiting[np.argsort(-rank[job[waiting]], kind="stable")].tolist():
        inside = way[t] < _NEVER
        inside = inside & (room > 0) if (inside & (room > 0)).any() else inside if inside.any() else ~inside
        cheapest = inside & (way[t] == way[t][inside].min())
        of_task[t] = int(np.where(cheapest, room, -np.inf).argmax())
        room[of_task[t]] -= 1
    return of_task, of_machine


def _ways(schedule: ScheduleNetwork, cost: Integers, of_machine: Integers, parts: int) -> Integers:
    """(T, parts) the cheapest way of a task to a machine of each part with slots."""
    network = schedule.network
    blocks = network.node_blocks
    way = np.full((network.node_count, parts), _NEVER)
    rows = np.flatnonzero(_slots(schedule))
    way[blocks["machine"].start + rows, of_machine[rows]] = 0
    for arcs in _upwards(schedule):
        np.minimum.at(way, network.tail[arcs], np.minimum(cost[arcs][:, None] + way[network.head[arcs]], _NEVER))
    return way[blocks["task"].slice]


def _slots(schedule: ScheduleNetwork) -> Integers:
    network = schedule.network
    arcs, nodes = network.arc_blocks["slots"].slice, network.node_blocks["machine"]
    found = np.zeros(nodes.count, np.int64)
    np.add.at(found, network.tail[arcs] - nodes.start, network.upper[arcs])
    return found


def _upwards(schedule: ScheduleNetwork) -> list[Integers]:
    """Arcs from groups, as often as groups lead to groups, then those from tasks to groups and machines."""
    blocks = schedule.network.arc_blocks
    inner = [_arcs(schedule, name) for name in _INNER if name in blocks]
    depth = 1 if len(inner) == 1 else _DEPTH
    return [*inner * depth, _arcs(schedule, "runs"), _arcs(schedule, "via")]


def _arcs(schedule: ScheduleNetwork, name: str) -> Integers:
    block = schedule.network.arc_blocks[name]
    return np.arange(block.start, block.start + block.count)


def _bounded(
    schedule: ScheduleNetwork,
    costs: Mapping[str, Integers],
    weights: Mapping[str, int],
    values: Mapping[str, int],
    stage: str,
    price: Integers,
) -> tuple[int, Integers]:
    """What a stage comes to at least, if those before are no worse than here, and the prices that prove it."""
    names = list(costs)
    before = names[: names.index(stage)]
    cost = sum((weights[name] * costs[name] for name in before), weights[stage] * costs[stage])
    spent = sum(weights[name] * values[name] for name in before)
    ends = np.unique(np.quantile(price, np.linspace(0, 1, 9), method="nearest")) if len(price) else price
    tried = [price, *(np.clip(price, low, high) for k, low in enumerate(ends) for high in ends[k:])]
    least, best = max(((_least(schedule, cost, each), k) for k, each in enumerate(tried)), key=lambda one: one[0])
    return -((spent - least) // weights[stage]), tried[best]


def _least(schedule: ScheduleNetwork, cost: Integers, price: Integers) -> int:
    """No schedule costs less, whatever the (M,) prices of the machines' slots."""
    network = schedule.network
    nodes, arcs = network.node_blocks, network.arc_blocks
    way = np.full(network.node_count, _NEVER)
    way[nodes["machine"].slice] = price
    way[nodes["unscheduled"].slice] = cost[arcs["share"].slice]
    for part in [*_upwards(schedule), _arcs(schedule, "waits")]:
        np.minimum.at(way, network.tail[part], cost[part] + np.minimum(way[network.head[part]], _NEVER))
    slots = arcs["slots"].slice
    over = np.maximum(price[network.tail[slots] - nodes["machine"].start] - cost[slots], 0)
    return int(sum(way[nodes["task"].slice].tolist())) - exact_dot(over, network.upper[slots])


def _document(
    schedule: ScheduleNetwork,
    instance: FlowInstance,
    price: Integers,
    least: int,
    stage: str,
    weights: Mapping[str, int],
) -> dict[str, Any]:
    """The proof of a stage, by names; see `flowlex.validation.certificates.flow.stages`."""
    names = list(weights)
    used = {name: weights[name] for name in names[: names.index(stage) + 1]}
    level = schedule.columns.level[schedule.network.arc_blocks["share"].slice].tolist()
    waits = [used.get(f"waiting_{n}", 0) for n in level]
    return {
        "at_least": least,
        "weights": used,
        "machine_price": {m.name: p for m, p in zip(instance.machines, price.tolist(), strict=True) if p},
        "job_price": {job.name: p for job, p in zip(instance.jobs, waits, strict=True) if p},
    }
