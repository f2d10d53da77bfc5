"""A typed client of the scheduler service: ``flowlex.client.Scheduler``.

Requests that change something carry an idempotency key, so they can be sent again after a lost answer, a restart or a
takeover, and take effect once.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from flowlex.instances.flow import FlowJob, Machine
from flowlex.instances.group_rules import Affinity, Gang, TaskSpread
from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.scheduler.documents import Decision, Explained, Place, Places
from flowlex.systems.telemetry.http_client import Backoff, Refused, TelemetryClient, Unreachable

__all__ = ["Refused", "Scheduler", "Unreachable"]

#: Seconds after which another service is asked: a process that is stopped, or a host that is cut off, says nothing.
_NEXT_S = 3.0


class Scheduler:
    """A served live scheduler.

    Parameters
    ----------
    urls
        ``http://host:port``; further ones are tried if the first does not answer or follows.
    token
        Sent as a bearer token; never logged.
    timeout_s
        Seconds of one attempt. Of several services, the next is asked after 3 s; waits double until this limit.
    patience_s
        Seconds after which attempts end with `Unreachable`.
    ca_file
        CA certificates (PEM) for the service.
    options
        Options of `TelemetryClient`, such as another transport.

    Raises
    ------
    Refused
        By every method: the service refused the request; the message names event and reason.
    Unreachable
        By every method: no service answered in time.

    Notes
    -----
    The page *Run a scheduler as a service* of the documentation has an example.
    """

    def __init__(
        self,
        *urls: str,
        token: str | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 60.0,
        ca_file: Path | None = None,
        **options: Any,
    ) -> None:
        if not urls:
            raise ValueError("no service is named; give http://host:port")
        made = (TelemetryClient(url, token, timeout_s=timeout_s, ca_file=ca_file, **options) for url in urls)
        self._services: deque[TelemetryClient] = deque(made)
        self.timeout_s, self.patience_s = timeout_s, patience_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        for service in self._services:
            service.close()

    def _call(self, method: str, path: str, *, wait_s: float = 0.0, **more: Any) -> Any:
        until, waits = time.monotonic() + self.patience_s, Backoff(0.05, 2.0)
        limit = self.timeout_s if len(self._services) == 1 else min(self.timeout_s, _NEXT_S)
        while True:
            try:
                timeout = httpx.Timeout(limit + wait_s, connect=min(limit, _NEXT_S))
                return self._services[0].call(method, path, timeout=timeout, **more)
            except Unreachable as error:
                limit = min(self.timeout_s, 2 * limit)
                wait = waits.next()
                if time.monotonic() + wait > until:
                    raise
                if not error.wait_s:  # it did not ask to retry later
                    self._services.rotate(-1)
                time.sleep(wait)

    # Events ------------------------------------------------------------------------------------------------------
    def send(self, *events: ev.Event, key: str | None = None) -> int:
        """Send at most a thousand events; return the number taken, which are then on disk.

        Parameters
        ----------
        key
            Idempotency key of the request; by default each call is a new request.
        """
        documents = [event.model_dump(mode="json", exclude_unset=True) | {"event": event.event} for event in events]
        taken: int = self._call("POST", "/events", json={"events": documents}, headers=_key(key))["taken"]
        return taken

    def submit(self, job: FlowJob, *rules: Gang | TaskSpread | Affinity) -> None:
        """Submit a job with rules over its tasks.

        Parameters
        ----------
        job
            A new job; the service refuses known names of jobs or tasks, and tasks that already run.
        rules
            Rules, which may also name existing tasks and jobs. Job and rules are accepted together or not at all.
        """
        kinds: dict[str, type] = {"gangs": Gang, "spreads": TaskSpread, "affinities": Affinity}
        those = {name: tuple(rule for rule in rules if isinstance(rule, kind)) for name, kind in kinds.items()}
        self.send(ev.Submit(job=job, **{name: found for name, found in those.items() if found}))

    def finish(self, *tasks: str) -> None:
        """Report that running tasks have ended.

        Parameters
        ----------
        tasks
            Names of 1 to 1000 tasks, processed in order. The service refuses the first that does not run, and keeps
            those before it.
        """
        self.send(*(ev.Finish(task=task) for task in tasks))

    def cancel(self, *, task: str | None = None, job: str | None = None) -> None:
        """Withdraw a task or a whole job.

        Parameters
        ----------
        task, job
            Name of the task or the job; the service refuses both, none, and unknown names.
        """
        self.send(ev.Cancel(**{name: value for name, value in (("task", task), ("job", job)) if value is not None}))

    def add_machine(self, *machines: Machine) -> None:
        """Add machines that join or return.

        Parameters
        ----------
        machines
            1 to 1000 machines, processed in order. The service refuses the first with a known name, and keeps those
            before it.
        """
        self.send(*(ev.AddMachine(machine=machine) for machine in machines))

    def remove_machine(self, machine: str) -> None:
        """Remove a machine; its tasks stop or move with the next decision.

        Parameters
        ----------
        machine
            Its name; the service refuses unknown names.
        """
        self.send(ev.RemoveMachine(machine=machine))

    # Decisions ---------------------------------------------------------------------------------------------------
    def step(self) -> Decision:
        """Decide now."""
        return Decision.model_validate(self._call("POST", "/step", headers=_key()))

    def decisions(self, after: int = 0, wait_s: float = 0.0) -> Sequence[Decision]:
        """Return the decisions after a given one.

        Parameters
        ----------
        after
            Number of the last decision that is known, at least 0.
        wait_s
            Seconds to wait if there is none yet, from 0 to 60; ``timeout_s`` is added to it.

        Returns
        -------
        Sequence of Decision
            In order; empty if none came in time.

        Raises
        ------
        Refused
            With reason ``forgotten``: the service keeps the last thousand decisions, and some since ``after`` are gone.
        """
        asked = {"after": after, "wait_s": wait_s}
        found = self._call("GET", "/decisions", params=asked, wait_s=wait_s)
        return [Decision.model_validate(each) for each in found]

    def follow(self, after: int = 0) -> Iterator[Decision]:
        """Yield all decisions after a given one, without end.

        Parameters
        ----------
        after
            Number of the last decision that is known, at least 0.

        Raises
        ------
        Refused
            As for `decisions`.
        """
        while True:
            for decision in self.decisions(after, wait_s=10.0):
                after = decision.number
                yield decision

    # Questions ---------------------------------------------------------------------------------------------------
    def placements(self) -> Places:
        """Return all running tasks with their machines, as of the last decision."""
        return Places.model_validate(self._call("GET", "/placements"))

    def task(self, name: str) -> Place:
        """Return where a task runs, or why it waits.

        Parameters
        ----------
        name
            Name of the task; the service refuses unknown names, such as that of a task that has ended.
        """
        return Place.model_validate(self._call("GET", "/task", params={"name": name}))

    def explain(self, task: str) -> Explained:
        """Explain why a task waits, what would place it, and at what cost.

        Parameters
        ----------
        task
            Name of a waiting task; the service refuses running and unknown tasks.
        """
        return Explained.model_validate(self._call("GET", "/explanation", params={"task": task}))


def _key(key: str | None = None) -> dict[str, str]:
    return {"Idempotency-Key": key or uuid.uuid4().hex}
