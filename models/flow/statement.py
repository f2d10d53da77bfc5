r"""Flow scheduling, stated once in the language: tasks on machines, shares, rules across tasks, and one stage per goal.

``x[t,m]`` is 1 if task t runs on machine m, which it may; ``waits[t]`` is 1 if it waits. The network of
`flowlex.models.flow.network` (Sirius, Quincy) has the same schedules and costs; it reaches machines through groups.
Costs are integers in the unit of the model's scale. Shares of jobs are data: they are computed from the cluster before.

The stages, in strict order: tasks short of the shares of their jobs; waiting tasks by class, the most important first;
then the costs of the goals, as one sum or by rank. ``Priority(mode="published")`` is Sirius' vector cost as printed:
``w`` holds what waiting costs, instead of the stages by class; see `flowlex.models.flow.goals.Priority`.

Source: Sirius (Journal of Software 28(3), 2017), sections on fairness, placement and priority; it numbers no equations.
Elastic shares, strict classes, capacities, gangs, affinities and spreads are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.program_arrays import Floats
from flowlex.instances.flow import Machine
from flowlex.models.flow.priced_instance import Pairs, PricedInstance
from flowlex.models.flow.task_rules import Team
from flowlex.models.solution import ModelError

if TYPE_CHECKING:
    from flowlex.formulations.language.expressions import Expression
    from flowlex.models.problem import Problem

#: Rows that no change may drop, and why.
NEEDED = {"task": "a task runs on one machine or waits"}
#: Names of all rows, of some instance.
ROWS = frozenset(
    {*NEEDED, "machine", "unscheduled", "share", "preempted", "apart", "capacity", "spread"}
    | {"gang", "gang_within", "gang_within_one", "within", "within_one"}
)
#: Levels of the statement; a label of machines with such a name is a level with ``_label`` behind it.
_LEVELS = frozenset(
    {"task", "machine", "job", "rack", "slot", "rule", "resource", "gang", "affinity", "spread", "domain"}
)
#: Integers up to here are exact in a program.
_EXACT = 2**53


def _labels(level: str, labels: Iterable[Any]) -> Any:
    import pandas as pd

    return pd.Index(list(labels), name=level, dtype=object)


def _by(level: str, labels: Iterable[Any], values: Any) -> Any:
    import pandas as pd

    return pd.Series(values, _labels(level, labels))


def _table(rows: Iterable[tuple[Any, ...]], *levels: str) -> Any:
    """Rows of labels as a table; all columns identify a row."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=list(levels), dtype=object)


def _index(rows: Iterable[tuple[Any, ...]], *levels: str) -> Any:
    import pandas as pd

    return pd.MultiIndex.from_frame(_table(rows, *levels))


def label_levels(machines: Sequence[Machine]) -> dict[str, list[str]]:
    """Further levels of machines: the values of ``key=value`` labels, and yes or no for each plain label.

    ``_label`` follows a name in use (a level, or a plain label equal to a key). Names with brackets, tabs or line
    breaks are no levels.
    """
    found: dict[str, list[str]] = {}
    for label in dict.fromkeys(label for machine in machines for label in machine.labels):
        key, has_value, _ = label.partition("=")
        if has_value and key not in found:
            found[key] = ["+".join(x[len(key) + 1 :] for x in m.labels if x.startswith(f"{key}=")) for m in machines]
    for label in dict.fromkeys(label for machine in machines for label in machine.labels if "=" not in label):
        name = f"{label}_label" if label in found else label
        found[name] = ["yes" if label in machine.labels else "no" for machine in machines]
    named = ((f"{name}_label" if name in _LEVELS else name, values) for name, values in found.items())
    return {name: values for name, values in named if name and not any(c in name for c in "[]\n\r\t")}


