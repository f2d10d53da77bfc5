"""What happens to a network over time: jobs with transfers arrive, are withdrawn, or fall behind their plan.

Lines of the same event logs as `flowlex.instances.events`; a log of this kind opens with a ``network`` event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from flowlex.instances.base import Name, NonNegative, Part, Positive, require_unique
from flowlex.instances.jit import JitInstance, Job, Machine

__all__ = ["Arrive", "Network", "Sent", "Timed", "Withdraw", "events_of"]


class Timed(Part):
    """What happens at a time."""

    at_s: NonNegative = 0.0


class Network(Timed):
    """The machines and the grid to begin with (see `flowlex.instances.jit.JitInstance`)."""

    event: Literal["network"] = "network"
    machines: Annotated[tuple[Machine, ...], Field(min_length=2)]
    slot_s: Positive = 0.1
    unit_mb: Positive = 1.25

    @model_validator(mode="after")
    def _check(self) -> Network:
        require_unique((m.name for m in self.machines), "machines")
        return self


class Arrive(Timed):
    """A job is submitted, with its DAG; its ``arrival_s`` is not looked at."""

    event: Literal["arrive"] = "arrive"
    job: Job


class Withdraw(Timed):
    """A job is given up."""

    event: Literal["withdraw"] = "withdraw"
    job: Name


class Sent(Timed):
    """What is left of a transfer, where that is not what was planned."""

    event: Literal["sent"] = "sent"
    transfer: Name
    left_mb: NonNegative


def events_of(instance: JitInstance) -> Iterator[Network | Arrive]:
    """An instance as a log: its network, then its jobs in order of arrival."""
    yield Network(machines=instance.machines, slot_s=instance.slot_s, unit_mb=instance.unit_mb)
    for job in sorted(instance.jobs, key=lambda j: j.arrival_s):
        yield Arrive(at_s=job.arrival_s, job=job)
