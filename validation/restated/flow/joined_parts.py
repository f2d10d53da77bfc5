r"""Join the solutions of the parts of a cluster, and bound from their prices what the cut costs.

The parts are instances with different machines and tasks; a machine that several of them list has slots in one only.
Together they are one instance. Their placements together are a schedule of it, as no rule joins the parts. Prices of
its machines, whatever they are, bound it from below (Lagrange): for a stage with costs c, and weights w of the stages
before, whose values are v,

.. math::

    c x \ge \sum_t \min\bigl(\min_m (c_{tm} + \pi_m),\ w_t\bigr) - \sum_m \pi_m K_m - \sum_k w_k v_k,

where a task may wait at the weight of its class, and slots with costs f count ``min(0, f - pi)`` instead of ``-pi``.
The prices are those of the parts, in one unit. The sum over tasks is made part by part. Machines of other parts of
which no task of the part knows anything differ in labels and prices only: of those with equal labels the cheapest is
enough. So no more than a part is in memory at a time, and a table of all machines.

All numbers are integers. Costs are those of `flowlex.validation.restated.flow.goal_costs`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.errors import FlowlexError
from flowlex.instances.exact_rationals import rational
from flowlex.instances.files import read_instance
from flowlex.instances.flow import FlowInstance, Machine
from flowlex.instances.flow_partition import uncuttable
from flowlex.validation.certificates.exact_numbers import wide
from flowlex.validation.certificates.solution_files import read_solution
from flowlex.validation.certificates.verifier_interface import read_document, verify
from flowlex.validation.proofs.exact_program import dot, narrow, scaled
from flowlex.validation.restated.flow.goal_costs import Problem
from flowlex.validation.restated.flow.goal_options import Goals
from flowlex.validation.restated.flow.program import FlowStatement

#: A function like `map`, which may run elsewhere.
Mapper = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
Ints = NDArray[np.int64]
_FIGURES = ("running", "waiting", "placed", "moved", "stopped", "cost")


class PartsError(FlowlexError, ValueError):
    """Files are not the parts of one cluster, or not their solutions."""


@dataclass(frozen=True, eq=False)
class PartFacts:
    """What joining needs of a part and its solution.

    ``exits``: (M,) the class of waiting tasks that a slot of each machine would relieve, 0 for none; ``rest``: (M,) the
    other part of its price. ``tags``: machines and racks that constraints name. ``hashes``: of the names of tasks.
    """

    file: str
    options: Mapping[str, Any]
    scale: int
    gap: int  # the weight of class k in the prices is k times this, or less
    machines: NDArray[Any]
    racks: NDArray[Any]
    labels: NDArray[Any]  # of a machine as one text
    slots: Ints
    exits: Ints
    rest: NDArray[Any]
    tags: frozenset[str]
    hashes: NDArray[np.uint64]
    jobs: Mapping[str, tuple[Any, ...]]
    waiting: Mapping[int, int]  # by class
    figures: Mapping[str, int]
    answer: Mapping[str, Any]  # placements and waiting tasks, if they are asked for


@dataclass(frozen=True)
class JoinedStage:
    """An objective: its value, and the bound of all schedules with the same values of the objectives before.

    ``bound``: None after an objective whose value is not proven least.
    """

    name: str
    value: int
    bound: int | None


@dataclass(frozen=True)
class Joined:
    """The schedule of all parts together; ``document``: the solution file of the whole instance, if it is asked for."""

    parts: int
    machines: int
    tasks: int
    stages: tuple[JoinedStage, ...]
    document: Mapping[str, Any] | None = None

    @property
    def gap(self) -> float | None:
        """Relative gap of the costs and their bound; None if waiting tasks are not proven fewest."""
        last = self.stages[-1]
        return None if last.bound is None else float(Fraction(last.value - last.bound, max(1, abs(last.value))))


def facts_of(given: tuple[str | Path | FlowInstance, str | Path | Mapping[str, Any], bool]) -> PartFacts:
    """Read an instance and its solution, and verify it; with its answer, if the last item says so.

    Raises `PartsError`: it is refused, has no answer, or has goals or rules that join parts.
    """
    source, solution, answered = given
    file = str(solution) if isinstance(solution, str | Path) else "the solution"
    instance = _instance(source)
    document = read_solution(solution) if isinstance(solution, str | Path) else solution
    certificate = verify(document, instance)
    if not certificate.ok:
        failed = next(check for check in certificate.checks if not check.ok)
        raise PartsError(f"{file}: refused: {failed.name}: {failed.detail}")
    read = read_document(document)
    if not read.answer or read.changes is not None:
        raise PartsError(f"{file}: expected the answer of an unchanged model, got status {read.status!r}")
    goals, why = Goals.of(read.options), uncuttable(instance)
    priority = goals.by_kind.get("Priority", {"mode": "strict"})
    why = why or goals.foreign or ("fair shares" if "FairShares" in goals.by_kind else "")
    why = why or ("goals in strict order" if len(goals.ranks) > 1 else "")
    why = why or ("priorities relative to the lowest" if priority["mode"] != "strict" else "")
    if why:
        raise PartsError(f"{file}: {why} may join several parts; solve the cluster whole")
    problem = Problem(instance, read.options, read.answer["scale"])
    placed, levels = read.answer["placements"], np.array(problem.levels, np.int64)[problem.job]
    waits = np.array([name not in placed for name in problem.names], bool)
    classes = sorted({*levels[levels > 0].tolist()}, reverse=True)
    exits, rest, gap = _prices(read.proof, classes, instance, problem)
    tags = {tag for wishes, _ in problem.classes for c in wishes.constraints for tag in c.resources if ":" in tag}
    digests = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in problem.names)
    return PartFacts(
        file,
        read.options,
        problem.scale,
        gap,
        np.array([m.name for m in instance.machines], object),
        np.array([m.rack for m in instance.machines], object),
        np.array([json.dumps(sorted({*m.labels})) for m in instance.machines], object),
        problem.slots,
        exits,
        rest,
        frozenset(tags),
        np.frombuffer(digests, np.uint64),
        {
            j.name: (j.priority, j.weight, j.queue, j.different_machines, rational(j.preempt_cost))
            for j in instance.jobs
        },
        {each: int(np.count_nonzero(waits & (levels == each))) for each in classes},
        {name: int(read.metrics[name]) for name in _FIGURES},
        {name: read.answer[name] for name in ("placements", "waiting")} if answered else {},
    )


def _instance(source: str | Path | FlowInstance) -> FlowInstance:
    instance = source if isinstance(source, FlowInstance) else read_instance(source)
    if not isinstance(instance, FlowInstance):
        raise PartsError(f"{source}: expected an instance of kind 'flow-scheduling', got {instance.kind!r}")
    return instance


def _prices(
    proof: Mapping[str, Any], classes: Sequence[int], instance: FlowInstance, problem: Problem
) -> tuple[Ints, NDArray[Any], int]:
    """The price of each machine, as `PartFacts` has it; 0 where the proof of a stage is not one leaf.

    Any prices are valid, so they are rounded to integers.
    """

    def of_stage(name: str) -> tuple[list[int], Mapping[str, Any], Fraction]:
        leaves = proof.get("stages", {}).get(name, [])
        leaves = proof["stages"][leaves] if isinstance(leaves, str) else leaves
        leaf = leaves[0] if len(leaves) == 1 else {}
        own = rational(leaf.get("own", 1)) or Fraction(1)
        rows = leaf.get("rows", {}).get("machine", {})
        common, at = rational(rows.get("default", 0)), rows.get("at", {})
        found = (rational(at[m.name]) if m.name in at else common for m in instance.machines)
        return [int(-y // own) for y in found], leaf.get("earlier", {}), own

    exits = np.zeros(len(instance.machines), np.int64)
    for level in classes:
        relieves = np.array(of_stage(f"waiting_{level}")[0], np.int64) > 0
        exits[relieves & (exits == 0)] = level
    price, earlier, own = of_stage("cost")
    before = {level: int(-rational(earlier.get(f"waiting_{level}", 0)) // own) for level in classes}
    rest = narrow([p - before.get(level, 0) for p, level in zip(price, exits.tolist(), strict=True)])
    rest[problem.slots == 0] = exits[problem.slots == 0] = 0
    return exits, rest, max((-(-weight // level) for level, weight in before.items()), default=0)


@dataclass(frozen=True, eq=False)
class _PricedPart:
    """A part with all machines of other parts that matter to its tasks, and prices and weights by stage."""

    source: str | Path | FlowInstance
    options: Mapping[str, Any]
    scale: int
    slots: Mapping[str, int]  # of machines that it lists without slots
    more: Sequence[tuple[str, str, str, int]]  # name, rack, labels and slots of further machines
    own: NDArray[np.bool_]  # which of all these machines are its own
    prices: Mapping[str, NDArray[Any]]
    weights: Mapping[str, Mapping[int, int]]  # of waiting by class
    tasks: int  # of all parts


def least_sums(part: _PricedPart) -> dict[str, int]:
    """By stage, the least that the tasks and machines of a part add to the bound."""
    given = _instance(part.source)
    machines = [m.model_copy(update={"slots": part.slots.get(m.name, m.slots)}) for m in given.machines]
    machines += [Machine(name=n, rack=r, labels=tuple(json.loads(each)), slots=k) for n, r, each, k in part.more]
    problem = Problem(given.model_copy(update={"machines": tuple(machines)}), part.options, part.scale)
    statement = FlowStatement(problem, [[0, len(job.tasks)] for job in given.jobs])
    level = np.array(problem.levels, np.int64)[problem.job]
    known, found = statement.known_pairs, dict[str, int]()
    for stage, price in part.prices.items():
        last = stage == "cost"
        if not problem.slot_costs[2]:
            price = np.maximum(price, 0)  # as rows are inequalities where slots cost nothing
        weights = {"cost": int(last)}
        task, machine = statement.together([known, statement.cheapest(weights, price, {})])
        runs = statement.weighed(price[machine], problem.costs(task, machine), weights)
        least = narrow([part.weights[stage].get(each, 0) for each in level.tolist()])
        least = wide(least) + wide(problem.waiting["cost"]) if last else least
        if runs.dtype == object:
            least = least.astype(object)
        np.minimum.at(least, task, runs)
        found[stage] = dot(least, np.ones(len(least), np.int64)) + _slots(problem, price, part, priced=last)
    return found


def _slots(problem: Problem, price: NDArray[Any], part: _PricedPart, *, priced: bool) -> int:
    """What the slots of a part's own machines add at prices; ``priced``: in the stage in which slots have costs."""
    own, slots = part.own, problem.slots
    of, _, costs = problem.slot_costs
    if not costs:
        return -dot(price[own], slots[own])
    cost = scaled(costs["cost"], int(priced))
    last = np.zeros(len(slots), cost.dtype)  # cost of the last slot that the part's tasks could fill; others cost more
    np.maximum.at(last, of, cost)
    beyond = np.minimum(slots, part.tasks) - np.minimum(slots, len(problem.tasks))
    gains = np.minimum(wide(cost) - wide(price[of]), 0)[own[of]]
    rest = np.minimum(wide(last) - wide(price), 0)[own]
    return dot(gains, np.ones(len(gains), np.int64)) + dot(rest, beyond[own])