def state(p: Problem, d: PricedInstance, pairs: Pairs, *, rounded: bool = False) -> None:
    """State an instance under its goals.

    Parameters
    ----------
    p
        The problem to state.
    d
        Tasks, machines, costs and rules.
    pairs
        Where tasks may run.
    rounded
        Whether amounts are rounded so that no machine is overfull within the tolerance of a solver.

    Raises
    ------
    ModelError
        Costs or amounts have no common unit that is exact in a program.
    """
    import pandas as pd

    further = {"rack": [m.rack for m in d.instance.machines], **label_levels(d.instance.machines)}
    p.set("task", d.task_names, words="tasks")
    p.set("machine", d.machine_names, words="machines")
    p.set("job", [job.name for job in d.instance.jobs], words="jobs")
    for level, values in further.items():
        p.set(level, dict.fromkeys(values), words="racks" if level == "rack" else "a label of machines")
    jobs = np.array([view.job for view in d.views], object)
    ends: list[Any] = [_labels("task", d.task_names), _labels("machine", d.machine_names)]
    codes = [pairs.task.tolist(), pairs.machine.tolist()]
    index = pd.MultiIndex(levels=ends, codes=codes, names=["task", "machine"])
    columns = {"job": jobs[pairs.task]} | {k: np.array(v, object)[pairs.machine] for k, v in further.items()}
    x = p.variables("x", over=pd.DataFrame(columns, index), binary=True, words="a task runs on a machine")
    tasks = pd.DataFrame({"job": jobs}, _labels("task", d.task_names))
    waits = p.variables("waits", over=tasks, binary=True, words="a task waits")
    words = "every task runs on one machine or waits"
    p.constrain("task", x.sum(by="task") + waits == 1, words=words, dual="what the task costs")
    filled = _machines(p, d, pairs, x)
    _shares(p, d, waits)
    _different_machines(p, d, pairs, x)
    _capacities(p, d, pairs, x, rounded=rounded)
    _gangs(p, d, x, waits)
    _spreads(p, d, x)
    _objectives(p, d, pairs, x, waits, filled)


def _machines(p: Problem, d: PricedInstance, pairs: Pairs, x: Expression) -> tuple[Expression, list[int]] | None:
    """Slots of machines; the variables of slots that have prices, with their costs."""
    used = [d.machine_names[m] for m in pairs.used]
    here = x.sum(by="machine").reindex(_labels("machine", used))
    words, dual = "tasks use the slots of a machine", "price of a slot on the machine"
    if not d.rules.prices_slots(d.instance.machines):
        if used:
            slots = _by("machine", used, np.array([d.instance.machines[m].slots for m in pairs.used], np.int64))
            p.constrain("machine", here <= p.data("K", slots, words="slots of a machine"), words=words, dual=dual)
        return None
    most = sum(len(job.tasks) for job in d.instance.jobs)
    rows, costs = list[tuple[str, int, str]](), list[int]()
    for m in pairs.used:
        machine = d.instance.machines[m]
        each = [cost for k, cost in d.slot_costs[m] for _ in range(min(k, most))][:most]
        rows += [(machine.name, number, machine.rack) for number in range(1, len(each) + 1)]
        costs += each
    p.set("slot", range(1, max((number for _, number, _ in rows), default=0) + 1), words="slots of a machine")
    table = _table(rows, "machine", "slot", "rack").set_index(["machine", "slot"])
    slot = p.variables("slot", over=table, binary=True, words="a slot is used")
    if used:
        filled = slot.sum(by="machine").reindex(_labels("machine", used))
        p.constrain("machine", here == filled, words=words, dual=dual)
    return slot, costs


def _shares(p: Problem, d: PricedInstance, waits: Expression) -> None:
    """Shares and preemption limits of jobs; a job below its share is *short* of tasks."""
    jobs, gates = [job.name for job in d.instance.jobs], d.gates
    count = np.array([len(job.tasks) for job in d.instance.jobs], np.int64)
    least, most = d.shares[:, 0], d.most
    waiting = waits.sum(by="job")
    some, full = (np.flatnonzero(chosen).tolist() for chosen in (least > 0, most < count))
    tasks = p.data("N", _by("job", jobs, count), words="tasks of a job") if some or full else None
    if tasks is not None and some:
        index = _labels("job", (jobs[j] for j in some))
        short = p.variables(
            "short", over=index, upper=least[some], integer=True, words="tasks below the share of a job"
        )
        share = p.data(r"\underline{A}", _by("job", index, least[some]), words="fewest tasks that should run")
        p.constrain(
            "unscheduled",
            waiting.reindex(index) - short <= tasks.reindex(index) - share,
            words="a job below its share is short of tasks (upper bound of u_j -> sink)",
            dual="price of letting one more task of the job wait",
        )
    if tasks is not None and full:
        index = _labels("job", (jobs[j] for j in full))
        share = p.data(r"\overline{A}", _by("job", index, most[full]), words="most tasks that may run")
        p.constrain(
            "share",
            waiting.reindex(index) >= tasks.reindex(index) - share,
            words="a job runs no more than its share (lower bound of u_j -> sink)",
        )
    if len(gates):
        index = _labels("job", (jobs[j] for j in gates[:, 0].tolist()))
        held = [task for task, view in zip(d.task_names, d.views, strict=True) if view.held]
        limit = p.data("h", _by("job", index, gates[:, 1]), words="running tasks that a job lets stop now")
        stops = waits.sel(task=held).sum(by="job").reindex(index)
        p.constrain("preempted", stops <= limit, words="running tasks of a job that stop")


