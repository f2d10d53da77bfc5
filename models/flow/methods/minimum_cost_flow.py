"""Solve an instance as one network, by one weighted sum of all stages or stage by stage, and prove it.

What it is worth (`benchmarks/paired.py`, "flow, 100 machines, quincy, network"): 200 tasks on 100 machines take 0.06 s
with their proof, the statement as it stands 0.7 s; 2000 tasks on 1000 machines, two million pairs, take 0.15 s.

The proof has, for each stage, multipliers of rows of the statement, from potentials of the network. A potential is the
cost of one unit from its node to the sink: at a machine it is the price of a slot, at an unscheduled vertex the price
of waiting. A full arc from a group to a machine may have a negative reduced cost; it is added to the price of the
machine.

Shortfall and waiting tasks. Only arcs into the sink count in these stages. So the potential of a node is the cost of
the cheapest exit that it reaches in the residual network: a free slot, or one more waiting task of a job.

Costs. One weighted sum of the stages has potentials of its own. Stages that were solved one after the other are added
up with weights so large that each reduced cost has the sign of the first stage in which it is not 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.formulations.engines import solve
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.lexicographic.lexicographic_network import Stage, optimal_face, solve_lexicographic
from flowlex.formulations.program_arrays import Integers, exact_dot
from flowlex.formulations.solver_outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.models.flow.network import ScheduleNetwork, build_network, placements
from flowlex.models.flow.priced_instance import PricedInstance
from flowlex.models.flow.solution import Score, score_of
from flowlex.models.incumbents import offer
from flowlex.models.model_base import Dual, ModelError, Run


@dataclass(frozen=True, eq=False)
class FlowRun(Run):
    """The result of a method."""

    method: str  # solution method, and the reason for it
    machine: Integers  # (T,) machine index of each task, -1 for none
    score: Score | None = None  # objective values
    # value and lower bound of each stage by name; empty if there are no stages
    stages: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    # weight of each stage in the objective; None if it is the value of the last stage
    weights: Mapping[str, int] | None = None
    prove: Callable[[], dict[str, Any]] = dict  # returns the fields ``proof`` and ``duals`` of the solution


def chosen_stage(stage: str | None, names: Iterable[str]) -> str:
    """Return the requested stage, or the last one if ``stage`` is None."""
    known = list(names)
    if not known:
        raise ModelError("the goals are one weighted sum; a stage exists with order='phases' only")
    if stage is not None and stage not in known:
        raise ModelError(f"there is no stage {stage!r}; the stages are: {', '.join(known)}")
    return known[-1] if stage is None else stage


def flow_of(outcome: Outcome) -> Integers:
    """Return the flow of an outcome, as integers."""
    assert outcome.values is not None
    flow: Integers = np.rint(outcome.values).astype(np.int64)
    return flow


#: Largest combined weight; beyond it, the stages are solved one after the other.
_WEIGHT_LIMIT = 2**53


@dataclass(frozen=True, eq=False)
class NetworkMethod:
    """The solution of an instance as one network."""

    priced: PricedInstance
    asked: str  # requested method: ``auto``, ``weights`` or ``phases``

    @cached_property
    def schedule(self) -> ScheduleNetwork:
        """The network, with the meaning of its arcs."""
        return build_network(self.priced)

    @cached_property
    def costs(self) -> dict[str, Integers]:
        """Cost of each arc by stage; of goals in strict order, those that cost nothing anywhere are left out."""
        free = self.priced.rules.rank_names if self.priced.rules.order is not None else ()
        return {name: cost for name, cost in self.schedule.costs.items() if name not in free or cost.any()}

    @cached_property
    def combined(self) -> FlowNetwork:
        """The network with one weighted sum of all stages."""
        assert self.weights is not None
        total = np.sum([weight * self.schedule.costs[name] for name, weight in self.weights.items()], axis=0)
        return replace(self.schedule.network, cost=total)

    @cached_property
    def method(self) -> str:
        """``weights``, or ``phases`` with the reason."""
        if self.priced.rules.order is not None:
            if self.asked == "weights":
                raise ModelError("goals in strict order are solved by phases; drop order='weights' or lexicographic")
            return "phases: the goals are in strict order"
        if self.asked == "phases":
            return "phases"
        weights, levels = self.priced.weights, self.priced.levels
        largest = weights.shortfall + weights.level * int(levels.max(initial=0)) + self.priced.cycle
        if largest * (2 * len(levels) + 2) <= _WEIGHT_LIMIT:
            return "weights"
        why = f"the strict order would need a weight of {largest}, beyond exact 64-bit sums"
        if self.asked == "weights":
            raise ModelError(f"{why}; use order='phases'")
        return f"phases: {why}"

    @cached_property
    def weights(self) -> dict[str, int] | None:
        """Weight of each stage in the combined cost; None if stages are solved one after the other."""
        if self.method != "weights":
            return None
        weights = self.priced.weights
        waiting = {f"waiting_{level}": weights.level * level for level in self.priced.classes}
        return {"shortfall": weights.shortfall, **waiting, "cost": 1}

    @property
    def why(self) -> str:
        """The solution method, and the reason for it."""
        return f"minimum-cost flow, by {self.method}"

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the network, equal for all stages."""
        network = self.schedule.network
        return {"formulation": "flow network", "nodes": network.node_count, "arcs": network.arc_count}

    def formulation(self, stage: str | None) -> FlowNetwork:
        """Return the combined network, or by phases the network of a stage."""
        if self.method != "weights":
            names = list(self.costs)
            costs = list(self.costs.values())[: names.index(chosen_stage(stage, names)) + 1]
            return solve_lexicographic(self.schedule.network, costs, "network")[-1].network
        if stage is not None:
            chosen_stage(stage, ())
        return self.combined

    def run(self, engine: EngineName, options: SolveOptions) -> FlowRun:
        """Solve by weights, or by phases with a report after every stage; all engines use exact integers."""
        if self.method == "weights":
            return self._run_of(solve(self.combined, engine, options))

        def seen(stages: list[Stage]) -> None:
            offer(options, lambda: self._so_far(stages, engine), often=True)

        costs = list(self.costs.values())
        stages = solve_lexicographic(self.schedule.network, costs, engine, options, seen)
        last = stages[-1].outcome
        if len(stages) > 1 and last.status in (Status.TIME_LIMIT, Status.FEASIBLE):
            return self._so_far(stages[:-1], engine)
        if last.status is Status.FEASIBLE:  # stopped in the first stage
            last = replace(last, objective=exact_dot(costs[-1], flow_of(last)), bound=None)
        return self._run_of(last, stages)

    def _so_far(self, stages: list[Stage], engine: EngineName) -> FlowRun:
        """Best solution after the first stages: minimise the sum of the other costs on their optimal face."""
        names, costs = list(self.costs), list(self.costs.values())
        done, open_ones = (", ".join(part) for part in (names[: len(stages)], names[len(stages) :]))
        message = f"least {done}, in this order; not looked at: {open_ones}"
        # A flow could take detours at later costs that the schedule does not have, so their sum is minimised.
        face, rest = optimal_face(stages[-1].network, stages[-1].outcome), costs[len(stages) :]
        found = solve(replace(face, cost=np.sum(rest, axis=0)), engine)
        if found.values is None:
            return self._run_of(found, stages)
        value, known = exact_dot(rest[-1], flow_of(found)), list(stages)
        if len(rest) == 1:
            known.append(Stage(replace(face, cost=rest[0]), found))
        bounds = {name: int(stage.outcome.objective or 0) for name, stage in zip(names, known, strict=False)}
        last = replace(found, status=Status.FEASIBLE, objective=value, bound=bounds.get(names[-1]), message=message)
        prices = self._stage_prices(known, flow_of(found))
        proof = proof_of(self.schedule, prices)
        return replace(self._run_of(last, stages), bounds=bounds, prove=lambda: {"proof": proof})

    def _stage_prices(self, stages: Sequence[Stage], flow: Integers) -> list[FlowPrices]:
        """Prices of each of some stages that were solved one after the other; ``flow`` is optimal in all of them."""
        names = list(self.costs)[: len(stages)]
        waits = [name for name in names if name not in self.priced.rules.rank_names]
        found = waiting_prices(self.schedule, flow, waits)
        for k in range(len(waits) + 1, len(names) + 1):
            found.append(combined_prices(self.schedule, dict(zip(names[:k], stages, strict=False))))
        return found

    def _run_of(self, outcome: Outcome, stages: Sequence[Stage] = ()) -> FlowRun:
        schedule, priced, blocks = self.schedule, self.priced, self.schedule.network.arc_blocks
        if not outcome.status.has_answer:
            return FlowRun(outcome, self.method, np.full(len(priced.views), -1))
        flow = flow_of(outcome)
        machine = placements(schedule, flow)
        values = {name: exact_dot(schedule.costs[name], flow) for name in priced.rules.rank_names}
        values["shortfall"] = int(flow[blocks["short"].slice].sum())
        score = score_of(priced.instance.jobs, priced.rules, priced.waiting_by_job(machine), values)
        found = {name: exact_dot(cost, flow) for name, cost in self.costs.items()} if stages else {}
        return FlowRun(
            outcome,
            self.method,
            machine,
            score,
            found,
            {},
            self.weights,
            lambda: self._proof(outcome, stages, flow, machine),
        )

    def _proof(self, outcome: Outcome, stages: Sequence[Stage], flow: Integers, machine: Integers) -> dict[str, Any]:
        """Dual multipliers that prove optimality, and duals; empty without exact potentials."""
        schedule, potentials = self.schedule, [each.outcome.duals for each in stages] or [outcome.duals]
        if outcome.status is not Status.OPTIMAL or any(p is None or p.dtype.kind != "i" for p in potentials):
            return {}
        if self.weights is None:
            prices = self._stage_prices(stages, flow)
        else:
            assert outcome.duals is not None
            waits = [name for name in self.costs if name != "cost"]
            prices = waiting_prices(schedule, flow, waits)
            prices.append(prices_of(schedule, self.weights, self.combined.cost, outcome.duals))
        free = [name for name in self.priced.rules.rank_names if name not in self.costs]
        duals = duals_of(schedule, prices[-1], flow, machine)
        return {"duals": duals, "proof": proof_of(schedule, prices, free)}


