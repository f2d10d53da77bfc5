"""Machines in nested blocks, so that "all machines but these" takes an arc per block beside them, not per machine.

A machine's path leads from the whole cluster through blocks of racks to its rack, and through blocks of machines there
to itself; each step has at most 32 ways (the first and the fourth as many as it takes). Leaving a machine or a rack out
means to enter every block beside its path: about 32 arcs a level. Blocks hand tasks on without limit or cost, so the
network stays exact: what enters a block may run on any machine inside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

__all__ = ["Blocks", "Layout", "Path"]

Path = tuple[int, ...]

#: Ways from one block to the next, as bits.
_BITS = 5


class _Numbers:
    """Whole numbers to be taken, the least first, and given back."""

    def __init__(self) -> None:
        self._next, self._free = 0, list[int]()

    @property
    def used(self) -> int:
        return self._next - len(self._free)

    def take(self) -> int:
        if self._free:
            return heappop(self._free)
        self._next += 1
        return self._next - 1

    def give(self, number: int) -> None:
        heappush(self._free, number)


class Layout:
    """Numbers of racks, and of machines in their rack; those of what has left are used again."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[str, int]] = {}  # machine: rack, number there
        self._numbers, self._racks, self._inside = _Numbers(), dict[str, int](), dict[str, _Numbers]()

    def add(self, machine: str, rack: str) -> None:
        """Give a machine its place; one that stands in the rack already stays."""
        if machine in self.places:
            if self.places[machine][0] == rack:
                return
            self.remove(machine)
        if rack not in self._racks:
            self._racks[rack], self._inside[rack] = self._numbers.take(), _Numbers()
        self.places[machine] = rack, self._inside[rack].take()

    def remove(self, machine: str) -> None:
        """Forget a machine, and with its last machine a rack."""
        rack, number = self.places.pop(machine)
        self._inside[rack].give(number)
        if not self._inside[rack].used:
            self._numbers.give(self._racks.pop(rack))
            del self._inside[rack]

    def path(self, machine: str) -> Path:
        """Steps from the whole cluster to a machine."""
        rack, number = self.places[machine]
        return (*_digits(self._racks[rack]), *_digits(number))

    def holes(self, tags: Iterable[str]) -> set[Path]:
        """Paths of the machines and racks that are named and here."""
        found = set()
        for tag in tags:
            kind, _, name = tag.partition(":")
            if kind == "machine" and name in self.places:
                found.add(self.path(name))
            elif kind == "rack" and name in self._racks:
                found.add(_digits(self._racks[name]))
        return found


def _digits(number: int) -> Path:
    return number >> 2 * _BITS, number >> _BITS & (1 << _BITS) - 1, number & (1 << _BITS) - 1


class Blocks:
    """The blocks that hold machines of one spot."""

    def __init__(self) -> None:
        self.children: dict[Path, dict[Path, None]] = {(): {}}
        self.paths: dict[str, Path] = {}
        self.names: dict[Path, str] = {}

    def add(self, machine: str, path: Path) -> list[tuple[Path, Path]]:
        """Put a machine in; returns the steps (block, block or machine inside it) that are new, inner ones first."""
        self.paths[machine], self.names[path] = path, machine
        new = []
        for end in range(len(path), 0, -1):
            block, inner = path[: end - 1], path[:end]
            known = block in self.children
            self.children.setdefault(block, {})[inner] = None
            new.append((block, inner))
            if known:
                break
        return new

    def remove(self, machine: str) -> list[tuple[Path, Path]]:
        """Take a machine out; returns the steps that are gone, inner ones first."""
        path = self.paths.pop(machine)
        del self.names[path]
        gone = []
        for end in range(len(path), 0, -1):
            block, inner = path[: end - 1], path[:end]
            del self.children[block][inner]
            gone.append((block, inner))
            if self.children[block] or not block:
                break
            del self.children[block]
        return gone

    def cover(self, holes: set[Path]) -> Iterator[Path]:
        """The largest blocks, and machines, that together are all but the holes."""
        cut = _outside(holes)
        left: list[Path] = [()]
        while left:
            for inner in self.children[left.pop()]:
                if inner in holes:
                    continue
                if inner in cut:
                    left.append(inner)
                else:
                    yield inner

    @staticmethod
    def entry(path: Path, holes: set[Path]) -> Path | None:
        """The one member of a `cover` that holds a machine; None for a machine left out."""
        cut = _outside(holes)
        for end in range(1, len(path) + 1):
            if path[:end] in holes:
                return None
            if path[:end] not in cut:
                return path[:end]
        return None


def _outside(holes: set[Path]) -> set[Path]:
    """The blocks around the holes, that are cut through."""
    return {path[:k] for path in holes for k in range(len(path))}
