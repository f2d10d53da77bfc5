"""Machines in a tree of nested blocks: "all machines except these" takes a few arcs per block, not one per machine.

The path of a machine leads from the cluster through blocks of racks to its rack, and through blocks of machines to the
machine; each block has at most 32 children (the first and the fourth level: any number). To exclude a machine or a
rack, a group gets arcs to all siblings along its path: about 32 per level. Arcs of blocks have no cost and no binding
capacity, so the network stays exact: a task that enters a block may run on any machine in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

Path = tuple[int, ...]

#: Number of bits per level; a block has 2^5 children.
_BITS = 5


class _Numbers:
    """A pool of integers: `take` returns the least free one, `give` frees one."""

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
    """Numbers of racks, and of machines in their rack; numbers of removed ones are reused."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[str, int]] = {}  # machine: rack, number there
        self._numbers, self._racks, self._inside = _Numbers(), dict[str, int](), dict[str, _Numbers]()

    def add(self, machine: str, rack: str) -> None:
        """Number a machine; if it is already in this rack, it keeps its number."""
        if machine in self.places:
            if self.places[machine][0] == rack:
                return
            self.remove(machine)
        if rack not in self._racks:
            self._racks[rack], self._inside[rack] = self._numbers.take(), _Numbers()
        self.places[machine] = rack, self._inside[rack].take()

    def remove(self, machine: str) -> None:
        """Remove a machine, and its rack if this was the last machine."""
        rack, number = self.places.pop(machine)
        self._inside[rack].give(number)
        if not self._inside[rack].used:
            self._numbers.give(self._racks.pop(rack))
            del self._inside[rack]

    def path(self, machine: str) -> Path:
        """Path from the root of the tree to a machine."""
        rack, number = self.places[machine]
        return (*_digits(self._racks[rack]), *_digits(number))

    def holes(self, tags: Iterable[str]) -> set[Path]:
        """Paths of the present machines and racks among these tags."""
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
        """Add a machine; return the new arcs (block, child block or machine), innermost first."""
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

    def cover(self, holes: set[Path]) -> Iterator[Path]:
        """Iterate over the largest blocks, and machines, that together contain all machines except the holes."""
        cut = outside(holes)
        left: list[Path] = [()]
        while left:
            for inner in self.children[left.pop()]:
                if inner in holes:
                    continue
                if inner in cut:
                    left.append(inner)
                else:
                    yield inner


def outside(holes: set[Path]) -> set[Path]:
    """Proper prefixes of the holes: the blocks that contain a hole and other machines."""
    return {path[:k] for path in holes for k in range(len(path))}