def join(
    parts: Sequence[tuple[str | Path | FlowInstance, str | Path | Mapping[str, Any]]],
    cluster: FlowInstance | None = None,
    mapper: Mapper = map,
) -> Joined:
    """Join solutions of the parts of a cluster.

    Parameters
    ----------
    parts
        The instance of each part and its solution, as files or in memory.
    cluster
        The instance that was cut; then the joined solution file is made, too.
    mapper
        A function like `map`, by which parts are read, verified and added up.

    Raises
    ------
    PartsError
        The files are not the parts of one cluster, were solved in different ways, or join in more than their machines.
    """
    facts: list[PartFacts] = list(mapper(facts_of, [(*each, cluster is not None) for each in parts]))
    table = _Table(facts)
    levels = sorted({level for each in facts for level in each.waiting}, reverse=True)
    waiting = {level: sum(each.waiting.get(level, 0) for each in facts) for level in levels}
    weight = {k: k * sum(each.gap for each in facts) for k in levels}
    stages = {
        f"waiting_{k}": {j: i - levels.index(j) + 1 for j in levels[: i + 1]}
        for i, k in enumerate(levels)
        if waiting[k]  # fewer than none cannot wait
    } | {"cost": weight}
    prices = {name: narrow([of.get(k, 0) for k in table.exits.tolist()]) for name, of in stages.items()}
    prices["cost"] = wide(prices["cost"]) + wide(table.rest)
    tasks = sum(len(each.hashes) for each in facts)
    sources = [source for source, _ in parts]
    orders = [np.argsort(price, kind="stable") for price in prices.values()]
    priced = [table.priced(k, sources[k], prices, orders, stages, tasks) for k in range(len(facts))]
    sums = list(mapper(least_sums, priced))
    values = {f"waiting_{k}": n for k, n in waiting.items()} | {"cost": sum(f.figures["cost"] for f in facts)}
    found, tight = list[JoinedStage](), True
    for name, value in values.items():
        bound = 0
        if name in stages:
            own = int(name.removeprefix("waiting_")) if name != "cost" else 0
            bound = sum(each[name] for each in sums)
            bound -= sum(w * waiting[k] for k, w in stages[name].items() if k > own)
            if bound < 0 and own:  # without prices, no fewer than none wait
                bound = 0
                del stages[name]
        found.append(JoinedStage(name, value, bound if tight else None))
        tight = tight and bound == value
    joined = Joined(len(facts), len(table.names), tasks, tuple(found))
    if cluster is None:
        return joined
    return replace(joined, document=_document(joined, facts, table, cluster, prices, stages))


