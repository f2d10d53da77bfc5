"""Traffic of just-in-time bandwidth: jobs as DAGs of computations and their transfers, and copies of files."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import Annotated

from pydantic import Field, model_validator

from flowlex.instances.instance_base import Name, NonNegative, Part, Positive, require_known, require_unique


class Computation(Part):
    """A computation of a job; ``after`` names the computations of the job that must be done before it."""

    name: Name
    seconds: NonNegative
    """How long it takes, in seconds."""
    after: tuple[Name, ...] = ()
    """Computations of the job that must be done before it starts."""
    machine: Name | None = None
    """The machine that runs it; null if it does not matter."""


class Transfer(Part):
    """Data that a computation waits for."""

    name: Name
    size_mb: Positive
    """In MB (10^6 bytes)."""
    sender: Name
    """The machine that sends."""
    receiver: Name
    """The machine that receives, another one."""
    feeds: Name
    """The computation (of the same job) that cannot start before this transfer has arrived."""
    made_by: Name | None = None
    """The computation that produces the data; null if they are available from ``ready_s`` on. Plans
    assume that it ends as if all transfers before it were on time."""
    ready_s: NonNegative = 0.0
    """Earliest time at which the data can be sent, from the job's arrival."""
    deadline_s: Positive | None = None
    """Latest arrival, from the job's arrival, if it is given as data (coflow traces); otherwise the model derives it
    from the DAG."""
    firm_s: Positive | None = None
    """Arrival guaranteed by a live scheduler, from the job's arrival. It must be met even if windows are elastic; needs
    a ``deadline_s`` that is no later."""

    @model_validator(mode="after")
    def _check(self) -> Transfer:
        if self.sender == self.receiver:
            raise ValueError(
                f"transfer {self.name!r} goes from {self.sender!r} to itself; remove it (it uses no network)"
            )
        if self.deadline_s is not None and self.deadline_s <= self.ready_s:
            raise ValueError(
                f"transfer {self.name!r} must arrive by {self.deadline_s:g} s but is ready only at "
                f"{self.ready_s:g} s; move its deadline_s after its ready_s"
            )
        if self.firm_s is not None and (self.deadline_s is None or self.deadline_s > self.firm_s):
            raise ValueError(
                f"transfer {self.name!r} must arrive by firm_s {self.firm_s:g} s, its deadline_s is "
                f"{'not given' if self.deadline_s is None else f'{self.deadline_s:g} s'}; give one that is no later"
            )
        return self


class Job(Part):
    """A DAG of computations, and the transfers that feed them."""

    name: Name
    arrival_s: NonNegative = 0.0
    """Arrival time, in seconds from the start."""
    computations: Annotated[tuple[Computation, ...], Field(min_length=1)]
    """Its computations; at least one."""
    transfers: tuple[Transfer, ...] = ()
    """The transfers that feed them."""

    @model_validator(mode="after")
    def _check(self) -> Job:
        require_unique((c.name for c in self.computations), f"computations of job {self.name!r}")
        require_unique((f.name for f in self.transfers), f"transfers of job {self.name!r}")
        known, of = dict.fromkeys(c.name for c in self.computations), f"of job {self.name!r}"
        for computation in self.computations:
            for before in computation.after:
                says = f"computation {computation.name!r} {of} comes after computation"
                require_known(before, known, says, "computations of the job")
        before_it = {c.name: list(c.after) for c in self.computations}
        for transfer in self.transfers:
            for how, name in (("feeds", transfer.feeds), ("is made by", transfer.made_by)):
                says = f"transfer {transfer.name!r} {of} {how} computation"
                require_known(name, known, says, "computations of the job")
            before_it[transfer.feeds] += [transfer.made_by] if transfer.made_by else []
        try:
            TopologicalSorter(before_it).prepare()
        except CycleError as error:
            cycle = " -> ".join(error.args[1])
            raise ValueError(f"job {self.name!r} has a cycle: {cycle}; remove one of these edges") from None
        return self


class BackgroundCopy(Part):
    """A file copy without a DAG: it gets the bandwidth that the jobs leave."""

    name: Name
    size_mb: Positive
    """In MB (10^6 bytes)."""
    sender: Name
    """The machine that sends."""
    receiver: Name
    """The machine that receives."""
    arrival_s: NonNegative = 0.0
    """Earliest start, in seconds."""

    @model_validator(mode="after")
    def _check(self) -> BackgroundCopy:
        if self.sender == self.receiver:
            raise ValueError(f"copy {self.name!r} goes from {self.sender!r} to itself; remove it")
        return self
