"""Calls the service: one method per route, errors as two exceptions."""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import httpx

from flowlex.telemetry.schemas import (
    AgentHello,
    AgentState,
    Assignments,
    Heartbeat,
    HistoryAnswer,
    Inputs,
    Reading,
    Readings,
    Registration,
    Sample,
    WriteAnswer,
    WriteBatch,
)

__all__ = ["Backoff", "Refused", "TelemetryClient", "Unreachable"]


class Unreachable(Exception):
    """The service did not answer, or is out of order; trying again later may help."""


class Refused(Exception):
    """The service answered that it will not; trying the same again does not help.

    Attributes
    ----------
    status
        HTTP status.
    reason
        The word for programs: ``stale``, ``unknown``, ``no_right``...
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(f"{message} ({status} {reason})")


class Backoff:
    """Waits that double from ``first_s`` to ``most_s``, each shortened at random so that agents spread out."""

    def __init__(self, first_s: float = 0.5, most_s: float = 30.0, seed: int | None = None) -> None:
        self._first = first_s
        self._most = most_s
        self._next = first_s
        self._random = random.Random(seed)

    def next(self) -> float:
        """Return how long to wait after one more failure, in seconds."""
        wait, self._next = self._next, min(self._most, 2 * self._next)
        return wait * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin anew after a success."""
        self._next = self._first


class TelemetryClient:
    """A connection to one service; may be used from several threads.

    Parameters
    ----------
    url
        ``http://host:port``.
    token
        Sent as a bearer token; never logged.
    transport
        Another httpx transport (tests).
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is not a service address; give http://host:port")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url: str = url.rstrip("/")
        # trust_env off: a proxy variable must not see the token, nor .netrc replace it.
        self._http = httpx.Client(
            base_url=f"{self.url}/v1", headers=headers, timeout=timeout_s, transport=transport, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _call(self, method: str, path: str, **more: Any) -> Any:
        try:
            response = self._http.request(method, path, **more)
        except (httpx.TransportError, ssl.SSLError) as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(f"{self.url} does not answer: {reason}") from error
        if response.status_code >= 500 or response.status_code == 429:
            raise Unreachable(f"{self.url} answered {response.status_code}")
        if response.status_code >= 400:
            raise _refusal(response)
        try:
            return response.json() if response.content else None
        except ValueError as error:
            raise Unreachable(f"{self.url} answered something else than JSON; is it the service?") from error

    # Registration

    def add(self, registration: Registration) -> Registration:
        """Register under a new name."""
        answer = self._call("POST", "/registrations", json=registration.model_dump(mode="json"))
        return Registration.model_validate(answer)

    def update(self, registration: Registration) -> Registration:
        """Replace a registration."""
        path = f"/registrations/{registration.name}"
        return Registration.model_validate(self._call("PUT", path, json=registration.model_dump(mode="json")))

    def remove(self, name: str) -> None:
        """Remove a registration."""
        self._call("DELETE", f"/registrations/{name}")

    def registration(self, name: str) -> Registration:
        """Read one registration."""
        return Registration.model_validate(self._call("GET", f"/registrations/{name}"))

    def registrations(self) -> list[Registration]:
        """List all registrations."""
        return [Registration.model_validate(item) for item in self._call("GET", "/registrations")]

    # Management

    def agents(self) -> list[AgentState]:
        """List the nodes."""
        return [AgentState.model_validate(item) for item in self._call("GET", "/agents")]

    def introduce(self, node: str, hello: AgentHello) -> Assignments:
        """Register an agent and return its work."""
        return Assignments.model_validate(self._call("PUT", f"/agents/{node}", json=hello.model_dump()))

    def heartbeat(self, node: str, beat: Heartbeat) -> str:
        """Say that an agent lives and return the revision of its work."""
        revision: str = self._call("POST", f"/agents/{node}/heartbeat", json=beat.model_dump())["revision"]
        return revision

    def assignments(self, node: str) -> Assignments:
        """Return what a node should run."""
        return Assignments.model_validate(self._call("GET", f"/agents/{node}/assignments"))

    def inputs(self, node: str, name: str) -> Inputs:
        """Return what a processor reads."""
        return Inputs.model_validate(self._call("GET", f"/agents/{node}/inputs/{name}"))

    # Data

    def write(self, node: str, samples: Iterable[Sample], source: str | None = None) -> WriteAnswer:
        """Store samples; they are on disk when this returns."""
        batch = WriteBatch.model_construct(node=node, source=source, samples=list(samples))
        return WriteAnswer.model_validate(self._call("POST", "/data", json=batch.model_dump(mode="json")))

    def last(self, name: str, node: str, max_age: float | None = None) -> Reading:
        """Return the last value; `Refused` with reason ``stale`` when it is older than ``max_age`` seconds."""
        params = {} if max_age is None else {"max_age": max_age}
        return Reading.model_validate(self._call("GET", f"/data/{name}/{node}", params=params))

    def read(self, names: Iterable[str] = (), nodes: Iterable[str] = (), max_age: float | None = None) -> Readings:
        """Return the last values of many names and nodes (none given: all)."""
        params: dict[str, Any] = {"name": list(names), "node": list(nodes)}
        if max_age is not None:
            params["max_age"] = max_age
        return Readings.model_validate(self._call("GET", "/data", params=params))

    def history(
        self,
        names: Iterable[str] = (),
        nodes: Iterable[str] = (),
        *,
        since: float = 0.0,
        until: float | None = None,
        limit: int = 10_000,
    ) -> HistoryAnswer:
        """Return the samples of a time window."""
        params: dict[str, Any] = {"name": list(names), "node": list(nodes), "since": since, "limit": limit}
        if until is not None:
            params["until"] = until
        return HistoryAnswer.model_validate(self._call("GET", "/history", params=params))


def _refusal(response: httpx.Response) -> Refused:
    try:
        detail = response.json()["detail"]
        if isinstance(detail, list):
            first = detail[0]
            place = ".".join(str(step) for step in first["loc"][1:])
            return Refused(response.status_code, "invalid", f"{place}: {first['msg']}")
        return Refused(response.status_code, detail["reason"], detail["message"])
    except (ValueError, KeyError, IndexError, TypeError):
        return Refused(response.status_code, "refused", f"{response.url.path} was refused")
