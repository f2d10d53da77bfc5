"""Shared state of the routes of a served scheduler, and the transfer of events to the decision thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Header, Request
from fastapi.concurrency import run_in_threadpool

from flowlex.service.decision_thread import Worker
from flowlex.service.prometheus_metrics import Metrics
from flowlex.service.request_documents import Decision, Taken
from flowlex.service.scheduler_protocol import Core, Document
from flowlex.telemetry.access_rights import refuse_other_node, require
from flowlex.telemetry.request_limits import RateLimit
from flowlex.telemetry.response_models import Problem, refuse
from flowlex.telemetry.service_context import Settings
from flowlex.telemetry.store import Store
from flowlex.telemetry.tokens_and_rights import Identity, Role, TokenBook

T = TypeVar("T")
C = TypeVar("C", bound=Core)
#: Most decisions cached as JSON.
_MOST_JSON = 1000
#: Most seconds of a query; the cost in an explanation under rules takes 20 at most.
_READ_S = 60.0
#: Documented on routes that change state.
REFUSED: dict[int | str, dict[str, Any]] = {409: {"model": Problem, "description": "It does not fit the state"}}
Writer = Annotated[Identity, Depends(require(Role.ADMIN, Role.AGENT))]
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=100,
        description="Names this request; sent again with the same name it is answered as before and not taken twice.",
    ),
]


class Served(Generic[C]):
    """Shared state of the routes; it has the attributes that `flowlex.telemetry.access_rights` uses."""

    def __init__(self, worker: Worker[C], store: Store, settings: Settings) -> None:
        self.settings: Settings
        self.worker, self.store, self.settings = worker, store, settings
        self.metrics: Metrics = worker.metrics
        self.tokens: TokenBook = TokenBook(store)
        self.rate: RateLimit = RateLimit(settings.requests_per_s)
        self._json: dict[tuple[int, bool], bytes] = {}

    async def write(self, function: Callable[[], T]) -> T:
        """Change the store of tokens."""
        return await run_in_threadpool(function)

    async def ask(self, job: Callable[[C], T], *, replicated: bool = True) -> T:
        """Run a job on the scheduler's thread; its changes are on disk when this returns."""
        result: T = await asyncio.wrap_future(self.worker.call(job, replicated=replicated))
        return result

    async def read(self, question: str, *arguments: Any) -> bytes:
        """Query the reader process; return its answer as JSON."""
        return await asyncio.wait_for(asyncio.wrap_future(self.worker.ask(question, *arguments)), _READ_S)

    def json_of(self, decision: Document) -> bytes:
        """Return a decision as JSON, serialised once for all readers."""
        key = decision["number"], bool(decision.get("reread"))
        if key not in self._json:
            while len(self._json) >= _MOST_JSON:
                del self._json[next(iter(self._json))]
            self._json[key] = Decision.model_validate(decision).model_dump_json(exclude_none=True).encode()
        return self._json[key]


def served(request: Request) -> Any:
    """Return the application's service."""
    return request.app.state.service


ServedDep = Annotated[Any, Depends(served)]


async def hand_over(
    service: Any, who: Identity, events: Iterable[Any], key: str, node_of: Callable[[Any, dict[str, str]], str]
) -> Taken:
    """Take events in order; answer 409 at the first that does not fit, with the number taken before it.

    An agent's token may send those of its own node: ``node_of`` returns the node of an event, given those of tasks.
    """
    if who.role is Role.AGENT and who.digest:
        tasks = [event.task for event in events if hasattr(event, "task")]
        where = json.loads(await service.read("nodes_of", tasks)) if tasks else {}
        for event in events:
            refuse_other_node(who, node_of(event, where))
    documents = [event.model_dump(mode="json", exclude_unset=True) for event in events]
    taken = await service.ask(lambda core: service.worker.take(documents, key))
    if taken.refused:
        said = f"events[{taken.taken}]: {taken.refused}; the {taken.taken} before it are taken"
        raise refuse(409, "refused", said, taken=taken.taken)
    return Taken(taken=taken.taken)
