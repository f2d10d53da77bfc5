"""Client of the service: one method per route, two exceptions for errors."""

from __future__ import annotations

import logging
import os
import random
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel

from flowlex.systems.telemetry.request_documents import (
    AgentHello,
    AgentState,
    Assignments,
    Heartbeat,
    HistoryAnswer,
    Holder,
    Inputs,
    Reading,
    Readings,
    Registered,
    Registration,
    Running,
    Sample,
    TokenSecret,
    WriteAnswer,
    WriteBatch,
)

_LOG = logging.getLogger(__name__)
DocumentT = TypeVar("DocumentT", bound=BaseModel)
#: Seconds until a connection stands.
_CONNECT_S = 3.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Unreachable(Exception):
    """The service did not answer or failed; trying again later may help.

    Attributes
    ----------
    wait_s
        Seconds after which the service asked to retry; 0 if it did not say.
    """

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        self.wait_s = wait_s
        super().__init__(message)


class Refused(Exception):
    """The service refused the request; repeating it does not help.

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


def replace_token(path: Path, token: str) -> None:
    """Write a token to its file atomically, readable by the owner only."""
    new = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        stream.write(f"{token}\n")
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(path)


def _verify(ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:
        raise ValueError(f"{ca_file} holds no certificates: {error.strerror or error}") from error


class Backoff:
    """Exponential backoff from ``first_s`` to ``most_s``, with random jitter so that agents spread out."""

    def __init__(self, first_s: float = 0.5, most_s: float = 30.0, seed: int | None = None) -> None:
        self._first = first_s
        self._most = most_s
        self._next = first_s
        self._random = random.Random(seed)

    def next(self) -> float:
        """Return the seconds to wait after another failure."""
        wait, self._next = self._next, min(self._most, 2 * self._next)
        return wait * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Reset after a success."""
        self._next = self._first


