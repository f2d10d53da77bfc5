"""Records of the flow scheduler: tasks, jobs, full solves and the changes of one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowlex.formulations.solver_outcome import Status
from flowlex.instances.flow import FlowJob
from flowlex.models.flow.goal_interface import Spot, TaskView
from flowlex.models.flow.goals import DataLocality
from flowlex.models.flow.solution import FlowSolution, Score
from flowlex.models.model_base import ModelError
from flowlex.validation.certificates import Certificate


class EventError(ModelError):
    """An event does not fit the state of the cluster; the state has not changed."""


@dataclass(slots=True)
class LiveTask(TaskView):
    """A present task, its start time, and the machines on which its arcs depend."""

    started_s: float = 0.0
    mentions: tuple[str, ...] = ()
    moving: dict[str | Spot, int] | None = None  # cached result of `Rules.moving`
    locality: DataLocality | None = None  # set if its arcs depend only on the machines with its data


@dataclass(slots=True)
class LiveJob:
    """A job as submitted (its claims may have changed since) and its remaining tasks."""

    job: FlowJob
    tasks: dict[str, None]
    share: tuple[int, int] = (0, 0)  # fewest and most running tasks; used only with `FairShares`
    preempted: list[float] = field(default_factory=list)  # times of preemptions in the last hour
    held: int = 0  # number of running tasks that may not move
    ganged: bool = False  # whether some of these belong to gangs


@dataclass(frozen=True)
class FullSolve:
    """The decision of a full solve."""

    method: str  # how it was solved
    # Whether it is the optimum. It then stays so while nothing but time passes, as credits for staying only grow
    best: bool = False
    waiting: Mapping[str, str] = field(default_factory=dict)  # reason by waiting task
    score: Score | None = None  # objective values; None if the decision was read from a log
    certificate: Certificate | None = field(default=None, compare=False)

    @classmethod
    def of(cls, solution: FlowSolution) -> FullSolve:
        """Keep the decision of a solution."""
        best = solution.status is Status.OPTIMAL
        return cls(solution.method, best, dict(solution.waiting), solution.score, solution.certificate)


@dataclass(frozen=True)
class Decided:
    """A decision read from a log: machine of each changed task (None: it waits), and reasons of waiting tasks.

    ``places`` lists the placed tasks first, then those moved, then those stopped, as `Delta` does.
    """

    places: Mapping[str, str | None]
    waiting: Mapping[str, str]
    whole: bool = True  # whether a full solve made it
    best: bool = False  # whether this proved it the optimum

    def as_full_solve(self, before: FullSolve | None) -> FullSolve:
        """Return it as a full solve, with the reasons of the decision before for tasks without a new one."""
        known = {} if before is None else before.waiting
        return FullSolve("as decided before", self.best, {**known, **self.waiting})


@dataclass(frozen=True, repr=False)
class Delta:
    """What one step changed.

    Attributes
    ----------
    placed, moved, stopped
        (task, machine), (task, from, to, reason), (task, machine, reason).
    waiting
        (task, reason) for tasks that were submitted or stopped and wait now.
    running, waiting_count
        Totals after the step.
    seconds
        ``events`` (since the last step), ``solve``, ``read``, ``check`` and their ``total``.
    certificate
        Exact proof of optimality; None if not requested.
    method
        How strict orders were enforced (see `FlowScheduler.method`), or the method of the full solve.
    whole
        Whether the decision comes from a full solve, at this step or at an earlier one that still holds.
    """

    number: int
    now_s: float
    events: int
    placed: tuple[tuple[str, str], ...]
    moved: tuple[tuple[str, str, str, str], ...]
    stopped: tuple[tuple[str, str, str], ...]
    waiting: tuple[tuple[str, str], ...]
    running: int
    waiting_count: int
    seconds: dict[str, float]
    certificate: Certificate | None = None
    method: str = "weights"
    whole: bool = False

    def __repr__(self) -> str:
        counts = f"{len(self.placed)} placed, {len(self.moved)} moved, {len(self.stopped)} stopped"
        state = f"{self.running} running, {self.waiting_count} waiting"
        return f"<step {self.number} at {self.now_s:g} s: {counts}; {state}; {1e3 * self.seconds['total']:.2f} ms>"
