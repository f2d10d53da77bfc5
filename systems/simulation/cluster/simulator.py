"""Simulator: jobs arrive, tasks read and compute, nodes fail and return; a policy assigns tasks to places."""

from __future__ import annotations

import gc
import math
from collections import Counter, deque
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from flowlex.systems.simulation.cluster.decision_rounds import Rounds
from flowlex.systems.simulation.cluster.input_transfers import InputData
from flowlex.systems.simulation.cluster.policy_interface import (
    Action,
    LiveJob,
    LiveNode,
    LiveTask,
    Policy,
    Start,
    State,
    Stop,
)
from flowlex.systems.simulation.cluster_workload import ClusterWorkload
from flowlex.systems.simulation.decision_time import Each
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.event_queue import Kernel, Planned, SimulationError
from flowlex.systems.simulation.policy_registry import Run, checked
from flowlex.systems.simulation.random_streams import Streams

_RATE_RANK = 2
#: Allocations between two garbage collections: nearly all objects of a run stay alive, and scanning them takes a
#: quarter of the time.
_ALLOCATED = 50_000
_Chance = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class ClusterParameters:
    """Parameters that a scenario may set."""

    round_s: _Seconds = 0.0  # rounds happen at whole multiples of this; 0: whenever something has happened
    fail: _Chance = 0.0  # chance that an attempt of a task fails while it computes
    most_attempts: Annotated[int, Field(ge=1)] = 4  # a job is given up when one of its tasks failed so often
    certify: Each = 1  # check the rates of transfers by their definition every n-th time that they change; 0: never
    most_events: Annotated[int, Field(ge=1)] = 20_000_000  # the run ends with an error after so many