class _Table:
    """All machines with slots, in the order of the parts."""

    def __init__(self, facts: Sequence[PartFacts]) -> None:
        self.facts = facts
        if not facts:
            raise PartsError("expected at least one part")
        own = [np.flatnonzero(each.slots > 0) for each in facts]

        def of_all(what: str) -> NDArray[Any]:
            return np.concatenate([getattr(each, what)[at] for each, at in zip(facts, own, strict=True)])

        self.part: Ints = np.repeat(np.arange(len(facts)), [len(each) for each in own])
        self.slots, self.exits, self.rest = of_all("slots"), of_all("exits"), of_all("rest")
        self.names: list[str] = of_all("machines").tolist()
        self.rack_of, self.label_of = of_all("racks"), of_all("labels")
        racks, self.rack = np.unique(self.rack_of, return_inverse=True)
        self.racks = {name: k for k, name in enumerate(racks.tolist())}
        self.label: Ints = np.unique(self.label_of, return_inverse=True)[1]
        self.at = {name: k for k, name in enumerate(self.names)}
        first = facts[0]
        for each in facts[1:]:
            if each.options != first.options:
                raise PartsError(f"{first.file} and {each.file} were solved with different options")
            if each.scale != first.scale:
                said = f"in 1/{first.scale} and 1/{each.scale}"
                raise PartsError(f"{first.file} and {each.file} have costs {said}; solve all with one --set scale=N")
        if len(self.at) < len(self.names):
            name = next(name for k, name in enumerate(self.names) if self.at[name] != k)
            both = self.part[[k for k, each in enumerate(self.names) if each == name]].tolist()
            raise PartsError(f"{facts[both[0]].file} and {facts[both[1]].file}: both have slots on machine {name!r}")
        hashes = np.sort(np.concatenate([each.hashes for each in facts]))
        if (hashes[1:] == hashes[:-1]).any():
            raise PartsError("two parts have a task of the same name; give each task to one part")
        jobs: dict[str, tuple[Any, PartFacts]] = {}
        for each in facts:
            for name, fields in each.jobs.items():
                if jobs.setdefault(name, (fields, each))[0] != fields:
                    raise PartsError(f"{jobs[name][1].file} and {each.file}: job {name!r} differs in more than tasks")
            for name, rack, label in zip(each.machines, each.racks, each.labels, strict=True):
                k = self.at.get(name)
                if k is not None and (rack, label) != (self.rack_of[k], self.label_of[k]):
                    raise PartsError(f"{each.file}: machine {name!r} has another rack or other labels in its own part")

    def priced(
        self,
        number: int,
        source: str | Path | FlowInstance,
        prices: Mapping[str, NDArray[Any]],
        orders: Sequence[Ints],
        weights: Mapping[str, Mapping[int, int]],
        tasks: int,
    ) -> _PricedPart:
        """A part with those machines of others that its tasks know, and the cheapest of those that look alike to them.

        Tasks know machines that the part lists or names, and racks of which it lists a machine or which it names.
        ``orders``: all machines by ascending price, for each stage.
        """
        part = self.facts[number]
        known, near = np.zeros(len(self.names), bool), np.zeros(len(self.racks), bool)
        here = [self.at[name] for name in part.machines if name in self.at]
        known[here] = True
        near[[self.racks[rack] for rack in {*part.racks} if rack in self.racks]] = True
        for tag in part.tags:
            what, _, name = tag.partition(":")
            if what == "machine" and name in self.at:
                known[self.at[name]] = True
            if what == "rack" and name in self.racks:
                near[self.racks[name]] = True
        group = self.label * (1 + len(self.racks)) + np.where(near[self.rack], 1 + self.rack, 0)
        foreign = self.part != number
        chosen = known & foreign
        chosen[here] = False
        foreign &= ~known
        for order in orders:
            order = order[foreign[order]]
            first = np.full(int(group.max(initial=-1)) + 1, len(order))
            np.minimum.at(first, group[order], np.arange(len(order)))
            chosen[order[first[first < len(order)]]] = True
        more = np.flatnonzero(chosen).tolist()
        listed = [self.at.get(name, -1) for name in part.machines]
        every = np.array([*listed, *more], np.int64)
        mine = np.array([k >= 0 and self.part[k] == number for k in every.tolist()], bool)
        return _PricedPart(
            source,
            part.options,
            part.scale,
            {name: int(self.slots[k]) for name, k in zip(part.machines, listed, strict=True) if k >= 0},
            [(self.names[k], self.rack_of[k], self.label_of[k], int(self.slots[k])) for k in more],
            mine,
            {name: np.append(price, 0)[every] for name, price in prices.items()},  # -1: a machine without slots
            weights,
            tasks,
        )