#: Sums below this stay within 64 bits.
_SAFE = 2.0**61


@dataclass(frozen=True, eq=False)
class FlowPrices:
    """Dual prices, in the unit of the weighted sum of some stages."""

    weights: Mapping[str, int]  # weight of each stage by name, the last one at last
    # (M,) dual value of a slot; (J,) dual value of waiting in the job's unscheduled vertex
    machine: list[int]
    job: list[int]
    # dual value of a machine for the tasks of a different-machines rule, by (rule, machine)
    apart: Mapping[tuple[str, int], int]
    preempt: Mapping[int, int]  # dual value of one more preemption, by index of the job
    cost: NDArray[Any]  # (A,) weighted cost of every arc


def waiting_prices(schedule: ScheduleNetwork, flow: Integers, names: Sequence[str]) -> list[FlowPrices]:
    """Prices of each of the stages ``names`` (shortfall and waiting tasks, in order) at an optimal flow."""
    short, level = _first_exits(schedule, flow)
    found = []
    for k in range(1, len(names) + 1):
        weights = {name: k - i for i, name in enumerate(names[:k])}
        potential = weights.get("shortfall", 0) * short
        for name in names[:k]:
            if name != "shortfall":
                potential = potential + weights[name] * (level == int(name.removeprefix("waiting_")))
        cost = np.sum([weight * schedule.costs[name] for name, weight in weights.items()], axis=0)
        found.append(prices_of(schedule, weights, cost, potential))
    return found


