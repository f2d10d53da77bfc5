"""Queue schedulers: first come first served, by priority, YARN's fair and capacity queues, GPU count, random, spread.

They consider one task at a time; they are the baselines of the network models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from flowlex.systems.simulation.cluster.policy_interface import (
    Action,
    LiveJob,
    LiveNode,
    LivePlace,
    LiveTask,
    Policy,
    Start,
    State,
)
from flowlex.systems.simulation.policy_registry import policy

#: Rule for a task's place: the free place with the cheapest data access, the node with the fewest running tasks, the
#: node with the most free, the first place, or a random one.
Where = Literal["data", "spread", "most-free", "first", "random"]


def cheapest_place(state: State, task: LiveTask, places: Iterable[LivePlace]) -> LivePlace | None:
    """Return the place that fits with the fastest access to the task's data, the first of ties; None if none fits."""
    if not task.task.reads:
        return next((place for place in places if place.fits(task)), None)
    fitting = [place for place in places if place.fits(task)]
    seconds = state.seconds(task) if fitting else []
    return min(fitting, key=lambda place: (seconds[place.node.number], place.number), default=None)


def start_where_cheapest(state: State, tasks: Iterable[LiveTask]) -> Iterator[Action]:
    """Start tasks in order, each at the place with the fastest access to its data."""
    places = None
    for task in tasks:
        places = state.open_places() if places is None else places
        place = cheapest_place(state, task, places)
        if place is not None:
            yield state.start(task, place)


@dataclass(eq=False)
class Queue(Policy):
    """Take tasks in an order, put each on a place by the rule ``where``."""

    where: Where = "first"

    def tasks(self, state: State) -> Iterable[LiveTask]:
        """Yield the waiting tasks in the order in which they get places, one by one as places are assigned."""
        return state.waiting()

    def decide(self, state: State) -> Iterable[Action]:
        """Go through the queue once; skip tasks that do not fit."""
        self.work = 0.0
        if not state.waiting_count:
            return
        places = state.open_places()
        left = len(places)
        choices: dict[tuple[tuple[str, int], ...], _Choice | None] = {}  # by demand; None: it fits nowhere
        for task in self.tasks(state):
            if not left:
                return
            demand = tuple(sorted(task.task.demand.items()))
            choice = choices[demand] if demand in choices else self._choice(state, task, places)
            if choice is None:  # a demand that did not fit does not fit later in this round
                continue
            self.work += 1.0
            place = choice(task)
            choices[demand] = None if place is None else choice
            if place is not None:
                yield state.start(task, place)
                left -= not place.open

    def _choice(self, state: State, like: LiveTask, places: list[LivePlace]) -> _Choice:
        if self.where == "data":
            return lambda task: cheapest_place(state, task, places)
        if self.where == "first":
            return _first_that_fits(places)
        if self.where == "random":
            return _any_that_fits(state, [place for place in places if place.fits(like)])
        kind = self.where, tuple(sorted(like.task.demand.items()))
        if kind not in state.memory:
            state.memory[kind] = _LeastBusy(state, like, count_tasks=self.where == "spread")
        return state.memory[kind]  # type: ignore[no-any-return]


#: Assigns places to tasks of one demand, one by one. Within a decision, places only fill up, so a rejected place need
#: not be considered again.
_Choice = Callable[[LiveTask], LivePlace | None]


def _first_that_fits(places: list[LivePlace]) -> _Choice:
    at = 0

    def choose(task: LiveTask) -> LivePlace | None:
        nonlocal at
        while at < len(places) and not places[at].fits(task):
            at += 1
        return places[at] if at < len(places) else None

    return choose


def _any_that_fits(state: State, places: list[LivePlace]) -> _Choice:
    seen = len(state.tried)

    def choose(task: LiveTask) -> LivePlace | None:
        nonlocal seen
        for place in {action.place: None for action in state.tried[seen:] if isinstance(action, Start)}:
            if not place.fits(task) and place in places:
                places.remove(place)
        seen = len(state.tried)
        return places[int(state.random.integers(len(places)))] if places else None

    return choose


