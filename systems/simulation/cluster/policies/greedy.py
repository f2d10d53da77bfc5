"""GS, GSP, GSD: greedy baselines of the GPU-assignment paper, over time; and Alsched's greedy by utility.

Source: Tang et al. 2022 (algorithm 1: all free GPUs are offered to the job that uses the fewest, which takes its
cheapest pair of task and GPU); delay scheduling after Zaharia et al., EuroSys 2010.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from flowlex.systems.simulation.cluster.policies.gpu_assignment import GPU, on_gpu
from flowlex.systems.simulation.cluster.policies.queues import start_where_cheapest
from flowlex.systems.simulation.cluster.policy_interface import Action, LiveJob, LivePlace, LiveTask, Policy, State
from flowlex.systems.simulation.policy_registry import policy

_Limit = Annotated[float, Field(ge=0)]


@policy("cluster", "GS")
class Greedy(Policy):
    """While a GPU is free, the job that uses the fewest starts its cheapest task that may start there."""

    def decide(self, state: State) -> Iterable[Action]:
        """Offer GPUs until no job takes one."""
        yield from start_where_cheapest(state, (task for task in state.waiting() if not on_gpu(task)))
        yield from self._offer(state, frozenset())

    def _offer(self, state: State, barred: frozenset[LiveTask]) -> Iterator[Action]:
        free = [place for place in state.open_places() if place.free.get(GPU, 0) > 0]
        held = Counter({job: sum(map(on_gpu, job.running)) for job in state.jobs.values()})
        for task in barred:
            held[task.job] -= 1
        wanting = {
            job: {task: state.seconds(task) for task in job.waiting if on_gpu(task)} for job in state.jobs.values()
        }
        self.work = float(sum(map(len, wanting.values())) * len(free))
        while free:
            for job in sorted(held, key=lambda job: (held[job], job.number)):
                pair = self._choose(state, job, wanting[job], free, held[job])
                if pair is not None:
                    break
            else:
                return
            task, place = pair
            yield state.start(task, place)
            held[job] += 1
            del wanting[job][task]
            if not place.free[GPU]:
                free.remove(place)

    def _choose(
        self, state: State, job: LiveJob, wanting: dict[LiveTask, list[float]], free: list[LivePlace], held: int
    ) -> tuple[LiveTask, LivePlace] | None:
        """Return the job's cheapest pair of task and free GPU; ties go to the first."""
        pairs = (
            (seconds[place.node.number], task, place)
            for task, seconds in wanting.items()
            for place in free
            if place.fits(task)
        )
        best = min(pairs, key=lambda pair: pair[0], default=None)
        return None if best is None else best[1:]


def base_share(state: State, job: LiveJob) -> int:
    """``min(floor(Q / K), N_j)`` for Q GPUs that are up, K jobs and the job's N_j tasks that run or wait."""
    gpus = sum(place.place.capacity.get(GPU, 0) for place in state.places if place.node.up)
    mine = sum(map(on_gpu, job.running)) + sum(map(on_gpu, job.waiting))
    return min(gpus // max(len(state.jobs), 1), mine)


@policy("cluster", "GSP")
class PreemptiveGreedy(Greedy):
    """GS, after jobs above their base share lose shortest-running tasks, as many as the jobs below it lack."""

    def decide(self, state: State) -> Iterable[Action]:
        """Stop, then offer."""
        yield from start_where_cheapest(state, (task for task in state.waiting() if not on_gpu(task)))
        share = {job: base_share(state, job) for job in state.jobs.values()}
        held = {job: sum(map(on_gpu, job.running)) for job in share}
        free = sum(place.free.get(GPU, 0) for place in state.open_places())
        lacking = sum(max(share[job] - held[job], 0) for job in share) - free
        stopped: list[LiveTask] = []
        running = [task for task in state.running() if on_gpu(task)]
        for task in sorted(running, key=lambda task: (-task.started_s, -task.number)):
            if lacking > 0 and held[task.job] > share[task.job]:
                held[task.job] -= 1
                lacking -= 1
                stopped.append(task)
                yield state.stop(task)
        yield from self._offer(state, frozenset(stopped))


@policy("cluster", "GSD")
@dataclass(eq=False)
class Delay(Greedy):
    """Delay scheduling: a job that cannot get its cheapest locality level (node, rack, any) skips offers for a while.

    Its counter starts at ``base share - running`` and grows by one with each skipped offer. Above ``first`` the job
    accepts the second level, above ``second`` any. The counter is reset when the job gets its preferred level.
    """

    # the thresholds, in offers (not given in the paper)
    first: _Limit = 5.0
    second: _Limit = 10.0
    again_s: Annotated[float, Field(gt=0)] = 1.0  # seconds between offers while tasks wait

    def __post_init__(self) -> None:
        if self.second < self.first:
            raise ValueError(f"the thresholds must not fall, got {self.first} and {self.second}")
        self.skipped: Counter[str] = Counter()
        self._asked: set[str] = set()

    def decide(self, state: State) -> Iterable[Action]:
        """Decide as GS; a job skips at most once per round."""
        self._asked.clear()
        yield from super().decide(state)

    def _choose(
        self, state: State, job: LiveJob, wanting: dict[LiveTask, list[float]], free: list[LivePlace], held: int
    ) -> tuple[LiveTask, LivePlace] | None:
        if not wanting:
            return None
        patience = self.skipped[job.name] + max(base_share(state, job) - held, 0)
        allowed = 0 if patience <= self.first else 1 if patience <= self.second else 2
        best: tuple[float, LiveTask, LivePlace] | None = None
        for task, seconds in wanting.items():
            levels = sorted(set(seconds))
            limit = levels[min(allowed, len(levels) - 1)] if allowed < 2 else levels[-1]
            for place in free:
                cost = seconds[place.node.number]
                if cost <= limit and (best is None or cost < best[0]) and place.fits(task):
                    best = (cost, task, place)
        if best is None:
            if job.name not in self._asked:
                self._asked.add(job.name)
                self.skipped[job.name] += 1
            return None
        if best[0] <= min(wanting[best[1]]):
            self.skipped[job.name] = 0
        return best[1:]


@policy("cluster", "Alsched")
class Alsched(Policy):
    """Greedy by utility of soft constraints: in order of arrival, each task takes the free place of highest utility.

    Utility decreases with the number of labels in the task's ``slow`` that the place lacks.
    """

    def decide(self, state: State) -> Iterable[Action]:
        """One pass over the queue."""
        places = state.open_places()
        self.work = 0.0
        for task in state.waiting():
            self.work += float(len(places))
            fitting = [place for place in places if place.fits(task)]
            if fitting:
                yield state.start(task, max(fitting, key=lambda place: (_utility(task, place), -place.number)))


def _utility(task: LiveTask, place: LivePlace) -> float:
    return -sum(factor for label, factor in task.task.slow.items() if label not in place.node.labels)
