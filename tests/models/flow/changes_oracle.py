"""Flow scheduling as a plain program by HiGHS, from the instance; uses no code of models.

It knows the goals of `tests.models.flow.ties`: shares by guarantees and limits, strict priority, required and
forbidden resources, utilities, spread load (2 a task), and a credit of 3 for staying; capacities, and limits of
preemption.
"""

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

__all__ = ["Program", "best", "stated"]


def best(instance):
    """Return the least (shortfall, waiting by class, cost) of all schedules under `tests.models.flow.ties.GOALS`."""
    values = {name: round(value) for name, value in Program(instance).solve().items()}
    return values.pop("shortfall", 0), *values.values()


def stated(solution):
    """The same figures of a solution."""
    score = solution.score
    return score.shortfall, *(count for _, count in score.waiting), score.cost


class Program:
    """Columns by (name, labels); rows as (terms, low, high); stages as terms to be minimised in turn."""

    def __init__(self, instance):
        self.instance, self.at, self.labels = instance, {}, []
        self.low, self.high, self.whole = [], [], []
        self.rows, self.stages = {}, {}
        machines = {m.name: m for m in instance.machines}
        self.machines, self.tasks = machines, {t.name: (j, t) for j in instance.jobs for t in j.tasks}
        tasks_of = {j.name: [t.name for t in j.tasks] for j in instance.jobs}
        members = {
            (kind, rule.name): (rule, [*dict.fromkeys([*rule.tasks, *(t for j in rule.jobs for t in tasks_of[j])])])
            for kind in ("gangs", "affinities", "spreads")
            for rule in getattr(instance, kind)
        }
        held = self.held(members)
        ganged = {name for (kind, _), (_, those) in members.items() if kind == "gangs" for name in those}
        for name, (job, task) in self.tasks.items():
            for m in machines.values():
                if (
                    held.get(name, m.name) == m.name
                    and m.slots
                    and self.fits(task, m)
                    and all(self.domain(m, key) for key in self.keys(name, members))
                ):
                    zone, gpu = self.domain(m, "zone") or "", "yes" if "gpu" in m.labels else "no"
                    self.column("x", 1, task=name, machine=m.name, job=job.name, rack=m.rack, zone=zone, gpu=gpu)
            self.column("waits", 1, task=name, job=job.name)
        self.stages["shortfall"] = {}
        for job in instance.jobs:
            count, waits = len(job.tasks), self.find("waits", job=job.name)
            most = count if job.max_tasks is None else min(job.max_tasks, count)
            guaranteed = self.guarantees()[job.name]
            stay = [t.name for t in job.tasks if t.name in held]
            if stay:
                past = sum(seconds < 3600 for seconds in job.preempted_s)
                may = max(0, job.preemptions_per_hour - past)
                self.row("preempted", {c: 1 for name in stay for c in self.find("waits", task=name)}, -99, may)
                most = max(most, len(stay) - (0 if ganged & {*stay} else may))
            self.row("share", waits, count - most, count)
            if guaranteed:
                short = self.column("short", guaranteed, job=job.name)
                self.row("unscheduled", {**waits, short: -1}, -99, count - guaranteed)
                self.stages["shortfall"][short] = 1
        if not any(self.guarantees().values()):
            del self.stages["shortfall"]
        for name in self.tasks:
            self.row("task", {**self.find("x", task=name), **self.find("waits", task=name)}, 1, 1)
        for priority in sorted({job.priority for job in instance.jobs}):
            mine = [job.name for job in instance.jobs if job.priority == priority]
            self.stages[f"waiting_{1001 - priority}"] = {c: 1 for j in mine for c in self.find("waits", job=j)}
        cost = {c: self.price(**self.labels[c][1]) for c in self.find("x")}
        for m in machines.values():
            inside = self.find("x", machine=m.name)
            slots = [
                self.column("slot", 1, machine=m.name, slot=k + 1, rack=m.rack)
                for k in range(min(m.slots, len(self.tasks)) if inside else 0)
            ]
            cost |= {column: 2 * k for k, column in enumerate(slots)}
            self.row("machine", {**inside, **dict.fromkeys(slots, -1)}, 0, 0)
            for resource, amount in m.capacity.items():
                asked = {c: self.tasks[self.labels[c][1]["task"]][1].demands.get(resource, 0) for c in inside}
                self.row("capacity", asked, -99, amount)
            for rule in {job.different_machines for job in instance.jobs} - {None}:
                jobs = [job.name for job in instance.jobs if job.different_machines == rule]
                self.row("apart", {c: 1 for j in jobs for c in self.find("x", machine=m.name, job=j)}, -99, 1)
        self.stages["cost"] = cost
        self.ties(members)

    def ties(self, members):
        for (kind, name), (rule, tasks) in members.items():
            key = rule.over if kind == "spreads" else rule.within
            domains = dict.fromkeys(d for m in self.machines.values() if key and (d := self.domain(m, key)))
            inside = {
                (t, d): {c: 1 for c in self.find("x", task=t) if self.domain(self.machine(c), key) == d}
                for t in tasks
                for d in domains
            }
            if kind == "spreads":
                for d in domains:
                    if (most := rule.limits.get(d, rule.most)) is not None:
                        self.row("spread", {c: 1 for t in tasks for c in inside[t, d]}, -99, most)
                continue
            if kind == "gangs":
                runs = self.column("gang", 1, gang=name)
                for t in tasks:
                    self.row("gang", {**self.find("waits", task=t), runs: 1}, 1, 1)
            tag = "rack:" if key == "rack" else f"{key}="
            word = kind.replace("gangs", "gang").replace("affinities", "affinity")
            chosen = {d: self.column(f"{word}_domain", 1, **{word: name, "domain": tag + d}) for d in domains}
            for (_, d), here in inside.items():
                self.row("within", {**here, chosen[d]: -1}, 0 if kind == "gangs" else -99, 0)
            if chosen:
                some = dict.fromkeys(chosen.values(), 1)
                self.row("one", {**some, runs: -1} if kind == "gangs" else some, 0 if kind == "gangs" else -99,
                         0 if kind == "gangs" else 1)  # fmt: skip

    @staticmethod
    def keys(task, members):
        """Return the domains in which a task must run."""
        ties = (rule for rule, those in members.values() if task in those)
        return [key for rule in ties if (key := getattr(rule, "within", getattr(rule, "over", None)))]

    def held(self, members):
        """Running tasks that may only stay or stop, by machine: those whose rules hold if exactly they stay."""
        held = {
            name: task.running.machine
            for name, (job, task) in self.tasks.items()
            if job.preemptions_per_hour is not None and task.running is not None
            and self.fits(task, self.machines[task.running.machine])
            and all(self.domain(self.machines[task.running.machine], key) for key in self.keys(name, members))
        }  # fmt: skip
        for name, machine in self.machines.items():  # one that lost slots keeps those of no preemption, then by order
            order = [(job.preemptions_per_hour != 0, job.priority, -task.running.elapsed_s, task.name)
                     for job, task in self.tasks.values() if held.get(task.name) == name]  # fmt: skip
            for *_, task in sorted(order)[machine.slots :]:
                del held[task]
        while True:
            free = set()
            for (kind, _), (rule, those) in members.items():
                at = [self.machines[held[name]] for name in those if name in held]
                key = rule.over if kind == "spreads" else rule.within
                domains = [self.domain(m, key) for m in at] if key else []
                broken = kind == "gangs" and 0 < len(at) < len(those)
                if kind == "spreads":
                    most = {d: rule.limits.get(d, rule.most) for d in domains}
                    broken |= any(limit is not None and domains.count(d) > limit for d, limit in most.items())
                else:
                    broken |= len({*domains}) > 1
                free |= {*those} & held.keys() if broken else set()
            if not free:
                return held
            held = {name: at for name, at in held.items() if name not in free}

    def guarantees(self):
        least = {j.name: min(j.min_tasks, len(j.tasks) if j.max_tasks is None else j.max_tasks, len(j.tasks))
                 for j in self.instance.jobs}  # fmt: skip
        slots = sum(m.slots for m in self.machines.values())
        if sum(least.values()) <= slots:
            return least
        due = sorted((k / n, at, j) for at, (j, n) in enumerate(least.items()) for k in range(1, n + 1))
        return {j: sum(each == j for *_, each in due[:slots]) for j in least}

    @staticmethod
    def domain(machine, key):
        if key == "rack":
            return machine.rack
        return next((label.partition("=")[2] for label in machine.labels if label.startswith(f"{key}=")), None)

    def machine(self, column):
        return self.machines[self.labels[column][1]["machine"]]

    @staticmethod
    def tags(machine):
        return {*machine.labels, f"rack:{machine.rack}", f"machine:{machine.name}"}

    def fits(self, task, machine):
        have = self.tags(machine)
        return all(
            bool(have & {*c.resources}) == (c.kind == "required")
            for c in task.constraints
            if c.kind in ("required", "forbidden")
        )

    def price(self, task, machine, **_):
        job, each = self.tasks[task]
        stays = each.running is not None and each.running.machine == machine
        has = self.tags(self.machines[machine])
        liked = sum(
            c.utility * (-1 if c.kind == "preferred" else 1)
            for c in each.constraints
            if c.kind in ("preferred", "avoided") and has & {*c.resources}
        )
        return each.costs.get(machine, liked) - (3 + job.preempt_cost if stays else 0)

    def column(self, name, high, low=0, whole=True, **labels):
        self.labels.append((name, labels))
        self.low.append(low), self.high.append(high), self.whole.append(whole)
        return len(self.labels) - 1

    def row(self, name, terms, low, high):
        self.rows.setdefault(name, []).append((dict(terms), low, high))

    def find(self, name, **where):
        return {
            c: 1
            for c, (each, labels) in enumerate(self.labels)
            if each == name and all(labels[level] == label for level, label in where.items())
        }

    def solve(self, relaxed=False):
        """Value of each stage; None where there is no answer."""
        rows = [row for each in self.rows.values() for row in each]
        found = {}
        for name, cost in self.stages.items():
            matrix = np.zeros((len(rows), len(self.labels)))
            for r, (terms, _, _) in enumerate(rows):
                for column, value in terms.items():
                    matrix[r, column] = value
            c = np.zeros(len(self.labels))
            for column, value in cost.items():
                c[column] = value
            limits = LinearConstraint(matrix, [r[1] for r in rows], [r[2] for r in rows]) if rows else ()
            whole = np.zeros(len(c)) if relaxed else np.array(self.whole, float)
            answer = milp(c, integrality=whole, bounds=Bounds(self.low, self.high), constraints=limits)
            if answer.x is None:
                return None
            found[name] = float(c @ answer.x)
            rows = [*rows, (cost, -np.inf, found[name] + 1e-6)]
        return found