class _LeastBusy:
    """Chooses a place whose node has the most free on fitting places, minus its running tasks if they count.

    A heap of all places by rank persists between decisions. A place whose node has changed is inserted again; entries
    with an outdated rank are dropped when they reach the top.
    """

    def __init__(self, state: State, like: LiveTask, *, count_tasks: bool) -> None:
        self.state, self.like, self.count_tasks = state, like, count_tasks
        self._list()

    def _list(self) -> None:
        self.seen = len(self.state.changes)
        self.heap = [(self._rank(place.node), place.number) for place in self.state.places]
        heapify(self.heap)

    def _rank(self, node: LiveNode) -> int:
        free = sum(sum(place.free.values()) for place in node.places if place.open and place.fits(self.like))
        return (sum(len(place.tasks) for place in node.places) if self.count_tasks else 0) - free

    def __call__(self, task: LiveTask) -> LivePlace | None:
        if len(self.heap) > 8 * len(self.state.places):
            self._list()
        for node in dict.fromkeys(place.node for place in self.state.changes[self.seen :]):
            rank = self._rank(node)
            for place in node.places:
                heappush(self.heap, (rank, place.number))
        self.seen = len(self.state.changes)
        while self.heap:
            rank, number = self.heap[0]
            place = self.state.places[number]
            if place.node.up and place.fits(task) and rank == self._rank(place.node):
                return place
            heappop(self.heap)
        return None


@policy("cluster", "FIFO")
class Fifo(Queue):
    """First come, first served; later tasks that fit use what is left (backfilling)."""


@policy("cluster", "GPU-count")
@dataclass(eq=False)
class GpuCount(Queue):
    """First come, first served, onto the node with the most free GPUs, wherever the data are (Tang et al. 2022)."""

    where: Where = field(default="most-free", init=False)


@policy("cluster", "random")
@dataclass(eq=False)
class Random(Queue):
    """Waiting tasks in random order, each anywhere it fits."""

    where: Where = field(default="random", init=False)

    def tasks(self, state: State) -> Iterable[LiveTask]:
        """Shuffled."""
        waiting = list(state.waiting())
        return (waiting[k] for k in state.random.permutation(len(waiting)).tolist())


@policy("cluster", "spread")
@dataclass(eq=False)
class Spread(Queue):
    """Docker Swarm's spread: first come, first served, onto the node with the fewest running tasks."""

    where: Where = field(default="spread", init=False)


@policy("cluster", "priority")
@dataclass(eq=False)
class PriorityQueue(Queue):
    """A queue by priority, then arrival, onto the node with the fewest running tasks, as in Kubernetes."""

    where: Where = "spread"
    # whether a task that fits nowhere stops less important ones: on the place where the most important of them is
    # least important, the youngest first
    preempts: bool = False

    def tasks(self, state: State) -> Iterable[LiveTask]:
        """By priority of the job (smaller first); the sort keeps the order of arrival."""
        jobs = sorted(state.waiting_jobs(), key=lambda job: job.job.priority)
        return (task for job in jobs for task in list(job.waiting))

    def decide(self, state: State) -> Iterable[Action]:
        """Go through the queue once; then, if allowed, preempt for tasks that found no place."""
        yield from super().decide(state)
        if not self.preempts:
            return
        given = {action.task for action in state.tried}
        full: set[tuple[int, tuple[tuple[str, int], ...]]] = set()
        for task in self.tasks(state):
            like = task.job.job.priority, tuple(sorted(task.task.demand.items()))
            if task in given or like in full:
                continue

            def may_stop(other: LiveTask, than: LiveTask = task) -> bool:
                return other.job.job.priority > than.job.job.priority and other not in given

            found = places_after_stops(state, task, may_stop)
            best = min(found, key=lambda each: (victims_rank(each[1]), each[0].number), default=None)
            if best is None:
                full.add(like)
                continue
            place, victims = best
            given.update(victims)
            yield from (state.stop(other) for other in victims)
            yield state.start(task, place)


def victims_rank(victims: list[LiveTask]) -> int:
    """Return the negated priority number of the most important victim; smaller means less important victims."""
    return -min(other.job.job.priority for other in victims)


