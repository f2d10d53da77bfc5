"""DIMACS minimum-cost-flow files: a total parser and a writer.

The text format of the First DIMACS Implementation Challenge (1991)::

    c a comment
    p min NODES ARCS
    n NODE SUPPLY
    a TAIL HEAD LOWER CAPACITY COST

Nodes are numbered from 1 (in messages and answers too); a node without an ``n`` line supplies nothing; all numbers
are integers. A file is recognised by its first line that is not a comment, independent of its name. Choices that the
format leaves open: a capacity of -1 means no upper bound (other negative capacities are errors, as are negative lower
bounds), self-loops and parallel arcs are allowed, and ``n`` and ``a`` lines may follow the problem line in any order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import repeat
from operator import ne
from typing import NoReturn

import numpy as np

from flowlex.instances.array_types import Integers
from flowlex.instances.files import TextFormat, register_text_format
from flowlex.instances.instance_base import Instance, InstanceError
from flowlex.instances.min_cost_flow import UNBOUNDED, NetworkInstance

#: Most nodes accepted; far more than the other lines can name are refused too. A typo must not exhaust the memory.
MAX_NODES = 10_000_000
_MANY_NODES = 100_000

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_COMMENTS = re.compile(r"(\s*c[^\n]*)*\s*")
_FIRST_LINE = re.compile(r"p(\s|$)|[na]\s+[+-]?[0-9]")
#: NumPy silently clips integers to 64 bits, so lines with larger numbers than this are parsed one by one.
_SAFE = 10**18
#: By letter: the form of the line, and its least and greatest number of integers.
_FORMS = {
    "p": ("p min NODES ARCS", 2, 2),
    "n": ("n NODE SUPPLY", 2, 2),
    "a": ("a TAIL HEAD LOWER CAPACITY COST", 5, 5),
}


def looks_like_dimacs(text: str) -> bool:
    """Return whether the first line that is neither blank nor a comment belongs to a DIMACS flow file.

    A JSON document never starts that way.
    """
    start = len(_COMMENTS.match(text)[0])  # type: ignore[index]  # it matches any text
    return _FIRST_LINE.match(text, start) is not None if start < len(text) else bool(text.strip())


def parse_dimacs(text: str, name: str = "unnamed") -> NetworkInstance:
    """Read DIMACS minimum-cost-flow text.

    Parameters
    ----------
    text
        The whole file.
    name
        Name of the instance (usually of the file).

    Raises
    ------
    InstanceError
        The text is not a valid file; the error names the line. No other exception is raised.
    """
    rows = text.replace("\r\n", "\n").split("\n")
    plain = [row[:2] == "a " for row in rows]
    start = plain.index(True) if True in plain else len(rows)
    end = start + sum(plain)
    file = _File()
    file.read(rows[:start], 1)
    block = _fast_columns(rows[start:end], file) if all(plain[start:end]) and not file.arcs else None
    if block is None:
        block, end = np.empty((5, 0), np.int64), start
    file.read(rows[end:], end + 1, block.shape[1])
    last = max(1, len(rows) - (not rows[-1]))
    if file.problem is None:
        _refuse_line(last, "no problem line; a minimum-cost-flow file has a line 'p min NODES ARCS'")
    number, nodes, arcs = file.problem
    tail, head, lower, upper, cost = np.hstack([block, np.array(file.arcs, np.int64).reshape(-1, 5).T])
    if len(tail) < arcs:
        _refuse_line(last, f"the file ends after {len(tail)} of the {arcs} arcs declared on line {number}")
    named = 2 * arcs + len(file.supply)
    if nodes > _MANY_NODES + 100 * named:
        reason = f"{nodes} nodes are declared, but the other lines can name {named} at most; correct the number"
        _refuse_line(number, reason)
    if total := sum(units for _, units in file.supply.values()):
        _refuse_line(number, f"the supplies on the n lines sum to {total}; they must sum to 0")
    return NetworkInstance(
        name=name.encode("utf-8", "replace").decode()[:200] or "unnamed",
        comment="\n".join(file.comments),
        supply=tuple(file.supply.get(node, (0, 0))[1] for node in range(1, nodes + 1)),
        first_node=1,
        tail=tuple((tail - 1).tolist()),
        head=tuple((head - 1).tolist()),
        lower=tuple(lower.tolist()),
        upper=tuple(bound if bound >= 0 else None for bound in upper.tolist()),
        cost=tuple(cost.tolist()),
    )


def format_dimacs(instance: Instance) -> str:
    """Return a network as DIMACS text: comments, problem line, supplies that are not zero, arcs.

    The format cannot hold the names of the nodes and of the instance, so both are left out.

    Parameters
    ----------
    instance
        A `NetworkInstance`. Its nodes are numbered from 1 in the text; no upper bound is written as capacity -1.

    Raises
    ------
    InstanceError
        The instance is not a network.
    """
    if not isinstance(instance, NetworkInstance):
        raise InstanceError(f"a DIMACS file holds networks, this is kind {instance.kind!r}; use .json or .json.gz")
    view = instance.arrays
    comments = [f"c {line}".rstrip() for line in instance.comment.splitlines()]
    nodes = [f"n {node} {units}" for node, units in enumerate(instance.supply, 1) if units]
    upper = np.where(view.upper == UNBOUNDED, -1, view.upper)
    rows = np.column_stack([view.tail + 1, view.head + 1, view.lower, upper, view.cost]).tolist()
    arcs = [f"a {tail} {head} {low} {cap} {cost}" for tail, head, low, cap, cost in rows]
    return "\n".join([*comments, f"p min {view.supply.size} {view.tail.size}", *nodes, *arcs, ""])


@dataclass(slots=True)
class _File:
    """The content of the lines read so far."""

    problem: tuple[int, int, int] | None = None  # line number, nodes, arcs
    supply: dict[int, tuple[int, int]] = field(default_factory=dict)  # line number and supply by node
    arcs: list[list[int]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)

    def read(self, rows: list[str], start: int, before: int = 0) -> None:
        """Read lines numbered from ``start``; ``before`` arcs have been read by `_fast_columns`."""
        for number, row in enumerate(rows, start):
            line = row.strip()
            if line[:1] in ("", "c"):
                self.comments += [line[1:].strip()] if line else []
                continue
            letter, found = _read_line(number, line)
            if letter == "p":
                self._problem(number, *found)
            elif self.problem is None:
                _refuse_line(number, f"an {letter!r} line before the problem line 'p min NODES ARCS'")
            elif letter == "n":
                self._supply(number, found[0], found[1], self.problem[1])
            elif before + len(self.arcs) == self.problem[2]:
                _refuse_line(number, f"more arcs than the {self.problem[2]} declared on line {self.problem[0]}")
            else:
                for node in found[:2]:
                    if not 1 <= node <= self.problem[1]:
                        known = f"(nodes are 1 to {self.problem[1]})"
                        _refuse_line(number, f"the arc touches node {node}, which does not exist {known}")
                _check_bounds(number, found[2], found[3])
                self.arcs.append(found)

    def _problem(self, number: int, nodes: int, arcs: int) -> None:
        if self.problem is not None:
            _refuse_line(number, f"a second problem line; the first is line {self.problem[0]}")
        if not 1 <= nodes <= MAX_NODES:
            _refuse_line(number, f"{nodes} nodes; there must be at least 1 and at most {MAX_NODES}")
        if arcs < 0:
            _refuse_line(number, f"{arcs} arcs; the number must not be negative")
        self.problem = (number, nodes, arcs)

    def _supply(self, number: int, node: int, units: int, nodes: int) -> None:
        if not 1 <= node <= nodes:
            _refuse_line(number, f"node {node} does not exist (nodes are 1 to {nodes})")
        if node in self.supply:
            _refuse_line(number, f"a second n line for node {node}; the first is line {self.supply[node][0]}")
        self.supply[node] = (number, units)


def _fast_columns(arcs: list[str], file: _File) -> Integers | None:
    """Return the (5, A) numbers of the arc lines, or None if lines must be parsed one by one, as with an error.

    Accepts only digits, signs and single spaces. A line has five spaces and so at most five numbers; if the total
    is five per line, each line has five.
    """
    text = " ".join([line[2:] for line in arcs])
    plain = text.isascii() and not text.encode().translate(None, b"0123456789 -")
    signs = text.count("-") == text.count(" -") and "- " not in text and not text.endswith("-")
    if file.problem is None or len(arcs) > file.problem[2] or not (plain and signs and text) or "  " in text:
        return None
    if any(map(ne, map(str.count, arcs, repeat(" ")), repeat(5))):
        return None
    numbers = np.fromstring(text, dtype=np.int64, sep=" ")
    if numbers.size != 5 * len(arcs) or (abs(numbers) >= _SAFE).any():
        return None
    tail, head, lower, upper, _ = columns = numbers.reshape(-1, 5).T
    ends = (np.minimum(tail, head) < 1) | (np.maximum(tail, head) > file.problem[1])
    wrong = ends | (lower < 0) | (upper < -1) | ((lower > upper) & (upper >= 0))
    return None if wrong.any() else columns


register_text_format(TextFormat(looks_like_dimacs, parse_dimacs, (".min", ".dimacs"), format_dimacs))


def _read_line(number: int, text: str) -> tuple[str, list[int]]:
    """Parse a line that is no comment into its letter and integers."""
    letter, *words = text.split()
    if letter not in _FORMS:
        *some, last = ("c", *_FORMS)
        _refuse_line(number, f"a line starts with {', '.join(some)} or {last}, this one with {letter[:20]!r}")
    form, least, most = _FORMS[letter]
    if letter == "p":
        words = words[1:] if words[:1] == ["min"] else []
    if not least <= len(words) <= most:
        _refuse_line(number, f"must be '{form}', this is {text[:60]!r}")
    for word in words:
        if _INTEGER.fullmatch(word) is None or not -(2**63) <= int(word) < 2**63:
            _refuse_line(number, f"{word[:40]!r} is no integer of 64 bits")
    return letter, [int(word) for word in words]


def _check_bounds(number: int, lower: int, capacity: int) -> None:
    """Raise `InstanceError` if the bounds of an arc are infeasible; capacity -1 means no upper bound."""
    if lower < 0 or capacity < -1:
        _refuse_line(number, f"bounds {lower} and {capacity}; only a capacity of -1 (none) may be negative")
    if 0 <= capacity < lower:
        _refuse_line(number, f"lower bound {lower} is above capacity {capacity}")


def _refuse_line(number: int, reason: str) -> NoReturn:
    """Raise `InstanceError` for a line."""
    raise InstanceError(reason, place=f"line {number}")
