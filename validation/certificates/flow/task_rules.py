"""Rules that tie tasks together (gangs, affinities, spreads): whether they hold, and why no schedule is better.

A proof has a tree for every stage. Its leaves are given by choices (a gang runs or not, a team of tasks is in a domain
or not, a task is in a cell or not) that leave nothing out. In a leaf, let w_i >= 0 be weights of the stages up to the
one in question, p, q, s >= 0 prices as in `prices`, and b >= 0 prices of a domain for the tasks of a spread. Every
schedule of the leaf has a weighted sum of at least the bound of `prices`, less the sum of b times the limit, where

- a task of a spread pays b in the domain beside p;
- the tasks of a gang cost the lesser of: all wait, or all run, in the best of the domains that it must keep to;
- those of an affinity cost the least, over the domains, of each running there or waiting.

The earlier stages are at most as in the answer, so what remains bounds w times the stage; with w = 0, more than the
earlier stages may come to shows that the leaf is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.instances.flow_rules import domain_tags, members_of
from flowlex.validation.certificates.contract import Strict
from flowlex.validation.certificates.flow.goals import Problem
from flowlex.validation.certificates.flow.prices import Prices, Survey, bound, weighed

__all__ = ["Ties", "TreeLeaf", "offences", "stage_bound"]

Choice = tuple[str, str, tuple[str, ...]]


class TreeLeaf(Strict):
    """Choices (kind, name, tags, whether so), weights of the stages, and prices in the unit of their sum."""

    fixed: list[list[Any]]
    weights: dict[str, int]
    machine_price: dict[str, int] = Field(default_factory=dict)
    job_price: dict[str, int] = Field(default_factory=dict)
    apart_price: dict[str, dict[str, int]] = Field(default_factory=dict)
    spread_price: dict[str, dict[str, int]] = Field(default_factory=dict)


@dataclass(frozen=True)
class _Team:
    """Tasks of a gang or an affinity by position, and the domains (tag, machines) of which it keeps to one."""

    kind: str
    name: str
    tasks: list[int]
    domains: list[tuple[str, NDArray[np.bool_]]]


@dataclass(frozen=True)
class _Spread:
    """Tasks of a spread by position; machines and limit of each domain by tag, no limit as None."""

    name: str
    tasks: list[int]
    domains: dict[str, tuple[NDArray[np.bool_], int | None]]


class Ties:
    """The rules of an instance over its tasks by position."""

    def __init__(self, problem: Problem) -> None:
        instance, self.problem = problem.instance, problem
        rules = (*instance.gangs, *instance.affinities, *instance.spreads)
        at = {task.task.name: t for t, task in enumerate(problem.tasks if rules else ())}
        jobs = {job.name: [task.name for task in job.tasks] for job in (instance.jobs if rules else ())}
        self.teams: list[_Team] = []
        self.spreads: list[_Spread] = []
        self.inside: dict[int, NDArray[np.bool_]] = {}  # machines in a domain of every rule of a task
        everywhere = np.ones(len(problem.slots), bool)
        for rule in rules:
            tasks = [at[name] for name in members_of(rule, jobs)]
            tags = {} if rule.key is None else domain_tags(instance.machines, rule.key)
            masks = {tag: np.zeros(len(problem.slots), bool) for tag in tags.values()}
            for machine, tag in tags.items():
                masks[tag][problem.machine[machine]] = True
            reach = everywhere if rule.key is None else np.any([*masks.values(), ~everywhere], axis=0)
            for t in tasks:
                self.inside[t] = self.inside.get(t, everywhere) & reach
            if rule in instance.spreads:
                self.spreads.append(_Spread(rule.name, tasks, {t: (m, rule.limit(t)) for t, m in masks.items()}))
                continue
            kind = "gang" if rule in instance.gangs else "affinity"
            domains = [("", everywhere)] if rule.key is None else list(masks.items())
            self.teams.append(_Team(kind, rule.name, tasks, domains))

    def __bool__(self) -> bool:
        return bool(self.inside)

    def choice(self, said: list[Any]) -> tuple[Choice, bool]:
        """A choice that leaves nothing out: it holds, or its opposite does."""
        kind, name, tags, value = said
        choice = (kind, name, tuple(tags))
        if value not in (0, 1) or isinstance(value, bool):
            raise ValueError(f"a choice {value!r}; it is 1 or 0")
        if kind == "task":
            if name not in {self.problem.tasks[t].task.name for t in self.inside}:
                raise ValueError(f"a choice about task {name!r}, which no rule ties to others")
            return choice, bool(value)
        team = self.team(kind, name)
        own = [(tag,) for tag, _ in team.domains if tag]
        if choice[2] not in (own if kind == "affinity" else [(), *own]):
            raise ValueError(f"a choice about {kind} {name!r} and {tags}, which it does not make")
        return choice, bool(value)

    def team(self, kind: str, name: str) -> _Team:
        """A gang or affinity by name."""
        return next(team for team in self.teams if (team.kind, team.name) == (kind, name))


def offences(ties: Ties, at: list[int]) -> Iterator[tuple[str, list[str]]]:
    """What is checked of a schedule (machine by task, -1 where it waits), with the offenders."""
    split, parted = [], []
    for team in ties.teams:
        here = [at[t] for t in team.tasks if at[t] >= 0]
        if team.kind == "gang" and 0 < len(here) < len(team.tasks):
            split.append(f"{len(here)} of {len(team.tasks)} tasks of {team.name}")
        if here and not any(mask[here].all() for _, mask in team.domains):
            parted.append(f"{team.kind} {team.name}")
    yield "gangs run whole or not at all", split
    yield "what keeps together is in one domain", parted
    over = []
    for spread in ties.spreads:
        for tag, (mask, most) in spread.domains.items():
            held = sum(bool(mask[at[t]]) for t in spread.tasks if at[t] >= 0)
            if most is not None and held > most:
                over.append(f"{held} of {spread.name} on {tag}")
    names = ties.problem.tasks
    over += [names[t].task.name for t, mask in ties.inside.items() if at[t] >= 0 and not mask[at[t]]]
    yield "spreads keep their limits, inside their domains", over


def stage_bound(
    ties: Ties,
    survey: Survey,
    leaves: list[TreeLeaf],
    stage: str,
    values: Mapping[str, int],
    shares: list[tuple[int, int]],
) -> int | None:
    """No schedule that keeps the stages before has a smaller value of this one; None where nothing is shown.

    Raises
    ------
    ValueError
        The leaves leave something out, or speak of what is not there.
    """
    paths = [[ties.choice(said) for said in leaf.fixed] for leaf in leaves]
    if not _cover(paths):
        raise ValueError(f"the tree of stage {stage} leaves something out")
    names = list(values)
    known = names[: names.index(stage) + 1]
    found: int | None = None
    for leaf, path in zip(leaves, paths, strict=True):
        if leaf.weights.keys() - set(known) or min(leaf.weights.values(), default=0) < 0:
            raise ValueError(f"weights of a leaf of stage {stage}")
        weights = {name: leaf.weights.get(name, 0) for name in names}
        least = _least(ties, survey, leaf, weights, path, shares)
        if least is None:
            continue
        rest, own = least - sum(weights[name] * values[name] for name in known[:-1]), weights[stage]
        if own:
            each = -(-rest // own)
            found = each if found is None else min(found, each)
        elif rest <= 0:
            return None
    return values[stage] if found is None else found


def _cover(paths: list[list[tuple[Choice, bool]]]) -> bool:
    """Whether every way to choose is in exactly one path."""
    if not all(paths):
        return len(paths) == 1
    sides: dict[bool, list[list[tuple[Choice, bool]]]] = {True: [], False: []}
    for path in paths:
        sides[path[0][1]].append(path[1:])
    return bool(paths) and len({path[0][0] for path in paths}) == 1 and all(map(_cover, sides.values()))


def _least(
    ties: Ties,
    survey: Survey,
    leaf: TreeLeaf,
    weights: Mapping[str, int],
    path: list[tuple[Choice, bool]],
    shares: list[tuple[int, int]],
) -> int | None:
    """Least weighted sum of a leaf's schedules; None where it shows that there are none."""
    problem = ties.problem
    strange = [*(leaf.machine_price.keys() - problem.machine.keys())]
    strange += [*(leaf.job_price.keys() - {job.name for job in problem.instance.jobs})]
    strange += [*(leaf.apart_price.keys() - {task.apart for task in problem.tasks if task.apart})]
    strange += [*(leaf.spread_price.keys() - {spread.name for spread in ties.spreads})]
    rising = (p for more in (*leaf.apart_price.values(), *leaf.spread_price.values()) for p in more.values())
    if strange or min(rising, default=0) < 0:
        raise ValueError(f"prices of {', '.join(strange) or 'a rule, below 0'}")
    prices = Prices(
        weights,
        [leaf.machine_price.get(name, 0) for name in problem.machine],
        [leaf.job_price.get(job.name, 0) for job in problem.instance.jobs],
        {rule: {problem.machine[m]: p for m, p in more.items()} for rule, more in leaf.apart_price.items()},
    )
    tied = np.array(sorted(ties.inside), np.int64)
    ways = _Ways(ties, survey, prices, tied)
    paid = 0
    for spread in ties.spreads:
        for tag, price in leaf.spread_price.get(spread.name, {}).items():
            mask, most = spread.domains[tag]
            if most is None:
                raise ValueError(f"a price of {tag!r} for spread {spread.name!r}, which has no limit there")
            paid += price * most
            ways.charge(spread.tasks, mask, price)
    for choice, value in path:
        ways.choose(choice, value)
    together = ways.least()
    if together is None:
        return None
    without = np.zeros(len(problem.tasks), bool)
    without[tied] = True
    return bound(problem, survey, prices, shares, true=False, without=without) + together - paid