def _different_machines(p: Problem, d: PricedInstance, pairs: Pairs, x: Expression) -> None:
    """At most one task of a rule of different machines on each machine."""
    may = set(pairs.task.tolist())
    rows = [(d.task_names[k], view.apart) for k, view in enumerate(d.views) if view.apart and k in may]
    if rows:
        here = x.join(_table(rows, "task", "rule")).sum(by=["rule", "machine"])
        p.constrain("apart", here <= 1, words="tasks of a rule run on different machines")


def _capacities(p: Problem, d: PricedInstance, pairs: Pairs, x: Expression, *, rounded: bool) -> None:
    """Tasks share what a machine has of each resource; ``rounded``: in few units of the machine, to the safe side."""
    import pandas as pd

    names, resources = d.instance.resources, d.resources
    if not names or not pairs.used:
        return

    def exact(amounts: Any, resource: Iterable[int]) -> list[Any]:
        return [int(each) * resources.units[r] for each, r in zip(amounts.tolist(), resource, strict=True)]

    p.set("resource", names, words="resources")
    there = _index(((d.machine_names[m], r) for m in pairs.used for r in names), "machine", "resource")
    asks: Any
    has: Any
    who: list[tuple[str, ...]]
    if rounded:
        place = {name: m for m, name in enumerate(d.machine_names)}
        held = np.array([place[view.machine] if view.held and view.machine else -1 for view in d.views], np.int64)
        demand, capacity = resources.rounded(pairs.task, pairs.machine, held)
        row, resource = np.nonzero(demand)
        levels, asks, has = ["task", "machine", "resource"], demand[row, resource], capacity[pairs.used].ravel()
        who = [(d.task_names[pairs.task[k]], d.machine_names[pairs.machine[k]]) for k in row.tolist()]
    else:
        task, resource = np.nonzero(resources.demand)
        levels, asks = ["task", "resource"], exact(resources.demand[task, resource], resource.tolist())
        has = exact(resources.capacity[pairs.used].ravel(), [*range(len(names))] * len(pairs.used))
        who = [(d.task_names[t],) for t in task.tolist()]
    rows = [(*each, names[r]) for each, r in zip(who, resource.tolist(), strict=True)]
    kind = np.int64 if rounded else object
    q = p.data("q", pd.Series(asks, _index(rows, *levels), kind), words="what a task asks of a resource")
    most = p.data("C", pd.Series(has, there, kind), words="what tasks may take of a resource of the machine")
    taken = (x.join(_table(rows, *levels)) * q).sum(by=["machine", "resource"]).reindex(there)
    p.constrain("capacity", taken <= most, words="tasks share what the machine has of a resource")


def _gangs(p: Problem, d: PricedInstance, x: Expression, waits: Expression) -> None:
    """Gangs run whole or not at all, in one domain; tasks with affinity that run do so in one domain."""
    gangs = [team for team in d.task_rules.teams if team.whole]
    if gangs:
        runs = p.variables("gang", gang=[team.name for team in gangs], binary=True, words="a gang runs")
        of = [(task, team.name) for team in gangs for task in team.tasks]
        here = runs.at(gang=_by("task", (task for task, _ in of), [name for _, name in of]).rename("gang"))
        p.constrain("gang", waits.reindex(here) + here == 1, words="all tasks of a gang run, or all wait")
        total = _domains(p, d, x, [team for team in gangs if team.domains], "gang_within", "==", "a gang runs")
        if total is not None:
            one = runs.reindex(total) if total.index.count != len(gangs) else runs
            p.constrain("gang_within_one", total == one, words="a gang that runs has one domain")
    others = [team for team in d.task_rules.teams if not team.whole]
    total = _domains(p, d, x, others, "within", "<=", "tasks with affinity run")
    if total is not None:
        p.constrain("within_one", total <= 1, words="an affinity has one domain")


def _domains(
    p: Problem, d: PricedInstance, x: Expression, teams: Sequence[Team], name: str, relation: str, who: str
) -> Expression | None:
    """Tasks of gangs or affinities run in the chosen domain; return the number of domains of each."""
    places = [(team, tag) for team in teams for tag in team.domains]
    if not places:
        return None
    kind = teams[0].kind
    p.set("domain", sorted(d.task_rules.tags), words="racks, and machines of one label")
    p.set(kind, [team.name for team in d.task_rules.teams if team.kind == kind], words=f"rules of kind {kind}")
    index = _index(((team.name, tag) for team, tag in places), kind, "domain")
    chosen = p.variables(f"{kind}_domain", over=index, binary=True, words=f"{who} in a domain")
    rows = _table(((tag, task, team.name) for team, tag in places for task in team.tasks),
                  "domain", "task", kind)  # fmt: skip
    most = chosen.at(rows.set_index(["domain", "task"]), **{kind: kind, "domain": "domain"})
    here = _inside(d, x, rows["task"]).sum(by=["domain", "task"]).reindex(most)
    p.constrain(name, here == most if relation == "==" else here <= most, words=f"{who} in the chosen domain")
    return chosen.sum(by=kind).reindex(_labels(kind, (team.name for team in teams)))


