"""Decision rounds: query the policy, check its actions, and execute them when its decision time has passed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from flowlex.systems.simulation.cluster.policy_interface import Action, LivePlace, LiveTask, Policy, Start, State, Stop
from flowlex.systems.simulation.decision_time import ask
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.event_queue import Kernel, Planned, SimulationError
from flowlex.systems.simulation.policy_registry import Run

#: Order at one time: events, then the round that they trigger, then rates.
ROUND_RANK = 1
#: Most consecutive rounds in which nothing runs or starts and no event is planned.
_IDLE_ROUNDS = 10_000


@dataclass(eq=False)
class Rounds:
    """Determines when a policy decides, and applies its answer."""

    kernel: Kernel
    state: State
    log: RunLog
    run: Run
    policy: Policy  # who decides
    carry_out: Callable[[list[Action]], None]  # gets the actions still valid after the decision time, stops first
    round_s: float  # rounds take place at integer multiples of this; 0: after every event
    count: int = 0
    _idle: int = 0
    _planned: Planned | None = None
    _thinking: bool = False
    _due: bool = False

    def due(self, at_s: float | None = None) -> None:
        """Schedule a decision after an event: now or at the next round."""
        if self._thinking:
            self._due = True
            return
        now_s = self.kernel.now_s
        at_s = now_s if at_s is None else at_s
        if self.round_s:
            at_s = max(math.ceil(at_s / self.round_s) * self.round_s, now_s)
        if self._planned is not None and self._planned.call is not None:
            if self._planned.at_s <= at_s:
                return
            self._planned.cancel()
        self._planned = self.kernel.at(at_s, self._decide, ROUND_RANK)

    def _decide(self) -> None:
        state, self.count = self.state, self.count + 1
        state.now_s = self.kernel.now_s
        waiting, running = state.waiting_count, state.running_count
        if not waiting and not running and not state.news:
            return
        try:
            most = 1000 + 10 * (waiting + running)  # one stop and one start of each are possible
            decide, work = lambda: self.policy.decide(state), lambda: self.policy.work
            answer, seconds = ask(self.run.decision, decide, work, most=most)
        except SimulationError as error:
            raise SimulationError(error.reason, at_s=state.now_s, event=self._event()) from error
        except Exception as error:
            error.add_note(f"the policy was asked at {state.now_s:g} s, {self._event()}")
            raise
        finally:
            state.forget_tries()
        state.news.clear()
        actions = self._checked(answer)
        starts = sum(isinstance(action, Start) for action in actions)
        self._count_idle(bool(actions) or bool(running))
        proven = {} if self.policy.proven is None else {"proven": self.policy.proven}
        self.log.add(
            state.now_s,
            "round",
            number=self.count,
            waiting=waiting,
            running=running,
            starts=starts,
            stops=len(actions) - starts,
            seconds=seconds,
            **proven,
        )
        if not seconds:
            self._act(actions)
            return
        self._thinking = True
        self.kernel.after(seconds, lambda: self._act(self._still_possible(actions)), ROUND_RANK)

    def _act(self, actions: list[Action]) -> None:
        self._thinking = False
        if actions:
            self.carry_out(actions)
        if self._due:
            self._due = False
            self.due()
        again_s, state = self.policy.again_s, self.state
        if again_s is not None and (state.waiting_count or (self.policy.rotates and state.running_count)):
            self.due(self.kernel.now_s + again_s)

    def _count_idle(self, alive: bool) -> None:
        self._idle = 0 if alive or math.isfinite(self.kernel.next_s()) else self._idle + 1
        if self._idle > _IDLE_ROUNDS:
            raise SimulationError(
                f"nothing runs, and the policy started nothing in {_IDLE_ROUNDS} rounds though tasks wait",
                at_s=self.state.now_s,
                event=self._event(),
            )

    def _event(self) -> str:
        return f"round {self.count} of policy {type(self.policy).__name__}"

    def _refuse(self, reason: str) -> SimulationError:
        return SimulationError(reason, at_s=self.state.now_s, event=self._event())

    def _checked(self, answer: list[Action]) -> list[Action]:
        """Return the actions, stops first; each must be possible after those before it.

        Raises `SimulationError`: the policy answers nonsense.
        """
        stops = [action for action in answer if isinstance(action, Stop)]
        starts = [action for action in answer if isinstance(action, Start)]
        if len(stops) + len(starts) != len(answer):
            odd = next(action for action in answer if not isinstance(action, Stop | Start))
            raise self._refuse(f"it answers {odd!r}, which is neither Start nor Stop")
        stopped: dict[LiveTask, None] = {}
        freed: dict[LivePlace, dict[str, int]] = {}
        for stop in stops:
            task = stop.task
            if task.place is None or task in stopped:
                raise self._refuse(f"it stops task {task.name!r}, which {self._condition(task, stopped)}")
            stopped[task] = None
            self._count(freed, task.place, task, 1)
        started: set[LiveTask] = set()
        judged: set[LivePlace] = set()
        for start in starts:
            task, place = start.task, start.place
            if task in started:
                raise self._refuse(f"it starts task {task.name!r} twice; a task runs on one place")
            if task not in task.job.waiting and task not in stopped:
                raise self._refuse(f"it starts task {task.name!r}, which {self._condition(task, stopped)}")
            if not place.node.up:
                raise self._refuse(f"it starts task {task.name!r} on {place.name!r}, whose node is down")
            if place not in judged:
                self._refuse_booked(place)
                judged.add(place)
            self._count(freed, place, task, -1)
            for name in task.task.demand:
                if place.free.get(name, 0) + freed[place][name] < 0:
                    held = ", ".join(repr(other.name) for other in place.tasks) or "nobody"
                    reason = f"it starts task {task.name!r} on {place.name!r}, which has too little {name} free"
                    raise self._refuse(f"{reason} (held by {held}, and by what this answer starts there)")
            started.add(task)
        return [*stops, *starts]

    def _refuse_booked(self, place: LivePlace) -> None:
        """Reject a policy that changed a place's records itself: it would start more or less than fits."""
        for name, truly in place.unheld().items():
            says = place.free.get(name, 0)
            if says != truly:
                reason = f"it booked {place.name!r} by hand: {says} {name} are noted as free, its tasks leave {truly}"
                raise self._refuse(f"{reason}; leave place.hold and place.free alone, state.start does both")

    @staticmethod
    def _count(freed: dict[LivePlace, dict[str, int]], place: LivePlace, task: LiveTask, sign: int) -> None:
        amounts = freed.setdefault(place, {})
        for name, much in task.task.demand.items():
            amounts[name] = amounts.get(name, 0) + sign * much

    @staticmethod
    def _condition(task: LiveTask, stopped: dict[LiveTask, None]) -> str:
        if task in stopped:
            return "this answer has stopped already"
        if task.place is not None:
            return f"runs already on {task.place.name!r}"
        if task.made_on is not None:
            return "has ended"
        return "waits" if task in task.job.waiting else "cannot start: its data are not made, or its job is not here"

    def _still_possible(self, actions: list[Action]) -> list[Action]:
        """Return the actions that are still possible after the decision time; log and drop the others."""
        kept: list[Action] = []
        stopped: dict[LiveTask, None] = {}
        freed: dict[LivePlace, dict[str, int]] = {}
        for action in actions:
            task = action.task
            if isinstance(action, Stop):
                possible = task.place is not None
                if possible and task.place is not None:
                    stopped[task] = None
                    self._count(freed, task.place, task, 1)
            else:
                place = action.place
                room = freed.get(place, {})
                demand = task.task.demand.items()
                possible = place.node.up and (task in task.job.waiting or task in stopped)
                possible &= all(place.free.get(name, 0) + room.get(name, 0) >= much for name, much in demand)
                if possible:
                    self._count(freed, place, task, -1)
            if possible:
                kept.append(action)
            else:
                self.log.add(self.kernel.now_s, "too-late", task=task.name)
        return kept