def _document(
    joined: Joined,
    facts: Sequence[PartFacts],
    table: _Table,
    cluster: FlowInstance,
    prices: Mapping[str, NDArray[Any]],
    stages: Mapping[str, Mapping[int, int]],
) -> dict[str, Any]:
    """The solution file of the instance that was cut, with the prices as proof."""
    proof: dict[str, Any] = {}
    for stage in joined.stages:
        leaf: dict[str, Any] = {"complete": ["task"]}
        if stage.name in stages:
            at = {name: -int(p) for name, p in zip(table.names, prices[stage.name].tolist(), strict=True) if p}
            leaf["rows"] = {"machine": {"at": at}}
            leaf["earlier"] = {
                f"waiting_{k}": -w for k, w in stages[stage.name].items() if f"waiting_{k}" != stage.name
            }
        proof[stage.name] = [leaf]
    last = joined.stages[-1]
    optimal = last.bound == last.value
    running = sum(each.figures["running"] for each in facts)
    bounds = {f"{stage.name}_at_least": stage.bound for stage in joined.stages if stage.bound is not None}
    return {
        "kind": "flow-scheduling-solution",
        "version": 3,
        "file": "",
        "instance": cluster.name,
        "fingerprint": cluster.fingerprint,
        "model": "flow-scheduling",
        "options": dict(facts[0].options),
        "engine": f"{len(facts)} parts",
        "status": "optimal" if optimal else "feasible",
        "objective": last.value,
        "bound": last.bound,
        "gap": joined.gap,
        "stages": {stage.name: stage.value for stage in joined.stages},
        "message": "" if optimal else f"solved in {len(facts)} parts",
        "metrics": {name: sum(f.figures[name] for f in facts) for name in _FIGURES}
        | {"utilisation": running / max(1, int(table.slots.sum())), **bounds},
        "answer": {
            **{name: {k: v for f in facts for k, v in f.answer[name].items()} for name in ("placements", "waiting")},
            "shares": {},
            "scale": facts[0].scale,
            "weights": None,
        },
        "duals": {},
        "proof": {"format": 3, "stages": proof},
        "certificate": None,
    }
