"""Events from requests to the worker, in order, up to the first that is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flowlex.service.core import RefusedEvent
from flowlex.service.documents import Taken
from flowlex.telemetry.answers import refuse

__all__ = ["hand_over"]


async def hand_over(service: Any, events: Iterable[Any]) -> Taken:
    """Take events one after the other; answers 409 at the first that does not fit, saying how many are taken."""
    documents = [event.model_dump(mode="json", exclude_unset=True) for event in events]
    worker, taken = service.worker, 0

    def job(core: Any) -> str:
        nonlocal taken
        for document in documents:
            try:
                worker.take(document)
            except RefusedEvent as error:
                return str(error)
            taken += 1
        return ""

    refused = await service.ask(job)
    if refused:
        raise refuse(409, "refused", f"events[{taken}]: {refused}; the {taken} before it are taken", taken=taken)
    return Taken(taken=taken)