def _inside(d: PricedInstance, x: Expression, tasks: Iterable[str]) -> Expression:
    """``x`` of some tasks, once for each domain of its machine."""
    machines = zip(d.machine_names, d.instance.machines, strict=True)
    table = _table(((m, tag) for m, machine in machines for tag in sorted(d.task_rules.tags & machine.tags)),
                   "machine", "domain")  # fmt: skip
    return x.sel(task=list(dict.fromkeys(tasks))).join(table)


def _spreads(p: Problem, d: PricedInstance, x: Expression) -> None:
    """Limits of the tasks of a spread in each domain."""
    limits = [each for each in d.task_rules.limits if each.most < len(each.tasks)]
    if not limits:
        return
    p.set("domain", sorted(d.task_rules.tags), words="racks, and machines of one label")
    index = _index(((each.spread, each.tag) for each in limits), "spread", "domain")
    rows = _table(((task, each.tag, each.spread) for each in limits for task in each.tasks),
                  "task", "domain", "spread")  # fmt: skip
    import pandas as pd

    most = p.data("b", pd.Series([each.most for each in limits], index), words="most tasks of a spread in a domain")
    here = _inside(d, x, rows["task"]).join(rows).sum(by=["spread", "domain"]).reindex(index)
    p.constrain("spread", here <= most, words="tasks of a spread by domain")


def _objectives(
    p: Problem,
    d: PricedInstance,
    pairs: Pairs,
    x: Expression,
    waits: Expression,
    filled: tuple[Expression, list[int]] | None,
) -> None:
    """Shortfall of shares, waiting tasks by class, costs by rank."""
    import pandas as pd

    if "short" in p.blocks:
        p.minimize("shortfall", p["short"].sum(), words="tasks below the shares of their jobs")
    level = dict(zip((job.name for job in d.instance.jobs), d.levels.tolist(), strict=True))
    for each in d.classes:
        jobs = [name for name, k in level.items() if k == each]
        late = waits if len(jobs) == len(level) else waits.sel(task=[v.task.name for v in d.views if v.job in jobs])
        p.minimize(f"waiting_{each}", late.sum(), words=f"waiting tasks of class {each}")
    waiting, goal = d.waiting, d.rules.priority
    said = (
        "cost of waiting" if goal is None or goal.mode == "strict" else "w . [priority, demands] (Sirius' vector cost)"
    )
    parts = [(x, "c", "cost of a task on a machine", pairs.costs), (waits, "w", said, waiting)]
    if filled is not None:
        parts.append((filled[0], "f", "cost of a slot", filled[1]))
    order = d.rules.order
    for rank, name in enumerate(d.rules.rank_names):
        total = None
        for variables, symbol, words, costs in parts:
            priced: Any = np.array([0, *costs])[1:] if order is None else order.columns(costs)[rank]
            if priced.dtype == object or np.abs(priced).max(initial=0) > _EXACT:
                raise ModelError(
                    f"a cost beyond {_EXACT} of 1/{d.rules.scale.factor} cannot be stated; use larger units"
                )
            if total is None or priced.any():
                of = symbol if order is None else f"{symbol}({name})"
                values = pd.Series(priced, variables.index.to_pandas())
                term = (variables * p.data(of, values, words=words)).sum()
                total = term if total is None else total + term
        p.minimize(name, total, words="costs of the goals" if order is None else f"cost of {name}")


def completed(p: Problem, d: PricedInstance, x: Any, waits: Any) -> dict[str, Floats]:
    """Values of ``x`` and ``waits``, and those of shortfalls and slots that follow from them."""
    blocks, found = {name: block.index.codes for name, block in p.blocks.items()}, {"x": x, "waits": waits}
    if "short" in blocks:
        j, jobs = blocks["short"]["job"], len(d.levels)
        running = np.bincount(d.job, minlength=jobs) - np.bincount(d.job, waits, jobs)
        found["short"] = np.maximum(d.shares[j, 0] - running[j], 0)
    if "slot" in blocks:
        held = np.bincount(blocks["x"]["machine"], x, len(d.machine_names))
        found["slot"] = np.clip(held[blocks["slot"]["machine"]] - blocks["slot"]["slot"], 0, 1)
    return {name: np.asarray(values, np.float64) for name, values in found.items()}


def values_of(p: Problem, columns: Floats) -> dict[str, int]:
    """Values of the objectives."""
    return {o.name: round(float(o.cost(len(columns)) @ columns) + o.offset) for o in p.objectives}


__all__ = ["NEEDED", "ROWS", "completed", "label_levels", "state", "values_of"]
