"""Large changed rounds: the statement over classes of tasks and GPUs that no change tells apart.

Measured: 2000 GPUs, 4000 tasks and ten rules, 8 million pairs, are solved and proven in 7 processor seconds.

A rule over ``x`` selects and sums tasks (by task, job) and GPUs (by gpu, node, rack) independently. Tasks that all
changes select and sum alike are a class, and so are GPUs. Each class is named after its first member, so that changes
apply to the statement over classes as they stand: a column then counts its pairs.

Fair shares and the number of running tasks do not depend on data: their stages are solved over classes of tasks (job,
memory, changes) and of GPUs (memory, changes). Transfer is solved as in the compact network: a task enters a place
(node, memory, changes) or a rack with its data, or the cluster; behind these, classes of tasks go to places.

Both programs hand over multipliers of the statement's own rows: those of a place hold for its GPUs, those of tasks and
of the rows in between are left out, as the checker completes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.formulations.language.labels import Index, Level, StatementError
from flowlex.formulations.language.statement import RowBlock, Statement
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import Outcome, SolveOptions, Status
from flowlex.instances.model_changes import Bounds, Changes, Constraint, Cost, Fix, Relaxed, Term
from flowlex.models.gpu.round_eligibility import Round
from flowlex.models.gpu.statement import (
    LARGEST,
    NEEDED,
    by_label,
    fair_shares,
    held_names,
    minimise_costs,
    pair_count,
    pair_table,
    pairs_of,
    running_tasks,
    sets,
)
from flowlex.models.gpu.transfer_costs import TransferCosts
from flowlex.models.labelled_variables import LabelledVariables, Named
from flowlex.models.problem import KEPT, Problem
from flowlex.models.problem_changes import apply_changes, selected
from flowlex.models.problem_solution import ProblemSolution
from flowlex.models.solution import Dual, ModelError
from flowlex.models.stated_model import duals_of_stage
from flowlex.validation.proofs.proof import Leaf, number
from flowlex.validation.proofs.proof_document import FORMAT

#: Rows between tasks and places, and columns that only this statement has.
_BETWEEN = ("task", "via cluster", "via rack", "fixed pairs")
_ENTER = ("x in rack", "x remote", "x to rack")


def unsupported(changes: Changes) -> str:
    """Why classes cannot carry the changes; empty if they can."""
    for each in changes:
        if isinstance(each, Relaxed):
            return "`relaxed` drops integrality; ask for the linear program of a smaller round"
        if isinstance(each, (Fix, Bounds)) and each.variables.variable == "x":
            sides = (each.value,) if isinstance(each, Fix) else (each.lower, each.upper)
            if any(side not in (None, 0, 1) for side in sides):
                return "bounds outside of 0 and 1; x is 0 or 1"
    return ""


class LargeRound:
    """A round with its changes, over classes."""

    def __init__(self, plan: Round, costs: TransferCosts, changes: Changes) -> None:
        view = self.view = plan.view
        self.plan, self.costs, self.changes = plan, costs, changes
        self.start, self.held = np.flatnonzero(plan.may_start), np.flatnonzero(view.task_running_gpu >= 0)
        terms = [*_terms(changes)]
        of_task, of_gpu = (_codes(index, terms) for index in _indices(view))
        memory = np.unique(view.gpu_memory)
        need = np.searchsorted(memory, view.task_memory)
        self.kind = need * (int(of_task.max(initial=0)) + 1) + of_task
        self.gpu_kind = np.searchsorted(memory, view.gpu_memory) * (int(of_gpu.max(initial=0)) + 1) + of_gpu

    def _pairs(self, tasks: Integers, gpus: Integers) -> tuple[Integers, Integers]:
        """Positions of tasks and GPUs of which the GPU has enough memory."""
        if len(tasks) * len(gpus) > LARGEST:
            raise ModelError(
                f"the changes tell {len(tasks)} tasks and {len(gpus)} GPUs apart, more than {LARGEST} pairs"
            )
        found = np.nonzero(self.view.task_memory[tasks][:, None] <= self.view.gpu_memory[gpus][None, :])
        return found[0].astype(np.int64), found[1].astype(np.int64)

    def _ready(self, p: Problem, pairs: Integers, capacity: Integers, waits: NDArray[np.bool_]) -> Problem:
        """The problem after all changes, whose columns ``x`` then count the ``pairs`` of their classes.

        ``capacity``: most of them that may run; ``waits``: which columns are of waiting tasks.
        """
        stages = {objective.name for objective in p.objectives}
        mine = [each for each in self.changes if not isinstance(each, Cost) or each.stage in stages]
        p = apply_changes(p, mine, NEEDED).copy()
        block = p.blocks["x"]
        forced = waits & (block.lower > 0)
        p.blocks["x"] = replace(block, lower=np.where(waits, 0.0, block.lower), upper=block.upper * capacity)
        if forced.any():  # all pairs of two classes, by whatever columns they go
            codes, size = block.index.codes, len(block.index.levels["gpu"])
            row, place = np.unique(
                codes["class"][forced].astype(np.int64) * size + codes["gpu"][forced], return_inverse=True
            )
            sides = np.zeros(len(row))
            np.maximum.at(sides, place, pairs[forced])
            level, columns = Level("row", tuple(row.tolist())), np.flatnonzero(forced) + block.start
            order = np.argsort(place, kind="stable")
            p.rows["fixed pairs"] = RowBlock(
                "fixed pairs", Index.product([level]), ">=", place[order], columns[order], np.ones(len(place)), sides,
                Fraction(1), ("symbol", "x", ()), ("number", "1"),
            )  # fmt: skip
        return p

    @cached_property
    def fair(self) -> Problem:
        """The statement of fair shares and the number of running tasks."""
        view, p = self.view, Problem("classes")
        sets(p, view)
        first, _, size = _classes(view.task_job[self.start], self.kind[self.start])
        one, place, capacity = _classes(self.gpu_kind)
        a, b = self._pairs(self.start[first], one)
        own = one[place[view.task_running_gpu[self.held]]]
        task, gpu = np.concatenate([self.start[first][a], self.held]), np.concatenate([one[b], own])
        table = pair_table(view, task, gpu).assign(**{"class": np.array(view.task_names, object)[task]})
        x = p.variables("x", over=table, binary=True)
        names = np.array(view.task_names, object)
        limit = np.ones(len(names), np.int64)
        limit[self.start[first]] = size
        p.constrain("task", x.sum(by="task") <= by_label(names, limit, "task"))
        self._capacity(p, x, one, capacity)
        runs = x.sum(by="task").sel(task=held_names(view)) if len(self.held) else None
        running_tasks(p, self.plan, x, runs)
        fair_shares(p, self.plan, x.sum(by="job"))
        p.maximize("running", x.sum())
        waits = np.arange(len(task)) < len(a)
        pairs = np.concatenate([size[a] * capacity[b], np.ones_like(self.held)])
        most = np.concatenate([np.minimum(size[a], capacity[b]), np.ones_like(self.held)])
        return self._ready(p, pairs, most, waits)

    def _capacity(self, p: Problem, x: Any, one: Integers, capacity: Integers) -> None:
        names = [self.view.gpu_names[g] for g in one.tolist()]
        p.constrain("gpu_out", x.sum(by="gpu").sel(gpu=names) <= by_label(names, capacity, "gpu"))

    @cached_property
    def places(self) -> tuple[Integers, Integers, Integers]:
        """First GPU of each place, place of each GPU, number of GPUs."""
        return _classes(self.view.gpu_node, self.gpu_kind)

    @cached_property
    def kinds(self) -> tuple[Integers, Integers, Integers]:
        """First task of each class of starting tasks, class of each starting task, number of tasks."""
        first, kind, size = _classes(self.kind[self.start])
        return self.start[first], kind, size

    @cached_property
    def whole(self) -> Problem:
        """The statement of all stages, with transfer as in the compact network."""
        import pandas as pd

        view, costs, p = self.view, self.costs, Problem("compact")
        names, racks = np.array(view.task_names, object), np.array(view.rack_names, object)
        sets(p, view)
        p.set("via", ["near", "far", "own"])
        one, place, capacity = self.places
        reps, kind, size = self.kinds
        kind_of = np.full(len(names), -1)
        kind_of[self.start] = kind
        near_task, near_place, near_cost = self._near()
        a, b = self._pairs(reps, one)
        own = place[view.task_running_gpu[self.held]]
        counts = len(near_task), len(a), len(self.held)
        task = np.concatenate([near_task, reps[a], self.held])
        at = np.concatenate([near_place, b, own])
        of_class = np.concatenate([names[reps[kind_of[near_task]]], names[reps[a]], names[self.held]])
        table = pair_table(view, task, one[at], via=np.repeat(["near", "far", "own"], counts).astype(object))
        x = p.variables("x", over=table.assign(**{"class": of_class}), binary=True)
        near, far, stay = (x.sel(via=via) for via in ("near", "far", "own"))
        rack_task, rack, rack_cost = (each[self.plan.may_start[costs.in_rack[0]]] for each in costs.in_rack)
        of_kind = names[reps]
        by_rack = pd.MultiIndex.from_arrays([names[rack_task], racks[rack]], names=["task", "rack"])
        follow = {"job": np.array(view.job_names, object)[view.task_job], "class": of_kind[kind_of]}
        entering = pd.DataFrame({level: each[rack_task] for level, each in follow.items()}, index=by_rack)
        in_rack = p.variables(_ENTER[0], over=entering, binary=True)
        everyone = pd.Index(names[self.start], name="task", dtype=object)
        remote = p.variables(
            _ENTER[1],
            over=pd.DataFrame({k: each[self.start] for k, each in follow.items()}, index=everyone),
            binary=True,
        )
        way = pd.MultiIndex.from_product([of_kind, view.rack_names], names=["class", "rack"])
        to_rack = p.variables(_ENTER[2], over=way, upper=np.repeat(size, len(racks)), integer=True)
        parts = (near, in_rack, remote)
        p.constrain("task", near.sum(by="task") + in_rack.sum(by="task") + remote.sum(by="task") <= 1)
        p.constrain("via cluster", remote.sum(by="class") == to_rack.sum(by="class"))
        both = ["class", "rack"]
        p.constrain("via rack", to_rack + in_rack.sum(by=both).reindex(to_rack) == far.sum(by=both).reindex(to_rack))
        self._capacity(p, x, one, capacity)
        runs = stay.sum(by="task").sel(task=held_names(view)) if len(self.held) else None
        running_tasks(p, self.plan, stay, runs)
        fair_shares(p, self.plan, sum((each.sum(by="job") for each in parts), stay.sum(by="job")))
        total = sum((each.sum() for each in parts), stay.sum())
        if not self.plan.priced:
            p.maximize("running", total)
        seconds = [
            (part * p.data(c, pd.Series(units.astype(np.int64), part.index.to_pandas()), scale=costs.unit_s)).sum()
            for c, part, units in (
                ("c", near, near_cost), ("r", in_rack, rack_cost), ("f", remote, costs.remote[self.start]))
        ]  # fmt: skip
        minimise_costs(p, self.plan, costs, seconds[0] + seconds[1] + seconds[2], total, runs)
        if self.plan.priced:
            p.minimize("waiting", len(names) - len(self.held) - sum((each.sum() for each in parts[1:]), near.sum()))
        ones = [np.ones(counts[0], np.int64), np.ones(counts[2], np.int64)]
        pairs = np.concatenate([ones[0], size[a] * capacity[b], ones[1]])
        most = np.concatenate([ones[0], np.minimum(size[a], capacity[b]), ones[1]])
        return self._ready(p, pairs, most, np.arange(len(task)) < counts[0] + counts[1])

    def _near(self) -> tuple[Integers, Integers, NDArray[Any]]:
        """Starting tasks, places with enough memory on nodes with their data, and costs."""
        task, node, cost = (each[self.plan.may_start[self.costs.on_node[0]]] for each in self.costs.on_node)
        one = self.places[0]
        at = self.view.gpu_node[one]
        order = np.argsort(at, kind="stable")
        begin = np.searchsorted(at[order], node)
        times = np.searchsorted(at[order], node, side="right") - begin
        row = np.repeat(np.arange(len(task)), times)
        place = order[np.repeat(begin - (np.cumsum(times) - times), times) + np.arange(len(row))]
        fits = self.view.task_memory[task[row]] <= self.view.gpu_memory[one[place]]
        return task[row[fits]], place[fits], cost[row[fits]]

    def placements(self, problem: Problem, values: Mapping[str, Floats]) -> Integers:
        """GPU of each task, (T,), -1 if it does not run."""
        view, found = self.view, np.full(len(self.view.task_job), -1)
        x, index = np.rint(values["x"]).astype(np.int64), problem.blocks["x"].index
        _, place, _ = self.places
        at = place[index.codes["gpu"]]
        own = x[len(x) - len(self.held) :] > 0
        found[self.held[own]] = view.task_running_gpu[self.held[own]]
        free: list[list[int]] = [[] for _ in self.places[0]]
        for g in np.setdiff1d(np.arange(len(place)), found).tolist():
            free[place[g]].append(g)
        via = np.array(index.levels["via"].labels, object)[index.codes["via"]]
        for k in np.flatnonzero((x > 0) & (via == "near")).tolist():
            found[index.codes["task"][k]] = free[at[k]].pop()
        # Tasks of a class that enter a rack or the cluster go on to places in any order.
        reps, kind, _ = self.kinds
        of_class = {view.task_names[t]: k for k, t in enumerate(reps.tolist())}
        kind_of = dict(zip(self.start.tolist(), kind.tolist(), strict=True))
        wide: dict[int, list[int]] = {}
        racked: dict[tuple[int, str], list[int]] = {}
        for name, flow in ((name, np.rint(values[name]).astype(np.int64)) for name in _ENTER):
            labels = problem.blocks[name].index
            for k in np.flatnonzero(flow).tolist():
                level = labels.levels
                rack = str(level["rack"].labels[labels.codes["rack"][k]]) if "rack" in level else ""
                if name == _ENTER[2]:
                    mine = of_class[str(level["class"].labels[labels.codes["class"][k]])]
                    racked.setdefault((mine, rack), []).extend(wide[mine].pop() for _ in range(int(flow[k])))
                    continue
                t = int(labels.codes["task"][k])
                target = wide.setdefault(kind_of[t], []) if not rack else racked.setdefault((kind_of[t], rack), [])
                target.append(t)
        for k in np.flatnonzero((x > 0) & (via == "far")).tolist():
            rack = str(index.levels["rack"].labels[index.codes["rack"][k]])
            mine = kind_of[int(index.codes["task"][k])]
            for _ in range(int(x[k])):
                found[racked[mine, rack].pop()] = free[at[k]].pop()
        return found

    @cached_property
    def variables(self) -> Mapping[str, LabelledVariables]:
        """The variables by name; labels of pairs are made when they are first read."""
        view, plan = self.view, self.plan
        names: dict[str, Sequence[str]] = {
            "task": view.task_names, "gpu": view.gpu_names, "job": view.job_names, "node": view.node_names,
            "rack": view.rack_names,
        }  # fmt: skip
        levels = {name: Level(name, tuple(labels)) for name, labels in names.items()}
        pairs: Any = _Pairs(plan)
        every = {"x": Index(("task", "gpu"), levels, pairs, pair_count(plan))}
        every |= {name: b.index for name, b in self.checked.blocks.items() if name not in ("x", *_ENTER)}
        return Named("variables named", {name: LabelledVariables(name, index, {}) for name, index in every.items()})

    @cached_property
    def checked(self) -> Problem:
        """The smaller problem in which all changes have a meaning."""
        costs = any(isinstance(each, Cost) for each in self.changes)
        try:
            return self.whole if self.plan.priced or costs else self.fair
        except StatementError as error:
            raise ModelError(str(error)) from error


def _indices(view: Any) -> tuple[Index, Index]:
    """Labels of tasks and of GPUs."""
    node = view.gpu_node

    def index(**of: tuple[Sequence[str], Any]) -> Index:
        levels = {name: Level(name, tuple(labels)) for name, (labels, _) in of.items()}
        codes = {name: np.asarray(code, np.int32) for name, (_, code) in of.items()}
        return Index(tuple(of), levels, codes, len(next(iter(codes.values()))))

    return (
        index(task=(view.task_names, np.arange(len(view.task_names))), job=(view.job_names, view.task_job)),
        index(
            gpu=(view.gpu_names, np.arange(len(node))),
            node=(view.node_names, node),
            rack=(view.rack_names, view.node_rack[node]),
        ),
    )


def _terms(changes: Changes) -> Iterator[Term]:
    """Selections of ``x``."""
    for each in changes:
        terms: Iterable[Term] = ()
        if isinstance(each, (Constraint, Cost)):
            terms = each.terms
        elif isinstance(each, (Fix, Bounds)):
            terms = (each.variables,)
        yield from (term for term in terms if term.variable == "x")


def _codes(index: Index, terms: Iterable[Term]) -> Integers:
    """(count,) numbers of members, equal for those that every term selects and sums alike."""
    found = np.zeros(index.count, np.int64)
    for term in terms:
        where = {level: wanted for level, wanted in term.where.items() if level in index.levels}
        # In which sum of the term a member is, 0 in none; numbered from 0 again, so that products stay small.
        total = selected(index, where, term.variable).astype(np.int64)
        for level in (level for level in term.by if level in index.levels):
            total = np.where(total > 0, total * len(index.levels[level]) + index.codes[level] + 1, 0)
        _, total = np.unique(total, return_inverse=True)
        _, found = np.unique(found * (int(total.max(initial=0)) + 1) + total, return_inverse=True)
    return found.astype(np.int64)


def _classes(*keys: Integers) -> tuple[Integers, Integers, Integers]:
    """First member of each class of equal keys, in order; class of each member; size of each class."""
    key = np.zeros(len(keys[0]), np.int64)
    for each in keys:
        _, key = np.unique(key * (int(each.max(initial=0)) + 1) + each, return_inverse=True)
    _, first, member, size = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[member].astype(np.int64), size[order]


@dataclass(frozen=True, eq=False)
class LargeRun:
    """The result of solving by classes."""

    outcome: Outcome
    stages: Mapping[str, Fraction]
    bounds: Mapping[str, Fraction | None]
    proof: Mapping[str, Any]  # as files hold it
    duals: Mapping[str, Dual]
    gpu: Integers | None = None  # (T,) the placements; None without an answer
    placed: Mapping[str, Mapping[str, Any]] | None = None  # values that are not 0, by variable and label
    slacks: Mapping[str, Dual] = field(default_factory=dict)  # of the rows that changes added


def solve_large(of: LargeRound, options: SolveOptions, *, restarted: bool = False) -> LargeRun:
    """Solve fair shares and the number of running tasks first; with these fixed, least transfer and what follows."""
    began, once = processor_seconds(), replace(options, max_steps=1)
    whole, runs = of.whole, list[ProblemSolution]()
    before: dict[str, Fraction] = {}
    if not of.plan.priced:
        first = of.fair.solve_with(once, certify=False, leaves=True)
        if not first.status.has_answer:
            return _without_answer(of, first, _classes(of.gpu_kind)[1])
        runs, before = [first], {name: stage.exact[0] for name, stage in first.stages.items()}
    left = options.time_limit_s and max(options.time_limit_s - (processor_seconds() - began), 0.1)
    second = _after(whole, before).solve_with(replace(once, time_limit_s=left), certify=False, leaves=True)
    if not second.status.has_answer:
        return _without_answer(of, second, of.places[1])
    assert second.numbers is not None
    runs.append(second)
    values = {name: second.numbers[block.columns] for name, block in second.problem.blocks.items()}
    gpu = of.placements(whole, values)
    names, gpus, at = of.view.task_names, of.view.gpu_names, np.flatnonzero(gpu >= 0).tolist()
    placed: dict[str, dict[str, Any]] = {"x": {label_text((names[t], gpus[gpu[t]])): 1 for t in at}}
    for name, block in second.problem.blocks.items():
        used = np.flatnonzero(values[name])
        if name not in ("x", *_ENTER) and len(used):
            exact = (second.exact.numbers[block.start + used].tolist()) if second.exact is not None else []
            unit = second.exact.unit if second.exact is not None else Fraction(1)
            placed[name] = dict(zip(block.index.plain_texts(used), (number(int(v) * unit) for v in exact), strict=True))
    proven = all(stage.exact[1] is not None for run in runs for stage in run.stages.values())
    known = len(runs) == 1 or all(stage.exact[1] is not None for stage in runs[0].stages.values())
    bounds: dict[str, Fraction | None] = {}
    for run in runs:
        bounds |= {name: stage.exact[1] if run is runs[0] or known else None for name, stage in run.stages.items()}
    leaves: dict[str, Any] = {}
    if len(runs) == 2:
        leaves = _leaves(of, runs[0], _classes(of.gpu_kind)[1])
    if known:
        leaves |= _leaves(of, second, of.places[1])
    duals = {
        name: dual
        for name, dual in duals_of_stage(second, "transfer").items()
        if name not in (*_BETWEEN, "gpu_out") and not name.endswith(KEPT)
    }
    if prices := duals_of_stage(second, "transfer").get("gpu_out"):
        duals["gpu_out"] = Dual(np.asarray(prices.values)[of.places[1]], gpus)
    open_ = [name for run in runs for name, stage in run.stages.items() if stage.exact[1] is None]
    message = f"not proven best: {', '.join(open_)}" if open_ else ""
    if restarted:
        message = f"{message} The start was not used: this method begins with fair shares.".lstrip()
    own = {each.name for each in of.changes if isinstance(each, Constraint)}
    slack = second.slack
    return LargeRun(
        Outcome(Status.OPTIMAL if proven else Status.FEASIBLE, "highs", message=message),
        {**before, **{name: stage.exact[0] for name, stage in second.stages.items()}},
        bounds,
        {"format": FORMAT, "stages": leaves},
        duals if proven else {},
        gpu,
        placed,
        {n: Dual(slack[n].to_numpy(), whole.rows[n].index.plain_texts) for n in slack if n in own},
    )  # fmt: skip


def _after(whole: Problem, before: Mapping[str, Fraction]) -> Problem:
    """The problem of the objectives that follow, with those before at their values."""
    found = whole
    for k, objective in enumerate(whole.objectives):
        if objective.name in before:
            found = found.keeping(k, before[objective.name])
    found = found.copy()
    found.objectives = [objective for objective in whole.objectives if objective.name not in before]
    return found


def _leaves(of: LargeRound, run: ProblemSolution, place: Integers) -> dict[str, Any]:
    """Proofs of stages that one leaf proves: multipliers of the rows of the statement."""
    found = {}
    for name, leaves in run.found.stages.items():
        if len(leaves) != 1 or leaves[0].derived:
            break
        found[name] = [_leaf(of, run.problem, leaves[0], place)]
    return found


def _leaf(of: LargeRound, problem: Statement, leaf: Leaf, place: Integers) -> dict[str, Any]:
    """A leaf in names and labels; multipliers of rows that keep earlier objectives are those of the objectives."""
    rows, earlier = {}, {name: number(value) for name, value in leaf.earlier.items() if value}
    for name, y in leaf.rows.items():
        if name in _BETWEEN:
            continue
        block = problem.rows[name]
        if name.endswith(KEPT):
            sign = -1 if block.relation == ">=" else 1  # an objective that is maximised is minus a minimisation
            earlier[name.removesuffix(KEPT)] = number(sign * y[0])
            continue
        texts = block.index.plain_texts()
        numbers = y.numbers
        if name == "gpu_out":
            texts, numbers = [label_text((gpu,)) for gpu in of.view.gpu_names], numbers[place]
        at = {texts[k]: number(int(v) * y.unit) for k, v in enumerate(numbers.tolist()) if v}
        if at:
            rows[name] = {"at": at}
    document: dict[str, Any] = {"rows": rows, "complete": ["task"]}
    if earlier:
        document["earlier"] = earlier
    return document if leaf.own == 1 else document | {"own": number(Fraction(leaf.own))}


def _without_answer(of: LargeRound, run: ProblemSolution, place: Integers) -> LargeRun:
    """The result of a round that has no answer, or found none in time."""
    proof: dict[str, Any] = {}
    if len(run.found.empty) == 1 and not run.found.empty[0].derived:
        proof = {"format": FORMAT, "empty": [_leaf(of, run.problem, run.found.empty[0], place)]}
    message = "The limit came before any answer." if run.infeasibility is None else run.infeasibility.message
    outcome = Outcome(run.status, "highs", message=message, infeasibility=run.infeasibility)
    return LargeRun(outcome, {}, {}, proof, {})


class _Pairs(Mapping[str, Integers]):
    """Labels of all pairs, made when they are first read."""

    def __init__(self, plan: Round) -> None:
        self._plan = plan

    @cached_property
    def _made(self) -> Mapping[str, Integers]:
        view, (task, gpu) = self._plan.view, pairs_of(self._plan)
        node = view.gpu_node[gpu]
        return {"task": task, "gpu": gpu, "job": view.task_job[task], "node": node, "rack": view.node_rack[node]}

    def __getitem__(self, level: str) -> Integers:
        return self._made[level]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
