"""Incremental DIMACS: rounds of changes to a network, read from a stream as they arrive.

The format that Firmament sends to its solver Flowlessly, as the sources of both define it (src/graphs/graph.cc;
src/scheduling/flow/dimacs_*.cc)::

    c EOI                                            the round ends here: solve
    c EOS                                            the stream ends here
    p min NODES ARCS                                 the first line; nodes 1 to NODES exist from the start
    n NODE SUPPLY [TYPE]                             a new node, or a new supply of an existing node
    a TAIL HEAD LOWER CAPACITY COST [TYPE]           a new arc
    x TAIL HEAD LOWER CAPACITY COST [TYPE [OLD]]     changes an arc; capacity 0 removes it, a missing arc is added
    d SUPPLY POTENTIAL ARCS [TYPE]                   a new node that takes the least free number; its arcs follow as
                                                     ``a`` lines, in which 0 stands for it
    r NODE                                           removes a node and all its arcs

Types of nodes: 0 other, 1 task, 2 place (leads to the sink), 3 sink. The type of an arc says whether a task runs there.
Arc types and POTENTIAL are hints to Flowlessly and do not change the optimum. Among parallel arcs, OLD (the previous
cost) identifies the one meant. Capacity -1 means no upper bound, as in our DIMACS files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn, TypeAlias

from flowlex.instances.input_errors import InstanceError

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_LONGEST = 1000
_TYPES = range(4)


class SetNode(NamedTuple):
    """An ``n`` line; ``type`` is None where it is not given."""

    line: int
    node: int
    supply: int
    type: int | None


class AddArc(NamedTuple):
    """An ``a`` line; ``capacity`` is None for no upper bound."""

    line: int
    tail: int
    head: int
    lower: int
    capacity: int | None
    cost: int


class ChangeArc(NamedTuple):
    """An ``x`` line; ``old`` is the previous cost, None if it is not given."""

    line: int
    tail: int
    head: int
    lower: int
    capacity: int | None
    cost: int
    old: int | None


class NewNode(NamedTuple):
    """A ``d`` line with the arcs that follow it; node 0 in them is the new node."""

    line: int
    supply: int
    type: int | None
    arcs: tuple[AddArc, ...]


class RemoveNode(NamedTuple):
    """An ``r`` line."""

    line: int
    node: int


Change: TypeAlias = SetNode | AddArc | ChangeArc | NewNode | RemoveNode


@dataclass
class Round:
    """The changes between two solves."""

    number: int  # from 1
    line: int = 0  # number of the line that ends it
    nodes: int | None = None  # number of nodes that the problem line declares; None after the first round
    changes: list[Change] = field(default_factory=list)


def rounds(lines: Iterable[bytes]) -> Iterator[Round]:
    """Read a stream and yield each round as soon as its last line has arrived.

    Lines after the last ``c EOI`` form a round, so a plain DIMACS file is one round.

    Examples
    --------
    >>> log = [b"p min 2 1", b"n 1 1", b"n 2 -1", b"a 1 2 0 1 5", b"c EOI", b"x 1 2 0 1 4", b"c EOI"]
    >>> [len(each.changes) for each in rounds(log)]
    [3, 1]
    """
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        reader.number = number
        if len(line) > _LONGEST:
            refuse_line(number, f"it has more than {_LONGEST} bytes")
        text = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).decode("utf-8", "backslashreplace").strip()
        if text == "c EOS":
            return
        if text == "c EOI":
            yield reader.end()
        elif text and text[0] != "c":
            reader.take(text)
    if reader.round.changes or reader.wanted or reader.round.nodes is not None:
        yield reader.end()
    elif not reader.started:
        refuse_line(max(1, reader.number), "the stream ends without a problem line 'p min NODES ARCS'")


class _Reader:
    """Parser state: the current round, and the number of arcs that the last ``d`` line still expects."""

    def __init__(self) -> None:
        self.number = 0
        self.round = Round(1)
        self.started = False
        self.wanted = 0
        self.head: tuple[int, int, int | None] = (0, 0, None)  # line, supply, type of the last d line
        self.arcs: list[AddArc] = []

    def end(self) -> Round:
        if self.wanted:
            refuse_line(self.number, f"{self.wanted} arcs of the new node of line {self.head[0]} are missing")
        if not self.started:
            refuse_line(self.number, "a round ends before the problem line 'p min NODES ARCS'")
        done, done.line = self.round, self.number
        self.round = Round(done.number + 1)
        return done

    def take(self, text: str) -> None:
        letter, found = read_line(self.number, text, _FORMS)
        if letter != "p" and not self.started:
            refuse_line(self.number, "before it there must be a problem line 'p min NODES ARCS'")
        if self.wanted and letter not in "ap":
            refuse_line(self.number, f"{self.wanted} arcs of the new node of line {self.head[0]} must come first")
        getattr(self, f"_{letter}")(found)

    def _p(self, found: list[int]) -> None:
        if self.started:
            refuse_line(self.number, "a second problem line; a stream is one network that changes")
        if min(found) < 0:
            refuse_line(self.number, "numbers of nodes and arcs must not be negative")
        self.started, self.round.nodes = True, found[0]

    def _n(self, found: list[int]) -> None:
        node, supply = found[:2]
        self.round.changes.append(SetNode(self.number, self._node(node), supply, self._type(found[2:])))

    def _a(self, found: list[int]) -> None:
        tail, head, *bounds = found[:5]
        if not self.wanted:
            arc = AddArc(self.number, self._node(tail), self._node(head), *self._bounds(*bounds))
            self.round.changes.append(arc)
            return
        if (tail == 0) == (head == 0):
            refuse_line(self.number, f"one end must be 0, the new node of line {self.head[0]}")
        self.arcs.append(AddArc(self.number, tail, head, *self._bounds(*bounds)))
        self.wanted -= 1
        if not self.wanted:
            self._made()

    def _x(self, found: list[int]) -> None:
        tail, head, *bounds = found[:5]
        ends = self._node(tail), self._node(head)
        old = found[6] if len(found) == 7 else None
        lower, capacity, cost = self._bounds(*bounds)
        self.round.changes.append(ChangeArc(self.number, *ends, lower, capacity, cost, old))

    def _d(self, found: list[int]) -> None:
        supply, _, arcs = found[:3]
        if arcs < 0:
            refuse_line(self.number, f"{arcs} arcs; the number must not be negative")
        self.head, self.arcs, self.wanted = (self.number, supply, self._type(found[3:])), [], arcs
        if not arcs:
            self._made()

    def _made(self) -> None:
        line, supply, kind = self.head
        self.round.changes.append(NewNode(line, supply, kind, tuple(self.arcs)))

    def _r(self, found: list[int]) -> None:
        self.round.changes.append(RemoveNode(self.number, self._node(found[0])))

    def _node(self, number: int) -> int:
        if number < 1:
            refuse_line(self.number, f"nodes are numbered from 1, this is {number}")
        return number

    def _type(self, given: list[int]) -> int | None:
        if given and given[0] not in _TYPES:
            refuse_line(self.number, f"type {given[0]}; a node is 0 other, 1 task, 2 place or 3 sink")
        return given[0] if given else None

    def _bounds(self, lower: int, capacity: int, cost: int) -> tuple[int, int | None, int]:
        check_bounds(self.number, lower, capacity)
        return lower, None if capacity < 0 else capacity, cost


#: By letter: the form of the line, and its least and greatest number of integers.
_FORMS = {
    "p": ("p min NODES ARCS", 2, 2),
    "n": ("n NODE SUPPLY [TYPE]", 2, 3),
    "a": ("a TAIL HEAD LOWER CAPACITY COST [TYPE]", 5, 6),
    "x": ("x TAIL HEAD LOWER CAPACITY COST [TYPE [OLD]]", 5, 7),
    "d": ("d SUPPLY POTENTIAL ARCS [TYPE]", 3, 4),
    "r": ("r NODE", 1, 1),
}


def read_line(number: int, text: str, forms: Mapping[str, tuple[str, int, int]]) -> tuple[str, list[int]]:
    """Parse a line that is no comment into its letter and integers; ``forms`` has the layout of `_FORMS`."""
    letter, *words = text.split()
    if letter not in forms:
        *some, last = ("c", *forms)
        refuse_line(number, f"a line starts with {', '.join(some)} or {last}, this one with {letter[:20]!r}")
    form, least, most = forms[letter]
    if letter == "p":
        words = words[1:] if words[:1] == ["min"] else []
    if not least <= len(words) <= most:
        refuse_line(number, f"must be '{form}', this is {text[:60]!r}")
    for word in words:
        if _INTEGER.fullmatch(word) is None or not -(2**63) <= int(word) < 2**63:
            refuse_line(number, f"{word[:40]!r} is no integer of 64 bits")
    return letter, [int(word) for word in words]


def check_bounds(number: int, lower: int, capacity: int) -> None:
    """Raise `InstanceError` if the bounds of an arc are infeasible; capacity -1 means no upper bound."""
    if lower < 0 or capacity < -1:
        refuse_line(number, f"bounds {lower} and {capacity}; only a capacity of -1 (none) may be negative")
    if 0 <= capacity < lower:
        refuse_line(number, f"lower bound {lower} is above capacity {capacity}")


def refuse_line(number: int, reason: str) -> NoReturn:
    """Raise `InstanceError` for a line."""
    raise InstanceError(reason, place=f"line {number}")