class TelemetryClient:
    """A connection to one service, ``http://host:port``; may be used from several threads.

    ``ca_file`` names CA certificates (PEM) for the service (None: those of the system), ``transport`` another httpx
    transport (tests).
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = 10.0,
        ca_file: Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is not a service address; give http://host:port")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if token and url.startswith("http://") and httpx.URL(url).host not in _LOOPBACK:
            _LOG.warning("the token travels to %s in clear; serve with TLS and use https://", httpx.URL(url).host)
        self.url: str = url.rstrip("/")
        # trust_env off: a proxy from the environment must not see the token, and .netrc must not replace it.
        self._http = httpx.Client(
            base_url=f"{self.url}/v1",
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
            transport=transport,
            trust_env=False,
            verify=_verify(ca_file),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def call(self, method: str, path: str, **more: Any) -> Any:
        """Call a route below ``/v1``; return its JSON (None if empty)."""
        try:
            response = self._http.request(method, path, **more)
        except (httpx.TransportError, ssl.SSLError) as error:
            reason = str(error) or type(error).__name__
            if "CERTIFICATE_VERIFY_FAILED" in reason:
                reason += "; --ca-file (or $FLOWLEX_TELEMETRY_CA) names the certificates that vouch for it"
            raise Unreachable(f"{self.url} does not answer: {reason}") from error
        if response.status_code >= 500 or response.status_code == 429:
            raise Unreachable(f"{self.url} answered {response.status_code}", _retry_after(response))
        if response.status_code >= 400:
            raise _refusal(response)
        if response.status_code >= 300:  # never followed: the token is for this address
            raise Unreachable(f"{self.url} answered with a redirection; give the address that it leads to")
        try:
            return response.json() if response.content else None
        except ValueError as error:
            raise Unreachable(f"{self.url} answered something else than JSON; is it the service?") from error

    def use_token(self, token: str) -> None:
        """Use another token from now on."""
        self._http.headers["Authorization"] = f"Bearer {token}"

    def _ask(self, kind: type[DocumentT], method: str, path: str, **more: Any) -> DocumentT:
        return kind.model_validate(self.call(method, path, **more))

    # Registration

    def add(self, registration: Registration) -> Registered:
        """Register under a new name."""
        return self._ask(Registered, "POST", "/registrations", json=registration.model_dump(mode="json"))

    def update(self, registration: Registration) -> Registered:
        """Replace a registration."""
        document = registration.model_dump(mode="json")
        return self._ask(Registered, "PUT", f"/registrations/{registration.name}", json=document)

    def remove(self, name: str) -> None:
        """Remove a registration."""
        self.call("DELETE", f"/registrations/{name}")

    def registrations(self) -> list[Running]:
        """List all registrations with the nodes that run them."""
        return [Running.model_validate(item) for item in self.call("GET", "/registrations")]

    # Management

    def agents(self) -> list[AgentState]:
        """List the nodes."""
        return [AgentState.model_validate(item) for item in self.call("GET", "/agents")]

    def introduce(self, node: str, hello: AgentHello) -> Assignments:
        """Register an agent and return its work."""
        return self._ask(Assignments, "PUT", f"/agents/{node}", json=hello.model_dump())

    def heartbeat(self, node: str, beat: Heartbeat) -> str:
        """Report that an agent is alive; return the revision of its assignments."""
        return str(self.call("POST", f"/agents/{node}/heartbeat", json=beat.model_dump())["revision"])

    def assignments(self, node: str) -> Assignments:
        """Return what a node should run."""
        return self._ask(Assignments, "GET", f"/agents/{node}/assignments")

    def inputs(self, node: str, name: str) -> Inputs:
        """Return what a processor reads."""
        return self._ask(Inputs, "GET", f"/agents/{node}/inputs/{name}")

    # Data

    def write(self, node: str, samples: Iterable[Sample], source: str | None = None) -> WriteAnswer:
        """Store samples; they are on disk when this returns."""
        batch = WriteBatch.model_construct(node=node, source=source, samples=list(samples))
        return self._ask(WriteAnswer, "POST", "/data", json=batch.model_dump(mode="json"))

    def last(self, name: str, node: str, max_age: float | None = None) -> Reading:
        """Return the last value; `Refused` with reason ``stale`` when it is older than ``max_age`` seconds."""
        return self._ask(Reading, "GET", f"/data/{name}/{node}", params=_given(max_age=max_age))

    def read(self, names: Iterable[str] = (), nodes: Iterable[str] = (), max_age: float | None = None) -> Readings:
        """Return the last values of many names and nodes (none given: all), page by page."""
        params = _given(name=list(names), node=list(nodes), max_age=max_age)
        found = self._ask(Readings, "GET", "/data", params=params)
        while found.next is not None:
            page = self._ask(Readings, "GET", "/data", params=params | {"after": found.next})
            found.readings += page.readings
            found.no_value += page.no_value
            found.missing += page.missing
            found.next = page.next
        return found

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
        params = _given(name=list(names), node=list(nodes), since=since, until=until, limit=limit)
        return self._ask(HistoryAnswer, "GET", "/history", params=params)

    def remove_series(self, name: str, node: str) -> dict[str, int]:
        """Delete a series with its history; return the numbers of deleted rows."""
        return dict(self.call("DELETE", f"/data/{name}/{node}"))

    def remove_node(self, node: str) -> dict[str, int]:
        """Delete a node with all its data; return the numbers of deleted rows."""
        return dict(self.call("DELETE", f"/nodes/{node}"))

    # Tokens

    def whoami(self) -> Holder:
        """Return what this client's token may do."""
        return self._ask(Holder, "GET", "/whoami")

    def rotate(self) -> TokenSecret:
        """Exchange this client's token for its successor, and use that from now on."""
        new = self._ask(TokenSecret, "POST", "/rotate")
        self.use_token(new.token)
        return new


def _given(**params: Any) -> dict[str, Any]:
    """Drop parameters that are None, which httpx would send as empty."""
    return {name: value for name, value in params.items() if value is not None}


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return min(60.0, float(text)) if text.isdigit() else 0.0


def _refusal(response: httpx.Response) -> Refused:
    try:
        detail = response.json()["detail"]
        if isinstance(detail, list):
            first = detail[0]
            if first["loc"] == ["request"]:
                return Refused(response.status_code, first["type"], first["msg"])
            place = ".".join(str(step) for step in first["loc"][1:])
            return Refused(response.status_code, "invalid", f"{place}: {first['msg']}")
        return Refused(response.status_code, detail["reason"], detail["message"])
    except (ValueError, KeyError, IndexError, TypeError):
        return Refused(response.status_code, "refused", f"{response.url.path} was refused")