class ClusterRun:
    """One run.

    ``workload``: cluster and jobs. ``policy``: the policy. ``run``: seed, horizon, decision time, parameters.
    """

    def __init__(self, workload: ClusterWorkload, policy: Policy, run: Run) -> None:
        self.run = run
        self.parameters: ClusterParameters = ClusterParameters(
            **checked(ClusterParameters, run.parameters, "parameters")
        )
        self.streams: Streams = Streams(run.seed)
        self.kernel: Kernel = Kernel()
        units: Counter[str] = Counter()
        for place in workload.places:
            units.update(place.capacity)
        header = {"simulator": "cluster", "workload": workload.fingerprint, "seed": run.seed, "units": dict(units)}
        self.log: RunLog = RunLog(header)
        self.state: State = State(workload, self.streams.of("policy"))
        self.reading: InputData = InputData(self.state, self.log, self._compute, certify=self.parameters.certify)
        self.rounds: Rounds = Rounds(
            self.kernel, self.state, self.log, run, policy, self._carry_out, self.parameters.round_s
        )
        self.queue: deque[LiveJob] = deque()
        self.computing: dict[LiveTask, Planned] = {}
        self._sharing: Planned | None = None
        self._next: Planned | None = None
        self._left, self._admitted = len(workload.jobs), 0
        number = 0
        for position, job in enumerate(workload.jobs):
            live = LiveJob(job, position)
            for task in job.tasks:
                live.tasks.append(LiveTask(task, live, number))
                number += 1
            _link(live)
            self._plan(job.arrival_s, lambda live=live: self._submit(live))
        for node in self.state.nodes:
            for outage in node.node.outages:
                self._plan(outage.from_s, lambda node=node: self._down(node))
                if outage.until_s is not None:
                    self._plan(outage.until_s, lambda node=node: self._up(node))

    def simulate(self) -> RunLog:
        """Run the simulation.

        Raises `SimulationError`: the policy answers nonsense, or nothing more can happen though tasks are left.
        """
        limits = gc.get_threshold()
        gc.set_threshold(_ALLOCATED, *limits[1:])
        try:
            return self._run()
        finally:
            gc.set_threshold(*limits)

    def _run(self) -> RunLog:
        horizon = math.inf if self.run.horizon_s is None else self.run.horizon_s
        while self._left and self.kernel.next_s() <= horizon and self.kernel.step():
            if self.kernel.events > self.parameters.most_events:
                reason = f"over {self.parameters.most_events} events; raise most_events if the run is that long"
                raise SimulationError(reason, at_s=self.kernel.now_s)
        if self._left and not math.isfinite(horizon):
            raise self._stuck()
        if self._left:
            self.state.now_s = self.kernel.now_s = horizon
            self._move()
            for task in list(self.reading.fetches):
                self.reading.abort(task)  # so that the log has all transferred bytes
        self.log.add(self.kernel.now_s, "over", jobs_left=self._left, events=self.kernel.events)
        return self.log

    def _stuck(self) -> SimulationError:
        now_s = self.kernel.now_s
        for task in self.reading.stalled():
            return SimulationError(f"task {task.name!r} waits for data whose nodes are down for good", at_s=now_s)
        waiting = [task.name for task in self.state.waiting()]
        reason = f"nothing runs and nothing will happen, yet {len(waiting)} tasks wait ({waiting[0]!r} first)"
        return SimulationError(f"{reason}; the policy starts none of them", at_s=now_s, event="end")

    # Time ------------------------------------------------------------------------------------------------------
    def _plan(self, at_s: float, call: object) -> Planned:
        """Plan an event; before it, transfers are advanced to its time."""

        def happen() -> None:
            self.state.now_s = self.kernel.now_s
            self._move()
            call()  # type: ignore[operator]

        return self.kernel.at(at_s, happen)

    def _move(self) -> None:
        for transfer in self.reading.transfers.advance(self.kernel.now_s):
            self._rates_change()
            transfer.done()

    def _rates_change(self) -> None:
        if self._sharing is None:
            self._sharing = self.kernel.after(0.0, self._share, _RATE_RANK)

    def _share(self) -> None:
        self._sharing = None
        if self._next is not None:
            self._next.cancel()
        seconds = self.reading.transfers.share()
        self._next = self._plan(self.kernel.now_s + seconds, lambda: None) if math.isfinite(seconds) else None

    # Jobs ------------------------------------------------------------------------------------------------------
    def _submit(self, job: LiveJob) -> None:
        self.log.add(self.state.now_s, "submit", job=job.name, user=job.job.user)
        self.queue.append(job)
        self._admit()

    def _admit(self) -> None:
        """Admit queued jobs, up to the number that may run at once."""
        most = self.state.workload.jobs_at_once
        while self.queue and (most is None or len(self.state.jobs) < most):
            job = self.queue.popleft()
            self.state.jobs[job.name], job.admitted = job, self._admitted
            self._admitted += 1
            self.state.news.append(("submitted", job))
            self.log.add(self.state.now_s, "admit", job=job.name)
            for task in job.tasks:
                if not task.missing:
                    self._ready(task)
            self.rounds.due()

    def _finish(self, job: LiveJob, event: str) -> None:
        del self.state.jobs[job.name]
        self.state.news.append(("finished", job))
        self.log.add(self.state.now_s, event, job=job.name)
        self._left -= 1
        self._admit()

    def _give_up(self, job: LiveJob) -> None:
        for task in list(job.running):
            self._halt(task, "given up")
            self.state.news.append(("failed", task))
        for task in list(job.waiting):
            self._withdraw(task)
        self._finish(job, "give-up")

    # Tasks -----------------------------------------------------------------------------------------------------
    def _ready(self, task: LiveTask) -> None:
        self.state.wait(task)
        self.state.news.append(("ready", task))
        self.log.add(self.state.now_s, "ready", task=task.name, job=task.job.name)

    def _withdraw(self, task: LiveTask) -> None:
        """Withdraw a waiting task that can no longer start: its data are lost, or its job is given up."""
        self.state.wait_no_more(task)
        self.state.news.append(("withdrawn", task))
        self.log.add(self.state.now_s, "withdraw", task=task.name, job=task.job.name)

    def _may_run(self, task: LiveTask) -> None:
        """Make a task ready if nothing is missing and it neither runs nor has ended."""
        if not task.missing and task.place is None and task.made_on is None:
            self._ready(task)

    def _carry_out(self, actions: list[Action]) -> None:
        self.state.now_s = self.kernel.now_s
        self._move()
        for action in actions:
            if isinstance(action, Stop):
                self._halt(action.task, "policy")
                self._may_run(action.task)
        for action in actions:
            if isinstance(action, Start):
                self._start(action)

    def _start(self, action: Start) -> None:
        task, place = action.task, action.place
        self.state.wait_no_more(task)
        task.job.running[task] = None
        self.state.running_count += 1
        task.place, task.started_s = place, self.state.now_s
        place.tasks[task] = None
        place.hold(task)
        self.log.add(
            self.state.now_s,
            "start",
            task=task.name,
            job=task.job.name,
            place=place.name,
            node=place.node.name,
            units=dict(task.task.demand),
        )
        self.reading.begin(task)
        self._rates_change()

    def _compute(self, task: LiveTask) -> None:
        """Start the computation of a task whose data are complete."""
        assert task.place is not None
        seconds = task.left * task.seconds_on(task.place.node)
        task.computing = self.state.now_s, seconds
        self.log.add(self.state.now_s, "compute", task=task.name, seconds=seconds)
        if self.parameters.fail:
            chance, part = self.streams.of(f"failure of {task.name}").random(2)
            if chance < self.parameters.fail:
                self.computing[task] = self._plan(self.state.now_s + seconds * part, lambda: self._fail(task))
                return
        self.computing[task] = self._plan(self.state.now_s + seconds, lambda: self._end(task))

    def _release(self, task: LiveTask) -> None:
        place = task.place
        assert place is not None
        task.place = task.computing = None
        del place.tasks[task], task.job.running[task]
        self.state.running_count -= 1
        place.hold(task, -1)
        planned = self.computing.pop(task, None)
        if planned is not None:
            planned.cancel()
        self.rounds.due()

    def _halt(self, task: LiveTask, why: str) -> None:
        """Stop a task before its end; it then has no place."""
        self.reading.abort(task)
        lost_s = self.state.now_s - task.started_s
        if task.task.keeps:
            task.left = task.left_at(self.state.now_s)
            lost_s = lost_s if task.computing is None else task.computing[0] - task.started_s
        self._release(task)
        self._rates_change()
        self.log.add(self.state.now_s, "stop", task=task.name, job=task.job.name, why=why, lost_s=lost_s)

    def _fail(self, task: LiveTask) -> None:
        self._halt(task, "failed")
        self.state.news.append(("failed", task))
        task.failures += 1
        if task.failures >= self.parameters.most_attempts:
            self._give_up(task.job)
        else:
            self._may_run(task)

    def _end(self, task: LiveTask) -> None:
        assert task.place is not None
        node = task.place.node
        self._release(task)
        task.made_on = node
        self.state.news.append(("ended", task))
        ideal_s = task.task.compute_s / max([1.0, *task.task.fast.values()])
        ideal_s += sum(read.size_mb for read in task.task.reads) / self.state.nominal[0]
        self.log.add(self.state.now_s, "end", task=task.name, job=task.job.name, ideal_s=ideal_s)
        task.job.left -= 1
        for other in task.needed_by:
            other.missing -= 1
            self._may_run(other)
        if not task.job.left:
            self._finish(task.job, "finish")

    # Nodes -----------------------------------------------------------------------------------------------------
    def _down(self, node: LiveNode) -> None:
        node.up = False
        self.state.changes += node.places
        self.state.news.append(("down", node))
        self.log.add(self.state.now_s, "down", node=node.name)
        for place in node.places:
            for task in list(place.tasks):
                self._halt(task, "node down")
                self.state.news.append(("failed", task))
                self._may_run(task)
        for job in list(self.state.jobs.values()):
            for task in reversed(job.tasks):  # a lost task needs its inputs again
                gone = task.made_on is not None and not task.made_on.up
                if gone and any(other.made_on is None for other in task.needed_by):
                    self._lose(task)
        self.reading.node_down(node)
        self._rates_change()
        self.rounds.due()

    def _lose(self, task: LiveTask) -> None:
        """Handle the loss of an output that is still needed: its task must run again, and the consumers wait."""
        self.log.add(self.state.now_s, "lost", task=task.name, job=task.job.name)
        task.made_on, task.left = None, 1.0
        task.job.left += 1
        for other in task.needed_by:
            other.missing += 1
            if other.place is not None and other in self.reading.fetches:
                self._halt(other, "data lost")
                self.state.news.append(("failed", other))
            if other in other.job.waiting:
                self._withdraw(other)
        self._may_run(task)

    def _up(self, node: LiveNode) -> None:
        node.up = True
        self.state.changes += node.places
        self.state.news.append(("up", node))
        self.log.add(self.state.now_s, "up", node=node.name)
        self.reading.node_up()
        self._rates_change()
        self.rounds.due()


def _link(job: LiveJob) -> None:
    """Set the predecessors and successors of each task."""
    by_name = {task.name: task for task in job.tasks}
    for task in job.tasks:
        names = dict.fromkeys([*task.task.after, *(read.task for read in task.task.reads if read.task is not None)])
        task.needs = tuple(by_name[name] for name in names)
        task.missing = len(task.needs)
        for other in task.needs:
            other.needed_by.append(task)
