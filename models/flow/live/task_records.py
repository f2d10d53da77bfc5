"""Records of the flow scheduler: tasks and jobs, full solves, and what one of its steps changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowlex.formulations.solver_outcome import Status
from flowlex.instances.flow import FlowJob
from flowlex.models.flow.goals.costs import DataLocality
from flowlex.models.flow.goals.goal_interface import Spot, TaskView
from flowlex.models.flow.solution import FlowSolution, Score
from flowlex.models.model_base import ModelError
from flowlex.validation.certificates import Certificate

__all__ = ["Decided", "Delta", "EventError", "FullSolve", "LiveJob", "LiveTask"]


class EventError(ModelError):
    """An event does not fit the state of the cluster; the state is as before."""


@dataclass(slots=True)
class LiveTask(TaskView):
    """A task that is here, since when it runs, and the machines its arcs depend on."""

    started_s: float = 0.0
    mentions: tuple[str, ...] = ()
    moving: dict[str | Spot, int] | None = None  # `Rules.moving`, kept while it holds
    locality: DataLocality | None = None  # where it depends on the machines with its data alone: those mentioned


@dataclass(slots=True)
class LiveJob:
    """A job as submitted (its claims may have changed since) and its tasks that are still here."""

    job: FlowJob
    tasks: dict[str, None]
    share: tuple[int, int] = (0, 0)  # fewest and most running tasks, of meaning with `FairShares`
    preempted: list[float] = field(default_factory=list)  # when, of the last hour
    held: int = 0  # running tasks that may only stay or stop
    ganged: bool = False  # some of these are of gangs


@dataclass(frozen=True)
class FullSolve:
    """What is kept of a decision made by a full solve."""

    method: str  # how it was solved
    # Whether it is the optimum. It then stays so while nothing but time passes, as credits for staying only grow
    best: bool = False
    waiting: Mapping[str, str] = field(default_factory=dict)  # reason by waiting task
    score: Score | None = None  # what was minimised; None where the decision was taken over from a log
    certificate: Certificate | None = field(default=None, compare=False)

    @classmethod
    def of(cls, solution: FlowSolution) -> FullSolve:
        """What a solution leaves."""
        best = solution.status is Status.OPTIMAL
        return cls(solution.method, best, dict(solution.waiting), solution.score, solution.certificate)


@dataclass(frozen=True)
class Decided:
    """A decision of a log: machine (None: none) of each task that changed, and reasons of tasks that waited then."""

    places: Mapping[str, str | None]
    waiting: Mapping[str, str]

    def as_full_solve(self, before: FullSolve | None) -> FullSolve:
        """What is known of it."""
        known = {} if before is None else before.waiting
        return FullSolve("as decided before", waiting={**known, **self.waiting})


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
        Exact proof of optimality; None when not asked for.
    method
        How strict orders were kept, see `FlowScheduler.method`, or how a full solve was made.
    whole
        Whether rules or capacities required a full solve, at this step or at an earlier one that still holds.
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
