"""All that a living cluster is, without its network: instance, clocks and schedule.

The network is a function of these. Made anew it may have another optimum among equal ones; the next step then keeps
the schedule that is in force (see `equal_schedules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter

from flowlex.instances.flow import FlowJob, Machine
from flowlex.instances.group_rules import Affinity, Gang, TaskSpread
from flowlex.models.flow.live.cluster_state import LiveState
from flowlex.models.flow.live.side_constraints import TieRule
from flowlex.models.flow.live.task_ages import elapsed_s
from flowlex.models.flow.preemption import HOUR_S

__all__ = ["Record"]

_RULES: dict[str, type[TieRule]] = {"gang": Gang, "spread": TaskSpread, "affinity": Affinity}


def _read(saved: tuple[str, Any]) -> tuple[str, TieRule]:
    """A rule of the kind that stands before it."""
    return saved[0], _RULES[saved[0]].model_validate(saved[1])


@dataclass(frozen=True)
class Record:
    """See the module.

    Attributes
    ----------
    now_s
        Time of the last step.
    jobs
        With the tasks and explicit costs that they have now.
    preempted
        By job, when tasks of it were preempted.
    places
        By running task, its machine (which may be gone since the last step) and since when it runs there.
    rules
        In force, some perhaps about places that are gone.
    fresh
        Tasks to be reported if they wait after the next step.
    """

    now_s: float
    machines: tuple[Machine, ...]
    jobs: tuple[FlowJob, ...]
    preempted: Mapping[str, list[float]]
    places: Mapping[str, tuple[str, float]]
    rules: tuple[Annotated[tuple[str, TieRule], BeforeValidator(_read)], ...]
    fresh: tuple[str, ...]

    @classmethod
    def of(cls, state: LiveState) -> Record:
        """The state of a cluster."""
        tasks = state.tasks
        jobs = []
        for live in state.jobs.values():
            present = (tasks[name].task.model_copy(update={"costs": dict(tasks[name].costs)}) for name in live.tasks)
            jobs.append(live.job.model_copy(update={"tasks": tuple(present)}))
        return cls(
            state.now_s,
            tuple(state.cluster.machines.values()),
            tuple(jobs),
            {
                name: recent
                for name, live in state.jobs.items()
                if (recent := _of_last_hour(live.preempted, state.now_s))
            },
            {name: (task.machine, task.started_s) for name, task in tasks.items() if task.machine is not None},
            tuple((kind, rule) for (kind, _), rule in state.side_constraints.rules.items()),
            tuple(state.fresh),
        )

    def refill(self, state: LiveState) -> None:
        """Bring an empty state there; nothing is checked that events did not check."""
        state.now_s = self.now_s
        for machine in self.machines:
            state.put_machine(machine)
        for job in self.jobs:
            state.put_job(job)
            if job.name in self.preempted:
                state.preemptions.note(state.jobs[job.name], list(self.preempted[job.name]))
        for name, (place, started_s) in self.places.items():
            state.resume(name, place, started_s)
        state.side_constraints.tie((rule for _, rule in self.rules), known=True)
        state.fresh = dict.fromkeys(self.fresh)

    def to_dict(self) -> dict[str, Any]:
        """For a file."""
        found: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return found

    @classmethod
    def of_dict(cls, found: Mapping[str, Any]) -> Record:
        """What `to_dict` gave, from a file."""
        return _ADAPTER.validate_python({each.name: found[each.name] for each in fields(cls)})


_ADAPTER = TypeAdapter(Record)


def _of_last_hour(times_s: list[float], now_s: float) -> list[float]:
    return [at for at in times_s if elapsed_s(at, now_s) < HOUR_S]
