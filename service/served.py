"""What all routes of a served scheduler share, and how their events reach the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Header, Request
from fastapi.concurrency import run_in_threadpool

from flowlex.service.documents import Decision, Taken
from flowlex.service.metrics import Metrics
from flowlex.service.scheduler_protocol import Core, Document
from flowlex.service.worker import Worker
from flowlex.telemetry.answers import Problem, refuse
from flowlex.telemetry.request_limits import RateLimit
from flowlex.telemetry.rights import refuse_other_node, require
from flowlex.telemetry.security import Identity, Role, TokenBook
from flowlex.telemetry.service import Settings
from flowlex.telemetry.store import Store

__all__ = ["REFUSED", "Key", "Served", "ServedDep", "Writer", "hand_over", "served"]

T = TypeVar("T")
C = TypeVar("C", bound=Core)
#: Decisions kept as JSON.
_MOST_JSON = 1000
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
    """What the routes share; names that `flowlex.telemetry.rights` uses are the same there."""

    def __init__(self, worker: Worker[C], store: Store, settings: Settings) -> None:
        self.settings: Settings
        self.worker, self.store, self.settings = worker, store, settings
        self.metrics: Metrics = worker.metrics
        self.tokens: TokenBook = TokenBook(store)
        self.rate: RateLimit = RateLimit(settings.requests_per_s)
        self._readers = ThreadPoolExecutor(1, "reader")
        self._answering = False  # a question of `read_alone`; the event loop's own
        self._json: dict[tuple[int, bool], bytes] = {}

    async def write(self, function: Callable[[], T]) -> T:
        """Change the store of tokens."""
        return await run_in_threadpool(function)

    async def ask(self, job: Callable[[C], T], *, replicated: bool = True) -> T:
        """Run a job on the scheduler's thread; what it changed is on disk when this returns."""
        result: T = await asyncio.wrap_future(self.worker.call(job, replicated=replicated))
        return result

    async def view(self, task: str | None = None) -> Any:
        """What readers may see of the last decision; of now, where that does not know a task yet."""
        return await asyncio.wrap_future(self.worker.view(lambda view: task is None or task in view))

    async def read(self, question: Callable[[], T]) -> T:
        """Answer a question that takes long, one at a time and between decisions, which keep the processor so."""

        def between() -> T:
            self.worker.between_decisions.wait(1.0)
            return question()

        return await asyncio.get_running_loop().run_in_executor(self._readers, between)

    async def read_alone(self, question: Callable[[], T], otherwise: T) -> T:
        """Answer a question that takes seconds; ``otherwise`` at once while another one is being answered."""
        if self._answering:
            return otherwise
        self._answering = True
        try:
            return await run_in_threadpool(question)
        finally:
            self._answering = False

    def json_of(self, decision: Document) -> bytes:
        """A decision as JSON, written once for all readers."""
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
    service: Any, who: Identity, events: Iterable[Any], key: str, node_of: Callable[[Any, Any], str]
) -> Taken:
    """Take events one after the other; answers 409 at the first that does not fit, saying how many are taken.

    An agent's token may send those of its own node: ``node_of`` says whose an event is, as of what readers see.
    """
    if who.role is Role.AGENT and who.digest:
        view = await service.view()
        for event in events:
            refuse_other_node(who, node_of(event, view))
    documents = [event.model_dump(mode="json", exclude_unset=True) for event in events]
    taken = await service.ask(lambda core: service.worker.take(documents, key))
    if taken.refused:
        said = f"events[{taken.taken}]: {taken.refused}; the {taken.taken} before it are taken"
        raise refuse(409, "refused", said, taken=taken.taken)
    return Taken(taken=taken.taken)
