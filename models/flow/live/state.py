"""The cluster of the flow scheduler, kept in step with the live network."""

from __future__ import annotations

from dataclasses import replace

from flowlex.instances.flow import FlowJob, Machine
from flowlex.models.base import ModelError
from flowlex.models.flow.claims import places_of, rule_of
from flowlex.models.flow.live.known import EventError, LiveJob, LiveTask
from flowlex.models.flow.live.priced import PricedState

__all__ = ["LiveState"]


class LiveState(PricedState):
    """Every change here goes to the network at once, the optimum waits for a step."""

    def put_machine(self, machine: Machine) -> None:
        """Add a machine."""
        if machine.capacity:
            raise EventError(
                f"machine {machine.name!r} has a capacity; the live scheduler counts slots only. Solve the cluster "
                "as an instance (flowlex solve, model_for), or leave the capacity out and give slots of a fitting size"
            )
        costs = self.slot_costs(machine)
        self.cluster.add(machine)
        self.slots += machine.slots
        self.note_machines()
        self.network.add_machine(machine.name, costs)
        try:
            self._reprice_around(machine.name)
        except ModelError:  # what a task costs there exceeds the limit
            self.take_machine(machine.name)
            raise

    def take_machine(self, name: str) -> None:
        """Take a machine out."""
        self.slots -= self.cluster.machines[name].slots
        self.cluster.remove(name)
        self.note_machines()
        self._reprice_around(name)
        self.network.remove_machine(name)

    def note_machines(self) -> None:
        """Shares depend on the machines, which have changed."""
        if self.claims is not None:
            self.claims.changed_machines()

    def _reprice_around(self, machine: str) -> None:
        """Reprice the tasks whose arcs depend on whether a machine is there."""
        for name in {**self._mentions.get(machine, {}), **self._on.get(machine, {})}:
            self.reprice(self.tasks[name])

    def put_job(self, job: FlowJob) -> None:
        """Add a job with all its tasks; a refused cost leaves nothing behind."""
        if len(self.tasks) + len(job.tasks) > self.task_limit:
            raise EventError(f"job {job.name!r}: there would be more than {self.task_limit} tasks; raise task_limit")
        if job.queue is not None and all(queue.name != job.queue for queue in self.queues):
            raise EventError(f"job {job.name!r} is in queue {job.queue!r}, which does not exist; see set_queues")
        rule = job.different_machines or ""
        present = self._apart.get(rule, {})
        apart = rule if len(present) + len(job.tasks) > 1 else ""
        views = [LiveTask(task, job.name, job.priority, None, 0.0, task.costs, apart) for task in job.tasks]
        priced = [(view, *self._priced(view)) for view in views]
        live = LiveJob(job, dict.fromkeys(task.name for task in job.tasks))
        self.jobs[job.name] = live
        if self.claims is not None:
            self.claims.put(job, [rule_of(self.rules, view) for view in views])
        self.network.set_job(job.name, self.bounds(live, 0, len(views)))
        for view, offers, wait in priced:
            name = view.task.name
            self.tasks[name] = view
            self.network.add_task(name, job.name, offers, wait)
            self._mention(name, view)
            self.fresh[name] = None
        if rule:
            for name in present if apart else ():
                self._keep_apart(self.tasks[name], rule)
            self._apart.setdefault(rule, {}).update(live.tasks)

    def _keep_apart(self, task: LiveTask, rule: str) -> None:
        """A task is no longer alone with its rule."""
        if not task.apart:
            task.apart = rule
            self.reprice(task)

    def take_task(self, name: str) -> None:
        """Take a task out, and its job with the last one."""
        task = self.tasks.pop(name)
        job = self.jobs[task.job]
        self.network.remove_task(name)
        for machine in task.mentions:
            del self._mentions[machine][name]
            if not self._mentions[machine]:
                del self._mentions[machine]
        if task.machine is not None:
            self.running -= 1
            del self._on[task.machine][name]
        self.clock.stop(name)
        self.fresh.pop(name, None)
        rule = job.job.different_machines
        if rule:
            del self._apart[rule][name]
            if not self._apart[rule]:
                del self._apart[rule]
                self.network.forget(rule)
        del job.tasks[name]
        if self.claims is not None:
            self.claims.lose(task.job, rule_of(self.rules, task))
        if not job.tasks:
            if self.claims is not None:
                self.claims.take(task.job)
            self.network.remove_job(task.job)
            del self.jobs[task.job]

    def settle(self, name: str, machine: str | None) -> None:
        """Note where a task runs from now on."""
        task = self.tasks[name]
        if task.machine is not None:
            self.running -= 1
            del self._on[task.machine][name]
            self.clock.stop(name)
        task.machine, task.started_s, task.elapsed_s = machine, self.now_s, 0.0
        if machine is not None:
            self.running += 1
            self._on.setdefault(machine, {})[name] = None
            self.clock.start(name, self.now_s)
        if self.clock.matters:
            self.reprice(task, placed=True)

    def resume(self, name: str, machine: str, started_s: float) -> None:
        """Let a task count as running on a machine since then; a step moves it only for a gain."""
        self.settle(name, machine)
        task = self.tasks[name]
        task.started_s = started_s
        self.clock.stop(name)
        self.clock.start(name, started_s)
        self.reprice(task)
        self.network.tasks[name].machine = machine

    def prioritise(self, job: LiveJob, priority: int) -> None:
        """Make a job more or less important; a refused cost leaves all as before."""
        try:
            self._prioritise(job, priority)
        except ModelError:
            self._prioritise(job, job.job.priority)
            raise
        job.job = job.job.model_copy(update={"priority": priority})
        self.refresh_job(job)

    def _prioritise(self, job: LiveJob, priority: int) -> None:
        for name in job.tasks:
            self.tasks[name].priority = priority
            self.reprice(self.tasks[name])

    def replace_machine(self, machine: Machine) -> None:
        """Give a machine other labels or another rack; a refused cost leaves it as it was. What runs there stays."""
        old = self.cluster.machines[machine.name]
        self.take_machine(machine.name)
        try:
            self.put_machine(machine)
        except ModelError:
            self.put_machine(old)
            raise

    def update_bounds(self) -> None:
        """Bring the bounds of jobs up to the present shares; without shares nothing depends on the others."""
        if self.rules.shares is None or self.claims is None:
            return
        for name, low, high in self.claims.changed(self.rules.shares, lambda used: places_of(self.cluster, used)):
            self.network.set_job(name, self.bounds(self.jobs[name], low, high))

    def refresh_job(self, job: LiveJob) -> None:
        """Bring one job's costs up to its priority."""
        old = self.network.jobs[job.job.name].bounds
        new = self.bounds(job, 0, 0)
        self.network.set_job(job.job.name, replace(old, wait_cost=new.wait_cost, short_cost=new.short_cost))
