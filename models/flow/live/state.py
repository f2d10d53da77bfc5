"""The cluster of the flow scheduler, kept in step with the live network."""

from __future__ import annotations

from flowlex.instances.flow import FlowJob, Machine
from flowlex.models.base import ModelError
from flowlex.models.flow.goals.base import TaskView
from flowlex.models.flow.live.costs import StateWithCosts
from flowlex.models.flow.live.records import EventError, LiveJob, LiveTask
from flowlex.models.flow.live.task_ages import elapsed_s
from flowlex.models.flow.preemption import HOUR_S, kept_tasks
from flowlex.models.flow.share_claims import places_of, rule_of

__all__ = ["LiveState"]


class LiveState(StateWithCosts):
    """Every change here goes to the network at once, the optimum waits for a step."""

    def put_machine(self, machine: Machine) -> None:
        """Add a machine."""
        self.side_constraints.check_machine(machine)
        self.refuse_slots(machine.name, machine.slots)
        costs = self.slot_costs(machine)
        self.cluster.add(machine)
        self.side_constraints.put_machine(machine)
        self.slots += machine.slots
        self.note_machines()
        self.network.add_machine(machine.name, costs)
        self.doubt(machine.name)
        try:
            self._reprice_around(machine.name)
        except ModelError:  # what a task costs there exceeds the limit
            self.take_machine(machine.name)
            raise

    def take_machine(self, name: str) -> None:
        """Take a machine out."""
        self.slots -= self.cluster.machines[name].slots
        self.side_constraints.take_machine(self.cluster.machines[name])
        self.cluster.remove(name)
        self.note_machines()
        self.doubt(name)
        self._reprice_around(name)
        self.network.remove_machine(name)

    def note_machines(self) -> None:
        """Shares, and gangs that find no room, depend on the machines, which have changed."""
        self._frozen = None
        self.side_constraints.changed_slots()
        if self.claims is not None:
            self.claims.changed_machines()

    def _reprice_around(self, machine: str) -> None:
        """Reprice the tasks whose arcs depend on whether a machine is there."""
        each = self.rules.asks_each
        for name in self.tasks if each else {**self._named_in_costs.get(machine, {}), **self._on.get(machine, {})}:
            self.reprice(self.tasks[name])
        if each and self.claims is not None:
            self.recompute_claims()

    def put_job(self, job: FlowJob) -> None:
        """Add a job with all its tasks; a refused cost leaves nothing behind."""
        if len(self.tasks) + len(job.tasks) > self.task_limit:
            raise EventError(f"job {job.name!r}: there would be more than {self.task_limit} tasks; raise task_limit")
        if job.queue is not None and all(queue.name != job.queue for queue in self.queues):
            raise EventError(f"job {job.name!r} is in queue {job.queue!r}, which does not exist; see set_queues")
        self.side_constraints.refuse_job(job)
        rule = job.different_machines or ""
        present = self._apart.get(rule, {})
        apart = rule if len(present) + len(job.tasks) > 1 else ""
        cost, limited = job.preempt_cost, job.preemptions_per_hour is not None
        views = [LiveTask(t, job.name, job.priority, None, 0.0, t.costs, apart, cost, limited) for t in job.tasks]
        priced = [(view, *self._priced(view)) for view in views]
        # How long ago tasks were preempted is a matter of the clock from now on.
        lasting = job.model_copy(update={"preempted_s": ()})
        live = LiveJob(lasting, dict.fromkeys(task.name for task in job.tasks), (0, len(views)))
        self.jobs[job.name] = live
        if limited:
            self._note_preempted(live, [self.now_s - age for age in job.preempted_s])
        if self.claims is not None:
            self.claims.put(job, [rule_of(self.rules, view, self.cluster) for view in views])
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
            del self._named_in_costs[machine][name]
            if not self._named_in_costs[machine]:
                del self._named_in_costs[machine]
        if task.machine is not None:
            self.running -= 1
            del self._on[task.machine][name]
            self.doubt(task.machine)
            self._release(task)
        self.ages.stop(name)
        self.fresh.pop(name, None)
        self.side_constraints.forget(name, task.job)
        rule = job.job.different_machines
        if rule:
            del self._apart[rule][name]
            if not self._apart[rule]:
                del self._apart[rule]
                self.network.forget(rule)
        del job.tasks[name]
        if self.claims is not None:
            self.claims.lose(task.job, lambda: rule_of(self.rules, task, self.cluster))
        if not job.tasks:
            if self.claims is not None:
                self.claims.take(task.job)
            self.network.remove_job(task.job)
            del self.jobs[task.job]
            if self.limits or self._gates or self._spent:
                for jobs in (self.limits, self._gates, self._spent):
                    jobs.pop(task.job, None)

    def settle(self, name: str, machine: str | None) -> None:
        """Note where a task runs from now on."""
        task = self.tasks[name]
        if task.machine is not None:
            self.running -= 1
            del self._on[task.machine][name]
            self.ages.stop(name)
            self.doubt(task.machine)
            if self._release(task) and machine is None:
                live = self.jobs[task.job]
                self._note_preempted(live, [*live.preempted, self.now_s])
        task.machine, task.started_s, task.elapsed_s = machine, self.now_s, 0.0
        if machine is not None:
            self.running += 1
            self._on.setdefault(machine, {})[name] = None
            self.ages.start(name, self.now_s)
            self.doubt(machine)
        if self.ages.matters or task.limited or task.preempt_cost:
            self.reprice(task, placed=True)

    def resume(self, name: str, machine: str, started_s: float) -> None:
        """Let a task count as running on a machine since then; a step moves it only for a gain."""
        self.settle(name, machine)
        task = self.tasks[name]
        task.started_s = started_s
        self.ages.stop(name)
        self.ages.start(name, started_s)
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
            self.doubt(self.tasks[name].machine)

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
            live = self.jobs[name]
            live.share = low, high
            self.network.set_job(name, self.bounds(live, low, high))

    def refresh_job(self, job: LiveJob) -> None:
        """Bring one job's costs up to its priority."""
        old = self.network.jobs[job.job.name].bounds
        new = self.bounds(job, 0, 0)
        self.network.set_job(job.job.name, old._replace(wait_cost=new.wait_cost, short_cost=new.short_cost))

    # Preemption ------------------------------------------------------------------------------------------------
    def limit(self, live: LiveJob, cost: float, per_hour: int | None) -> None:
        """Set what preempting a job costs and how often it may happen; a refused cost leaves all as before."""
        old, times = live.job, live.preempted
        self.side_constraints.refuse_job(old.model_copy(update={"preemptions_per_hour": per_hour}))
        try:
            self._set_limit(live, cost, per_hour)
        except ModelError:
            self._set_limit(live, old.preempt_cost, old.preemptions_per_hour)
            self._note_preempted(live, times)
            raise

    def _set_limit(self, live: LiveJob, cost: float, per_hour: int | None) -> None:
        live.job = live.job.model_copy(update={"preempt_cost": cost, "preemptions_per_hour": per_hour})
        self._note_preempted(live, [] if per_hour is None else live.preempted)
        for name in live.tasks:
            task = self.tasks[name]
            task.preempt_cost, task.limited = cost, per_hour is not None
            self.reprice(task)
            self.limits[live.job.name] = None
            self.doubt(task.machine)
        if per_hour is None:
            del self.limits[live.job.name]

    def preempted(self, job: str, times_s: list[float]) -> None:
        """Take over when tasks of a job were preempted."""
        self._note_preempted(self.jobs[job], times_s)

    def _note_preempted(self, live: LiveJob, times: list[float]) -> None:
        name, live.preempted = live.job.name, times
        self.limits[name] = self._gates[name] = None
        if times:
            self._spent[name] = None

    def doubt(self, machine: str | None) -> None:
        """Other tasks of a machine may be held than before."""
        if machine is not None and self.limits:
            self._unsure[machine] = None

    def hold(self) -> None:
        """Find the tasks that may only stay or stop by now (see `flowlex.models.flow.preemption`)."""
        unsure, self._unsure = self._unsure, {}
        for machine in unsure:
            tasks = [self.tasks[name] for name in self._on.get(machine, ())]
            tasks = [task for task in tasks if task.limited or task.held]
            for task in tasks:
                task.elapsed_s = elapsed_s(task.started_s, self.now_s)
            slots = self.cluster.machines[machine].slots if machine in self.cluster.machines else 0
            kept = kept_tasks(slots, tasks, lambda task: self.jobs[task.job].job, self._may_stay)
            names = {task.task.name for task in kept}
            for task in tasks:
                if task.task.name not in names:
                    self._release(task)
                elif not task.held:
                    live = self.jobs[task.job]
                    task.held, live.held = True, live.held + 1
                    self._gates[task.job] = None
                    self.network.set_gate(task.job, self.passes(live))
                    self.network.hold_task(task.task.name, True)
                    self.reprice(task, placed=True)
        for name in list(self._spent):
            live = self.jobs[name]
            recent = [at for at in live.preempted if elapsed_s(at, self.now_s) < HOUR_S]
            if len(recent) < len(live.preempted):
                live.preempted = recent
                self._gates[name] = None
            if not recent:
                del self._spent[name]

    def _may_stay(self, task: TaskView) -> bool:
        return self.rules.may_stay(task, self.rules.moving(task, self.cluster), self.cluster)

    def _release(self, task: LiveTask) -> bool:
        """Hold a task no more; whether it was held."""
        if not task.held:
            return False
        live = self.jobs[task.job]
        task.held, live.held = False, live.held - 1
        self._gates[task.job] = None
        if task.task.name in self.tasks:
            self.network.hold_task(task.task.name, False)
            self.reprice(task, placed=True)
        return True

    def open_gates(self) -> None:
        """Let as many held tasks stop as may by now, and bound jobs accordingly."""
        gates, self._gates = self._gates, {}
        for name in gates:
            live = self.jobs[name]
            if self.network.jobs[name].gate is not None:
                self.network.set_gate(name, self.passes(live))
            if self.rules.shares is not None:
                self.network.set_job(name, self.bounds(live, *live.share))
