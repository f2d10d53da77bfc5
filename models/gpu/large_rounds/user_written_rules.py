"""Changes of a round as codes: classes of tasks and of GPUs that no rule distinguishes.

A rule over ``x`` selects tasks (by task, job) and GPUs (by gpu, node, rack) independently, so each coefficient depends
only on a code of the task and a code of the GPU. All rules treat tasks of one code equally, and GPUs of one code.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

import numpy as np

from flowlex.formulations.block_labels import label_text
from flowlex.formulations.linear_program import Relation
from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.instances.gpu import GpuArrays
from flowlex.instances.model_changes import Bounds, Changes, Constraint, Cost, Fix, Label, Term
from flowlex.models.solution import ModelError
from flowlex.models.statement.apply_changes import sides_of
from flowlex.models.statement.variable_labels import Index, nearest

_TASK, _GPU = ("task", "job"), ("gpu", "node", "rack")
_EXACT = 2**53
#: Changes that need one variable per pair of task and GPU, with the message that suggests an alternative.
_WITHOUT_PAIRS = {
    "drop": "`without` drops rows; for rounds without fair shares use policy='FSU'",
    "relaxed": "`relaxed` drops integrality; ask for the linear program of a smaller round",
    "variable": "`with_variable` adds variables; state the rule over x alone",
}
_WORD = {Fix: "fixed", Bounds: "bounds"}


@dataclass(frozen=True, eq=False)
class Selection:
    """(T,) and (G,) codes of tasks and GPUs, -1 if not selected, and the coefficient of selected pairs."""

    task: Integers
    gpu: Integers
    coefficient: Fraction = Fraction(1)


@dataclass(frozen=True, eq=False)
class Rule:
    """A block of user-written constraints."""

    name: str
    relation: Relation
    # coefficients of pairs; ``row[a, b]`` is the row of task code a and GPU code b, -1 if there is none
    terms: tuple[Selection, ...]
    row: Integers
    # (n,) labels and right-hand sides of the rows
    labels: list[str]
    rhs: Floats
    scale: Fraction  # factor that makes all numbers integer


@dataclass(frozen=True, eq=False)
class Codes:
    """(T,) and (G,) codes of tasks and GPUs, equal if all rules treat them equally, and bounds of pairs by code."""

    task: Integers
    gpu: Integers
    lower: Integers
    upper: Integers


class Rules:
    """The changes of a round, encoded by classes of tasks and GPUs.

    ``view``: the instance. ``may_start``: (T,) waiting tasks that may start. ``taken``: reserved names of constraints.
    """

    def __init__(self, view: GpuArrays, may_start: Booleans, changes: Changes, taken: Collection[str] = ()) -> None:
        self.view, self.may_start = view, may_start
        job, node = view.task_job, view.gpu_node
        self.tasks = Index.coded(task=(view.task_names, np.arange(len(job))), job=(view.job_names, job))
        gpus = {"gpu": (view.gpu_names, np.arange(len(node))), "node": (view.node_names, node)}
        self.gpus = Index.coded(**gpus, rack=(view.rack_names, view.node_rack[node]))
        self.rules: list[Rule] = []
        for each in changes:
            if isinstance(each, Constraint):
                if each.name in taken or each.name in [rule.name for rule in self.rules]:
                    raise ModelError(f"rule {each.name!r}: rows of that name exist already; choose another name")
                self.rules.append(self._rule(each))
        costs = [term for each in changes if isinstance(each, Cost) for term in each.terms]
        self.costs = [self._selection(term, "with_cost") for term in costs]
        self._limits = [
            (self._selection(each.variables, f"with_{_WORD[type(each)]}"), *_sides(each), isinstance(each, Fix))
            for each in changes
            if isinstance(each, (Fix, Bounds))
        ]
        self.codes = self._codes()

    def _selection(self, term: Term, what: str = "", empty: bool = False) -> Selection:
        """Select the tasks and GPUs of a term, all with code 0."""
        sides = []
        for index, levels in ((self.tasks, _TASK), (self.gpus, _GPU)):
            where = {level: wanted for level, wanted in term.where.items() if level in levels}
            index.check(where, f"{what}: {term.variable}")
            sides.append(np.where(index.select(where), 0, -1))
        if odd := [level for level in (*term.where, *term.by) if level not in (*_TASK, *_GPU)]:
            raise ModelError(f"{what}: {term.variable} has " + nearest("level", odd[0], (*_TASK, *_GPU)))
        found = Selection(sides[0], sides[1], term.coefficient)
        if not empty and not self._there(found, 1, 1).any():
            raise ModelError(f"{what} is over no variable")
        return found

    def _rule(self, rule: Constraint) -> Rule:
        levels = rule.terms[0].by
        sides: tuple[dict[tuple[Label, ...], int], dict[tuple[Label, ...], int]] = ({}, {})
        terms = [self._selection(term, f"rule {rule.name!r}", empty=True) for term in rule.terms]
        for term in terms:
            parts = zip((self.tasks, self.gpus), (_TASK, _GPU), (term.task, term.gpu), sides, strict=True)
            for index, own, code, known in parts:
                members = np.flatnonzero(code >= 0)
                labels, row = index.group([level for level in levels if level in own], members)
                code[members] = np.array([known.setdefault(label, len(known)) for label in labels], np.int64)[row]
        there = np.logical_or.reduce([self._there(term, len(sides[0]), len(sides[1])) for term in terms])
        if not there.any() and not rule.allow_empty:
            raise ModelError(f"rule {rule.name!r} is over no variable; allow_empty=True accepts that")
        there |= not levels
        tasks, gpus = list(sides[0]), list(sides[1])
        at = {level: k for own in (_TASK, _GPU) for k, level in enumerate(each for each in levels if each in own)}
        rows = {
            tuple((tasks[a] if level in _TASK else gpus[b])[at[level]] for level in levels): k
            for k, (a, b) in enumerate(np.argwhere(there).tolist())
        }
        rhs = sides_of(rule, rows)
        scale = Fraction(math.lcm(1, *(number.denominator for number in (*rhs, *(t.coefficient for t in terms)))))
        if any(abs(number * scale) > _EXACT for number in (*rhs, *(term.coefficient for term in terms))):
            raise ModelError(f"rule {rule.name!r}: its numbers have no common unit that is exact; write fewer digits")
        return Rule(
            rule.name,
            rule.relation,
            tuple(replace(term, coefficient=term.coefficient * scale) for term in terms),
            np.where(there, np.cumsum(there).reshape(there.shape) - 1, -1),
            [label_text(label) for label in rows],
            np.array([float(side * scale) for side in rhs]),
            scale,
        )

    def _there(self, chosen: Selection, tasks: int, gpus: int) -> Booleans:
        """Return, (A, B), whether some task of code a may run on some GPU of code b."""
        view, a, b = self.view, chosen.task, chosen.gpu
        need, memory = np.full(tasks + 1, np.inf), np.full(gpus + 1, -np.inf)
        waiting = self.may_start & (a >= 0)
        np.minimum.at(need, a[waiting], view.task_memory[waiting])
        np.maximum.at(memory, b, np.where(b >= 0, view.gpu_memory, -np.inf))
        there: Booleans = need[:-1, None] <= memory[None, :-1]
        held = np.flatnonzero(view.task_running_gpu >= 0)
        at = b[view.task_running_gpu[held]]
        both = (a[held] >= 0) & (at >= 0)
        there[a[held][both], at[both]] = True
        return there

    def _codes(self) -> Codes:
        every = [*(term for rule in self.rules for term in rule.terms), *self.costs, *(s for s, *_ in self._limits)]
        task, gpu = (
            _together([getattr(each, side) for each in every], count)
            for side, count in (("task", len(self.may_start)), ("gpu", len(self.view.gpu_names)))
        )
        shape = int(task.max()) + 1, int(gpu.max()) + 1
        lower, upper = np.zeros(shape, np.int64), np.ones(shape, np.int64)
        for chosen, low, high, fixed in self._limits:
            a, b = np.zeros(shape[0], bool), np.zeros(shape[1], bool)
            a[task[chosen.task >= 0]], b[gpu[chosen.gpu >= 0]] = True, True
            both = np.ix_(a, b)
            if fixed and ((lower[both] > low) | (upper[both] < low)).any():
                raise ModelError("with_fixed: a variable of x is fixed outside its bounds")
            lower[both] = lower[both] if low is None else low
            upper[both] = upper[both] if high is None else high
        if (lower > upper).any():
            raise ModelError("with_bounds: a variable of x has a lower bound above its upper")
        return Codes(task, gpu, lower, upper)


def _together(codes: list[Integers], count: int) -> Integers:
    """Return joint codes, (count,): equal if and only if the codes in all lists are equal."""
    found = np.zeros(count, np.int64)
    for each in codes:
        _, found = np.unique(found * (int(each.max(initial=0)) + 2) + each + 1, return_inverse=True)
    return found


def _sides(change: Fix | Bounds) -> tuple[int | None, int | None]:
    low, high = (change.value, change.value) if isinstance(change, Fix) else (change.lower, change.upper)
    return None if low is None else ceil(low), None if high is None else floor(high)


def unsupported(changes: Changes) -> str:
    """Return the reason why the network over classes cannot model the changes; empty if it can."""
    for each in changes:
        terms: tuple[Term, ...] = ()
        if isinstance(each, (Constraint, Cost)):
            terms = each.terms
        elif isinstance(each, (Fix, Bounds)):
            terms = (each.variables,)
        if not terms:
            return _WITHOUT_PAIRS[each.change]
        if any(term.variable != "x" for term in terms):
            return f"{each.change!r} names other variables than x; state it over x"
        if isinstance(each, Constraint) and len({term.by for term in each.terms}) > 1:
            return f"rule {each.name!r} adds sums by different levels; state a rule for each"
        if isinstance(each, Cost) and each.stage != "transfer":
            return f"a cost is added to stage {each.stage!r}; add it to stage 'transfer'"
        if isinstance(each, (Fix, Bounds)) and any(side not in (None, 0, 1) for side in _sides(each)):
            return "bounds outside of 0 and 1; x is 0 or 1"
    return ""