def places_after_stops(
    state: State, task: LiveTask, may_stop: Callable[[LiveTask], bool]
) -> Iterator[tuple[LivePlace, list[LiveTask]]]:
    """Yield places where a task fits if others stop, with these: the least important, then youngest, first."""
    for place in state.places:
        if not place.node.up or any(name not in place.place.capacity for name in task.task.demand):
            continue
        lacking = {name: much - place.free[name] for name, much in task.task.demand.items()}
        victims = []
        below = filter(may_stop, place.tasks)
        for other in sorted(below, key=lambda other: (-other.job.job.priority, -other.started_s, -other.number)):
            if all(much <= 0 for much in lacking.values()):
                break
            victims.append(other)
            lacking = {name: much - other.task.demand.get(name, 0) for name, much in lacking.items()}
        if victims and all(much <= 0 for much in lacking.values()):
            yield place, victims


@dataclass(eq=False)
class _UserQueues(Queue):
    """One queue per user; the user with the smallest rank is served next."""

    where: Where = "data"
    inside: Literal["fifo", "fair"] = "fifo"

    def rank(self, wanted: Mapping[str, int], total: int) -> Callable[[str, int], float]:
        """Return ``rank(user, held)``; smaller is served sooner. ``wanted`` includes what users hold."""
        raise NotImplementedError

    def tasks(self, state: State) -> Iterator[LiveTask]:
        """Choose the next user after every placed task, because shares have changed."""
        held: Counter[LiveJob] = Counter({job: len(job.running) for job in state.jobs.values()})
        queues: _Queues = {}
        used, wanted = Counter[str](), Counter[str]()
        for job in state.jobs.values():
            user = job.job.user
            used[user] += held[job]
            wanted[user] += held[job] + len(job.waiting)
            if job.waiting:
                queues.setdefault(user, {})[job] = list(job.waiting)[::-1]
        rank = self.rank(wanted, sum(sum(place.place.capacity.values()) for place in state.places if place.node.up))
        while queues:
            user = min(queues, key=lambda name: rank(name, used[name]))
            jobs = queues[user]
            job = next(iter(jobs)) if self.inside == "fifo" else min(jobs, key=lambda job: held[job])
            task = jobs[job].pop()
            before = len(state.tried)
            yield task
            if len(state.tried) == before:  # it fits nowhere, and neither do tasks of the same demand
                queues = _without(queues, task)
                continue
            held[job] += 1
            used[user] += 1
            if not jobs[job]:
                del jobs[job]
            if not jobs:
                del queues[user]


_Queues = dict[str, dict[LiveJob, list[LiveTask]]]


def _without(queues: _Queues, like: LiveTask) -> _Queues:
    """Return the queues without tasks of this demand, and without users and jobs that have no tasks left."""
    left: _Queues = {}
    for user, jobs in queues.items():
        for job, tasks in jobs.items():
            kept = [task for task in tasks if task.task.demand != like.task.demand]
            if kept:
                left.setdefault(user, {})[job] = kept
    return left


@policy("cluster", "YARN-fair")
class YarnFair(_UserQueues):
    """The queue furthest below its max-min fair share is served first."""

    def rank(self, wanted: Mapping[str, int], total: int) -> Callable[[str, int], float]:
        """Return the rank: tasks held minus the user's fair share."""
        shares = fair_shares(np.array(list(wanted.values()), np.int64), total)
        share = dict(zip(wanted, shares.tolist(), strict=True))
        return lambda user, held: held - share[user]


@policy("cluster", "YARN-capacity")
@dataclass(eq=False)
class YarnCapacity(_UserQueues):
    """Each queue has a guaranteed share; idle capacity is lent. The lowest use relative to the guarantee goes first."""

    # part of the cluster by user, in any unit; users that are not named share equally (1 each)
    guarantees: Mapping[str, Annotated[float, Field(gt=0)]] | None = None

    def rank(self, wanted: Mapping[str, int], total: int) -> Callable[[str, int], float]:
        """Return the rank: tasks held divided by the guarantee."""
        return lambda user, held: held / (self.guarantees or {}).get(user, 1.0)


def fair_shares(
    demand: np.ndarray[tuple[int], np.dtype[np.int64]], total: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Water filling of ``total`` over the demands."""
    share, left = np.zeros(len(demand)), float(total)
    order = np.argsort(demand, kind="stable")
    for rank, k in enumerate(order.tolist()):
        share[k] = min(float(demand[k]), left / (len(demand) - rank))
        left -= share[k]
    return share
