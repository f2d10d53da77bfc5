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
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import Outcome, SolveOptions, Status
from flowlex.instances.model_changes import Bounds, Changes, Constraint, Cost, Fix, Relaxed, Term
from flowlex.models.gpu.round_eligibility import Round
from flowlex.models.gpu.statement import (
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
from flowlex.models.solution import Dual, ModelError
from flowlex.models.statement.apply_changes import apply_changes
from flowlex.models.statement.rows_and_objectives import Statement
from flowlex.models.statement.solve_statement import StatementRun, run_statement, values_document
from flowlex.models.statement.variable_labels import Index

if TYPE_CHECKING:
    from flowlex.models.problem import Problem

#: Numbers of pairs up to which a changed round is always solved by pairs, and beyond which it never is.
SMALL, LARGEST = 20_000, 2_000_000
METHOD = "classes of tasks and GPUs that no change tells apart"
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

    def _ready(self, p: Problem, pairs: Integers, capacity: Integers, waits: NDArray[np.bool_]) -> Statement:
        """The statement after all changes, whose columns ``x`` then count the ``pairs`` of their classes.

        ``capacity``: most of them that may run; ``waits``: which columns are of waiting tasks.
        """
        from flowlex.models.statement.from_language import statement_of

        stages = {objective.name for objective in p.objectives}
        mine = [each for each in self.changes if not isinstance(each, Cost) or each.stage in stages]
        s = apply_changes(statement_of(p, NEEDED), Changes(changes=tuple(mine)))
        block, columns = s.program.variable_blocks["x"], s.columns["x"]
        forced = waits & (block.lower > 0)
        program = s.program.copy()
        program.rows = None
        counted = replace(block, lower=np.where(waits, 0.0, block.lower), upper=block.upper * capacity)
        program.variable_blocks = {**program.variable_blocks, "x": counted}
        s = replace(s, program=program, rows=dict(s.rows))
        if forced.any():  # all pairs of two classes, by whatever columns they go
            of_class = columns.codes["class"] * len(columns.levels["gpu"]) + columns.codes["gpu"]
            row, place = np.unique(of_class[forced], return_inverse=True)
            sides = np.zeros(len(row))
            np.maximum.at(sides, place, pairs[forced])
            each = Expression(place, np.flatnonzero(forced) + block.start, np.ones(len(place)), np.zeros(len(row)))
            s.constrain("fixed pairs", each, ">=", sides, Index.of(row=row))
        return s

    @cached_property
    def fair(self) -> Statement:
        """The statement of fair shares and the number of running tasks."""
        from flowlex.models.problem import Problem

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
    def whole(self) -> Statement:
        """The statement of all stages, with transfer as in the compact network."""
        import pandas as pd

        from flowlex.models.problem import Problem

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

    def placements(self, statement: Statement, values: Mapping[str, Floats]) -> Integers:
        """GPU of each task, (T,), -1 if it does not run."""
        view, found = self.view, np.full(len(self.view.task_job), -1)
        x, index = np.rint(values["x"]).astype(np.int64), statement.columns["x"]
        _, place, _ = self.places
        at = place[index.codes["gpu"]]
        own = x[len(x) - len(self.held) :] > 0
        found[self.held[own]] = view.task_running_gpu[self.held[own]]
        free: list[list[int]] = [[] for _ in self.places[0]]
        for g in np.setdiff1d(np.arange(len(place)), found).tolist():
            free[place[g]].append(g)
        via = np.array(index.levels["via"], object)[index.codes["via"]]
        for k in np.flatnonzero((x > 0) & (via == "near")).tolist():
            found[index.codes["task"][k]] = free[at[k]].pop()
        # Tasks of a class that enter a rack or the cluster go on to places in any order.
        reps, kind, _ = self.kinds
        of_class = {view.task_names[t]: k for k, t in enumerate(reps.tolist())}
        kind_of = dict(zip(self.start.tolist(), kind.tolist(), strict=True))
        wide: dict[int, list[int]] = {}
        racked: dict[tuple[int, str], list[int]] = {}
        for name, flow in ((name, np.rint(values[name]).astype(np.int64)) for name in _ENTER):
            labels = statement.columns[name]
            for k in np.flatnonzero(flow).tolist():
                level = labels.levels
                rack = str(level["rack"][labels.codes["rack"][k]]) if "rack" in level else ""
                if name == _ENTER[2]:
                    mine = of_class[str(level["class"][labels.codes["class"][k]])]
                    racked.setdefault((mine, rack), []).extend(wide[mine].pop() for _ in range(int(flow[k])))
                    continue
                t = int(labels.codes["task"][k])
                target = wide.setdefault(kind_of[t], []) if not rack else racked.setdefault((kind_of[t], rack), [])
                target.append(t)
        for k in np.flatnonzero((x > 0) & (via == "far")).tolist():
            rack = str(index.levels["rack"][index.codes["rack"][k]])
            mine = kind_of[int(index.codes["task"][k])]
            for _ in range(int(x[k])):
                found[racked[mine, rack].pop()] = free[at[k]].pop()
        return found


def _indices(view: Any) -> tuple[Index, Index]:
    """Labels of tasks and of GPUs."""
    tasks, node = np.arange(len(view.task_names)), view.gpu_node
    of_gpu = {"gpu": (view.gpu_names, np.arange(len(node))), "node": (view.node_names, node)}
    return (
        Index.coded(task=(view.task_names, tasks), job=(view.job_names, view.task_job)),
        Index.coded(**of_gpu, rack=(view.rack_names, view.node_rack[node])),
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
    """(count,) equal for members that every term selects and sums alike."""
    found = np.zeros(index.count, np.int64)
    for term in terms:
        where = {level: wanted for level, wanted in term.where.items() if level in index.levels}
        index.check(where, term.variable)
        key = index.select(where).astype(np.int64)
        for level in (level for level in term.by if level in index.levels):
            key = np.where(key > 0, key * len(index.levels[level]) + index.codes[level] + 1, 0)
        _, key = np.unique(key, return_inverse=True)
        _, found = np.unique(found * (int(key.max(initial=0)) + 1) + key, return_inverse=True)
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
    """The result, as `flowlex.models.statement.solve_statement.StatementRun` has it."""

    outcome: Outcome
    stages: Mapping[str, Fraction]
    bounds: Mapping[str, Fraction | None]
    proof: Mapping[str, Any]
    duals: Mapping[str, Dual]
    gpu: Integers | None = None  # (T,) the placements; None without an answer
    placed: Mapping[str, Mapping[str, Any]] | None = None
    slacks: Mapping[str, Dual] | None = None
    method: str = METHOD

    @property
    def answered(self) -> bool:
        """Whether there is an answer."""
        return self.gpu is not None

    @property
    def values(self) -> dict[str, Any]:
        """The placements, under the key ``gpu``."""
        return {"gpu": self.gpu}

    def document(self) -> Mapping[str, Mapping[str, Any]]:
        """Nonzero values by variable and label."""
        return self.placed or {}

    def slack(self) -> Mapping[str, Dual]:
        """Slack of every user-written constraint."""
        return self.slacks or {}


def solve_large(of: LargeRound, options: SolveOptions, *, restarted: bool = False) -> LargeRun:
    """Solve fair shares and the number of running tasks first; with these fixed, least transfer and what follows."""
    began, once = processor_seconds(), replace(options, max_steps=1)
    whole, first = of.whole, None
    stages: Mapping[str, Fraction] = {}
    if not of.plan.priced:
        first = run_statement(of.fair, once, main="running")
        if not first.answered:
            return _without_answer(of, first, _classes(of.gpu_kind)[1])
        stages = first.stages
    left = options.time_limit_s and max(options.time_limit_s - (processor_seconds() - began), 0.1)
    second = run_statement(_after(whole, stages), replace(once, time_limit_s=left), main="transfer")
    if not second.answered:
        return _without_answer(of, second, of.places[1])
    assert second.outcome.values is not None
    gpu = of.placements(whole, second.values)
    names, gpus, at = of.view.task_names, of.view.gpu_names, np.flatnonzero(gpu >= 0).tolist()
    document = values_document(second.statement, second.outcome.values)
    document = {name: each for name, each in document.items() if name not in ("x", *_ENTER)}
    document["x"] = {label_text((names[t], gpus[gpu[t]])): 1 for t in at}
    runs = [run for run in (first, second) if run is not None]
    proven = all(run.outcome.status is Status.OPTIMAL for run in runs)
    known = first is None or first.outcome.status is Status.OPTIMAL
    bounds = {
        **(first.bounds if first is not None else {}),
        **(second.bounds if known else dict.fromkeys(second.bounds)),
    }
    leaves = _leaves(of, first, _classes(of.gpu_kind)[1]) if first is not None else {}
    if known:
        leaves |= _leaves(of, second, of.places[1])
    duals = {name: dual for name, dual in second.duals.items() if name not in (*_BETWEEN, "gpu_out", "before")}
    if "gpu_out" in second.duals:
        duals["gpu_out"] = Dual(np.asarray(second.duals["gpu_out"].values)[of.places[1]], gpus)
    message = runs[0].outcome.message or second.outcome.message
    if restarted:
        message = f"{message} The start was not used: this method begins with fair shares.".lstrip()
    return LargeRun(
        Outcome(Status.OPTIMAL if proven else Status.FEASIBLE, "highs", message=message),
        {stage.name: stage.value_at(second.outcome.values) for stage in whole.stages},
        bounds,
        {"stages": leaves},
        duals if proven else {},
        gpu,
        document,
        {name: each for name, each in second.slack().items() if name in whole.own},
    )  # fmt: skip


def _after(whole: Statement, before: Mapping[str, Fraction]) -> Statement:
    """The statement of the stages that follow, with those before at their values."""
    program = whole.program.copy()
    program.rows = None
    left = tuple(stage for stage in whole.stages if stage.name not in before)
    found = replace(whole, program=program, rows=dict(whole.rows), stages=left)
    if before:
        rows, sides = whole.limits(before)
        found.constrain("before", rows, "<=", sides, Index.of(stage=list(before)))
    return found


def _leaves(of: LargeRound, run: StatementRun, place: Integers) -> dict[str, Any]:
    """Proofs of stages that one leaf proves: multipliers of the rows of the statement."""
    found = {}
    for name, leaves in run.proof.get("stages", {}).items():
        if len(leaves) != 1:
            break
        found[name] = [_leaf(of, leaves[0], place)]
    return found


def _leaf(of: LargeRound, leaf: Mapping[str, Any], place: Integers) -> dict[str, Any]:
    rows = {name: each for name, each in leaf["rows"].items() if name not in (*_BETWEEN, "gpu_out", "before")}
    earlier = {**leaf["rows"].get("before", {}), **leaf.get("earlier", {})}
    prices = leaf["rows"].get("gpu_out")
    if prices:
        names = of.view.gpu_names
        position = {label_text((name,)): k for k, name in enumerate(names)}
        of_place = {place[position[label]]: y for label, y in prices.items()}
        rows["gpu_out"] = {label_text((names[g],)): of_place[k] for g, k in enumerate(place.tolist()) if k in of_place}
    document = {**leaf, "rows": rows, "complete": ["task"]}
    return document | ({"earlier": earlier} if earlier else {})


def _without_answer(of: LargeRound, run: StatementRun, place: Integers) -> LargeRun:
    """The result of a round that has no answer, or found none in time."""
    proof: dict[str, Any] = {}
    if len(run.proof.get("empty", ())) == 1:
        proof = {"empty": [_leaf(of, run.proof["empty"][0], place)]}
    return LargeRun(replace(run.outcome, values=None), {}, {}, proof, {})


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


class _NoRows:
    """In place of the program of a statement that is too large to be made."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> NoReturn:
        raise ModelError(f"{self._why}, so that its rows are not made one by one; look at a smaller round")


@dataclass(frozen=True, eq=False)
class LargeStatement(Statement):
    """A statement with labels of variables but without rows; ``why``: the reason."""

    why: str = ""

    @classmethod
    def of(cls, made: LargeRound) -> LargeStatement:
        """The statement of a large round after changes; they are checked."""
        view, plan = made.view, made.plan
        why = f"the statement has {pair_count(plan)} pairs of tasks and GPUs, more than {LARGEST}"
        levels: dict[str, Sequence[str]] = {
            "task": view.task_names, "gpu": view.gpu_names, "job": view.job_names, "node": view.node_names,
            "rack": view.rack_names,
        }  # fmt: skip
        index = Index(levels, _Pairs(plan), pair_count(plan), ("task", "gpu"))
        costs = any(isinstance(each, Cost) for each in made.changes)
        small = made.whole if plan.priced or costs else made.fair
        more = {name: each for name, each in small.columns.items() if name not in ("x", *_ENTER)}
        program = cast(LinearProgram, _NoRows(why))
        return cls(program, {"x": index, **more}, stages=small.stages, own=small.own, why=why)