def _first_exits(schedule: ScheduleNetwork, flow: Integers) -> tuple[Integers, Integers]:
    """(N,) shortfall and class of the cheapest way from each node to the sink in the residual network."""
    network, blocks = schedule.network, schedule.network.arc_blocks
    sink, count = network.node_blocks["sink"].start, network.node_count
    exits = network.head == sink
    more = (flow < network.upper) & ~exits
    less = (flow > network.lower) & ~exits
    back = np.concatenate([network.head[more], network.tail[less]])  # against the direction of the way
    on = np.concatenate([network.tail[more], network.head[less]])
    keys = np.unique(back * count + on)
    out = np.flatnonzero(exits)
    levels = np.zeros(network.arc_count, np.int64)
    levels[blocks["share"].slice] = levels[blocks["short"].slice] = schedule.priced.levels
    classes = np.stack([schedule.costs["shortfall"][out], levels[out]], axis=1)
    distinct, number = np.unique(np.concatenate([classes, [[0, 0]]]), axis=0, return_inverse=True)
    best, open_ = np.full(count, len(distinct)), flow[out] < network.upper[out]
    np.minimum.at(best, network.tail[out[open_]], number.ravel()[:-1][open_])
    some = np.flatnonzero(best < len(distinct))
    far = float(count + 2)  # longer than any way, so that the class of an exit outweighs it
    ends = np.concatenate([keys // count, np.full(len(some), sink)]), np.concatenate([keys % count, some])
    lengths = np.concatenate([np.ones(len(keys)), 1 + far * best[some]])
    graph = scipy.sparse.csr_array((lengths, ends), shape=(count, count))
    way = np.minimum(scipy.sparse.csgraph.dijkstra(graph, indices=np.array([sink]))[0], far * len(distinct))
    which = np.minimum(way // far, len(distinct) - 1).astype(np.int64)
    which[sink] = int(np.flatnonzero((distinct == 0).all(axis=1))[0])
    return distinct[which, 0], distinct[which, 1]


def combined_prices(schedule: ScheduleNetwork, stages: dict[str, Stage]) -> FlowPrices:
    """Prices of the last of some stages that were solved one after the other."""
    network = schedule.network
    cost, potential = np.zeros(network.arc_count, np.int64), np.zeros(network.node_count, np.int64)
    weights: dict[str, int] = {}
    for name, stage in reversed(stages.items()):
        mine, duals = schedule.costs[name], stage.outcome.duals
        assert duals is not None
        rest = cost - potential[network.tail] + potential[network.head]
        weight = weights[name] = 1 + int(np.abs(rest).max(initial=0))
        size = max(_largest(cost), _largest(potential)) + float(weight) * max(_largest(mine), _largest(duals))
        if 3 * size >= _SAFE:
            cost, potential = cost.astype(object), potential.astype(object)
            mine, duals = mine.astype(object), duals.astype(object)
        cost, potential = cost + weight * mine, potential + weight * duals
    return prices_of(schedule, dict(reversed(weights.items())), cost, potential)


def _largest(values: NDArray[Any]) -> float:
    return float(np.abs(values).max(initial=0))


def prices_of(
    schedule: ScheduleNetwork, weights: Mapping[str, int], cost: NDArray[Any], potential: NDArray[Any]
) -> FlowPrices:
    """Return the prices of optimal potentials of the network with the weighted cost."""
    network = schedule.network
    nodes, arcs = network.node_blocks, network.arc_blocks
    sink = potential[nodes["sink"].start]
    reduced = cost - potential[network.tail] + potential[network.head]
    machine = (potential[nodes["machine"].slice] - sink).copy()
    full = np.maximum(-reduced[arcs["offers"].slice], 0)
    single: dict[int, int] = defaultdict(int)
    if "single file" in arcs:
        into = np.maximum(-reduced[arcs["single file"].slice], 0)
        for (_, g), more in zip(schedule.ends["single file"].tolist(), into.tolist(), strict=True):
            single[g] = max(single[g], more)
    apart: dict[tuple[str, int], int] = {}
    shared = np.array([not group.once for group in schedule.groups], bool)
    offers = schedule.ends["offers"]
    open_to_all = shared[offers[:, 0]] if len(offers) else np.zeros(0, bool)
    extra = np.zeros_like(machine)
    np.maximum.at(extra, offers[open_to_all, 1], full[open_to_all])
    ways = zip(offers[~open_to_all].tolist(), full[~open_to_all].tolist(), strict=True)
    for (g, m), more in ways:
        if more + single[g] > 0:
            key = (schedule.groups[g].once, m)
            apart[key] = max(apart.get(key, 0), more + single[g])
    job = potential[nodes["unscheduled"].slice] - sink
    preempt, gates = dict[int, int](), schedule.priced.gates[:, 0].tolist()
    if gates:
        through = np.maximum(-reduced[arcs["preempted"].slice], 0).tolist()
        preempt = {j: price for j, price in zip(gates, through, strict=True) if price}
    return FlowPrices(weights, (machine + extra).tolist(), job.tolist(), apart, preempt, cost)


def duals_of(schedule: ScheduleNetwork, prices: FlowPrices, flow: Integers, machine: Integers) -> dict[str, Dual]:
    """Duals of machines and unscheduled vertices, and the cost of each task on its ``machine`` including these."""
    network, blocks = schedule.network, schedule.network.arc_blocks
    used = {
        int(network.tail[arc]): prices.cost[arc]
        for name in ("runs", "via", "waits")
        for arc in blocks[name].start + np.flatnonzero(flow[blocks[name].slice])
    }
    priced, task = schedule.priced, []
    for index, (view, j, m) in enumerate(zip(priced.views, priced.job.tolist(), machine.tolist(), strict=True)):
        waits = prices.job[j] + (prices.preempt.get(j, 0) if view.held else 0)
        price = waits if m < 0 else prices.machine[m] + prices.apart.get((view.apart, m), 0)
        task.append(int(used[index]) + price)
    values = {"task": task, "unscheduled": prices.job, "machine": prices.machine}
    kind = np.int64 if max(abs(x) for each in values.values() for x in (0, *each)) < 2**63 else object
    return {name: Dual.of_block(network.node_blocks[name], np.array(each, kind)) for name, each in values.items()}


def proof_of(schedule: ScheduleNetwork, prices: Sequence[FlowPrices], free: Sequence[str] = ()) -> dict[str, Any]:
    """The proof of the last stage of each of the prices, and of stages that cost nothing (``free``)."""
    stages = {list(each.weights)[-1]: [_leaf(schedule, each)] for each in prices}
    stages |= {name: [{"complete": ["task"]}] for name in free}
    if not (schedule.priced.shares[:, 0] > 0).any():
        stages.pop("shortfall", None)
    return {"format": 3, "stages": stages}


def _leaf(schedule: ScheduleNetwork, prices: FlowPrices) -> dict[str, Any]:
    """Multipliers of the rows of the statement, and of the stages before."""
    priced = schedule.priced
    machines, jobs, least = priced.instance.machines, priced.instance.jobs, priced.shares[:, 0]
    slots = schedule.network.arc_blocks["slots"].slice
    # where slots cost nothing, they have no negative price
    free = not any(schedule.costs[name][slots].any() for name in priced.rules.rank_names)
    price = {
        m.name: -int(p)
        for m, p in zip(machines, prices.machine, strict=True)
        if m.slots and (p > 0 or (p and not free))
    }
    rows: dict[str, dict[str, int]] = {"machine": price, "unscheduled": {}, "share": {}}
    for j, (job, p, level) in enumerate(zip(jobs, prices.job, priced.levels.tolist(), strict=True)):
        above = int(p) - (prices.weights.get(f"waiting_{level}", 0) if level else 0)
        if above > 0 and least[j] > 0:
            rows["unscheduled"][job.name] = -above
        if above < 0 and priced.most[j] < len(job.tasks):
            rows["share"][job.name] = -above
    rows["apart"] = {label_text((rule, machines[m].name)): -int(p) for (rule, m), p in prices.apart.items()}
    rows["preempted"] = {jobs[j].name: -int(p) for j, p in prices.preempt.items()}
    named: dict[str, Any] = {name: {"at": each} for name, each in rows.items() if each}
    common, times = Counter(price.values()).most_common(1)[0] if price else (0, 0)
    open_ = [m.name for m in machines if m.slots]
    if 2 * times > len(open_):
        others = {name: price.get(name, 0) for name in open_ if price.get(name, 0) != common}
        named["machine"] = {"default": common, "at": others}
    *before, own = prices.weights
    known = {"shortfall"} if (least > 0).any() else set()
    earlier = {name: -prices.weights[name] for name in before if name != "shortfall" or name in known}
    return {
        "rows": named,
        "complete": ["task"],
        **({"earlier": earlier} if earlier else {}),
        **({"own": prices.weights[own]} if prices.weights[own] != 1 else {}),
    }