class _Ways:
    """Ways to run or wait of the tied tasks: (k, M) costs of running, where that is allowed, and who may wait."""

    def __init__(self, ties: Ties, survey: Survey, prices: Prices, tied: NDArray[np.int64]) -> None:
        problem, self._ties = ties.problem, ties
        self._row = {t: k for k, t in enumerate(tied.tolist())}
        self._cost, fits = survey.costs(tied, prices)
        self._may = fits & np.array([ties.inside[t] for t in tied.tolist()]).reshape(fits.shape)
        waiting = weighed(problem.waiting, prices.weights, len(problem.tasks))[tied]
        self._wait: list[int | None] = [
            int(cost) + prices.job[problem.tasks[t].job]
            for cost, t in zip(waiting.tolist(), tied.tolist(), strict=True)
        ]

    def charge(self, tasks: list[int], machines: NDArray[np.bool_], price: int) -> None:
        """Let tasks pay on some machines."""
        for t in tasks:
            self._cost[self._row[t], machines] += price

    def choose(self, choice: Choice, value: bool) -> None:
        """Leave only what a choice allows."""
        kind, name, tags = choice
        problem = self._ties.problem
        there = np.ones(len(problem.slots), bool)
        for tag in tags:
            there &= problem.having((tag,))
        if kind == "task":
            tasks = [t for t in self._row if problem.tasks[t].task.name == name]
        else:
            tasks = self._ties.team(kind, name).tasks
        for row in (self._row[t] for t in tasks):
            self._may[row] &= there if value else ~there
            if value and kind != "affinity":
                self._wait[row] = None

    def least(self) -> int | None:
        """Least cost of all tied tasks; None where they have no way left."""
        alone = set(self._row)
        total = 0
        for team in self._ties.teams:
            rows = [self._row[t] for t in team.tasks]
            alone -= set(team.tasks)
            each = [self._run(rows, mask) for _, mask in team.domains]
            wait = [self._wait[row] for row in rows]
            if team.kind == "gang":
                options = [_sum(costs) for costs in (*each, wait)]
            else:
                options = [_sum(_lesser(a, b) for a, b in zip(costs, wait, strict=True)) for costs in (*each, wait)]
            least = min((option for option in options if option is not None), default=None)
            if least is None:
                return None
            total += least
        rows = [self._row[t] for t in alone]
        runs = self._run(rows, np.ones(self._may.shape[1], bool))
        rest = _sum(_lesser(run, self._wait[row]) for run, row in zip(runs, rows, strict=True))
        return None if rest is None else total + rest

    def _run(self, rows: list[int], machines: NDArray[np.bool_]) -> list[int | None]:
        """Least cost of running on some machines, of each row; None where it cannot."""
        may, cost = self._may[rows][:, machines], self._cost[rows][:, machines]
        found = []
        for allowed, costs in zip(may, cost, strict=True):
            found.append(int(costs[allowed].min()) if allowed.any() else None)
        return found


def _lesser(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _sum(costs: Any) -> int | None:
    """Sum, None where any is None."""
    total = 0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total
