"""Events from requests to the worker, in order, up to the first that is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Header

from flowlex.service.documents import Taken
from flowlex.telemetry.answers import refuse

__all__ = ["Key", "hand_over"]

Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=100,
        description="Names this request; sent again with the same name it is answered as before and not taken twice.",
    ),
]


async def hand_over(service: Any, events: Iterable[Any], key: str) -> Taken:
    """Take events one after the other; answers 409 at the first that does not fit, saying how many are taken."""
    documents = [event.model_dump(mode="json", exclude_unset=True) for event in events]
    taken = await service.ask(lambda core: service.worker.take(documents, key))
    if taken.refused:
        said = f"events[{taken.taken}]: {taken.refused}; the {taken.taken} before it are taken"
        raise refuse(409, "refused", said, taken=taken.taken)
    return Taken(taken=taken.taken)
