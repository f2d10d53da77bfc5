"""Tables that create an entry once, when a test first uses it, instead of at collection."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from flowlex.instances.instance_base import Instance
from flowlex.models import solve

T = TypeVar("T")


class MadeOnce(Mapping[str, T]):
    """Entries by name; ``make(name)`` makes one."""

    def __init__(self, names: Iterable[str], make: Callable[[str], T]) -> None:
        self._made: dict[str, T | None] = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: str) -> T:
        made = self._made[name]
        if made is None:
            made = self._made[name] = self._make(name)
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def solved(instance: Instance, engine: str, **options: Any) -> dict[str, Any]:
    """Return the solution of an instance as it is stored in a file."""
    document: dict[str, Any] = json.loads(json.dumps(solve(instance, engine, **options).to_dict()))
    return document
