"""DIMACS minimum-cost-flow files: a total parser and a writer.

The text format of the First DIMACS Implementation Challenge (1991)::

    c a comment
    p min NODES ARCS
    n NODE SUPPLY
    a TAIL HEAD LOWER CAPACITY COST

Nodes are numbered from 1 (in messages and answers too); a node without an ``n`` line supplies nothing; all numbers
are integers. A file is recognised by its first line that is not a comment, whatever it is called. What the format
leaves open is settled here: a capacity of -1 means no upper bound (other negative capacities are refused, as are
negative lower bounds), self-loops and parallel arcs are allowed, and ``n`` and ``a`` lines may follow the problem
line in any order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import repeat
from operator import ne
from typing import NoReturn

import numpy as np

from flowlex.instances.arrays import Integers
from flowlex.instances.base import Instance, InstanceError
from flowlex.instances.files import TextFormat, register_text_format
from flowlex.instances.network import UNBOUNDED, NetworkInstance

__all__ = ["MAX_NODES", "format_dimacs", "looks_like_dimacs", "parse_dimacs"]

#: More nodes than this are refused, and many more than the lines name: a mistyped count must not exhaust the memory.
MAX_NODES = 10_000_000
_MANY_NODES = 100_000

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FIRST_LINE = re.compile(r"p(\s|$)|[na]\s+[+-]?[0-9]")
_INT64 = np.iinfo(np.int64)
#: NumPy reads what does not fit into 64 bits as their largest number, so big ones get a closer look.
_SAFE = 10**18


@dataclass(slots=True)
class _Lines:
    """The file sorted by kind of line, each with its number."""

    problem: tuple[int, int, int] | None = None  # line number, nodes, arcs
    supply: list[tuple[int, int, int]] = field(default_factory=list)  # line number, node, supply
    arcs: list[str] = field(default_factory=list)
    arc_numbers: list[int] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)


def looks_like_dimacs(text: str) -> bool:
    """Say whether the first line that is neither blank nor a comment is one of a DIMACS flow file.

    A JSON document never starts that way.
    """
    start, commented = 0, False
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = text[start : min(end, start + 200)].strip()
        if line and not line.startswith("c"):
            return _FIRST_LINE.match(line) is not None
        commented = commented or bool(line)
        start = end + 1
    return commented


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
        For anything that is not such a file, naming the line; no other exception.
    """
    text = text.replace("\r\n", "\n")
    lines = _sort_lines(text)
    last = text.count("\n") + (not text.endswith("\n"))
    if lines.problem is None:
        _fail(last, "no problem line; a minimum-cost-flow file has a line 'p min NODES ARCS'")
    number, nodes, arcs = lines.problem
    if len(lines.arcs) > arcs:
        _fail(lines.arc_numbers[arcs], f"more arcs than the {arcs} declared on line {number}")
    if len(lines.arcs) < arcs:
        _fail(last, f"the file ends after {len(lines.arcs)} of the {arcs} arcs declared on line {number}")
    named = 2 * arcs + len(lines.supply)
    if nodes > _MANY_NODES + 100 * named:
        _fail(number, f"{nodes} nodes are declared, but the other lines can name {named} at most; correct the number")
    supply = _node_supply(lines, nodes)
    columns = _fast_columns(lines.arcs)
    if columns is None:
        columns = _careful_columns(lines)
    _check_columns(columns, lines, nodes)
    if total := sum(supply):
        _fail(number, f"the supplies on the n lines sum to {total}; they must sum to 0")
    tail, head, lower, upper, cost = columns
    return NetworkInstance(
        name=name.encode("utf-8", "replace").decode()[:200] or "unnamed",
        comment="\n".join(lines.comments),
        supply=tuple(supply),
        first_node=1,
        tail=tuple((tail - 1).tolist()),
        head=tuple((head - 1).tolist()),
        lower=tuple(lower.tolist()),
        upper=tuple(bound if bound >= 0 else None for bound in upper.tolist()),
        cost=tuple(cost.tolist()),
    )


def format_dimacs(instance: Instance) -> str:
    """Return a network as DIMACS text: comments, problem line, supplies that are not zero, arcs.

    Node names have no place in the format and are left out, and so is the instance's name.

    Parameters
    ----------
    instance
        A `NetworkInstance`. Its nodes are numbered from 1 in the text; no upper bound is written as capacity -1.

    Raises
    ------
    InstanceError
        The instance is no network.
    """
    if not isinstance(instance, NetworkInstance):
        raise InstanceError(f"a DIMACS file holds networks, this is kind {instance.kind!r}; use .json or .json.gz")
    view = instance.arrays
    comments = [f"c {line}".rstrip() for line in instance.comment.splitlines()]
    nodes = [f"n {node} {units}" for node, units in enumerate(instance.supply, 1) if units]
    upper = np.where(view.upper == UNBOUNDED, -1, view.upper)
    rows = zip(
        (view.tail + 1).tolist(),
        (view.head + 1).tolist(),
        view.lower.tolist(),
        upper.tolist(),
        view.cost.tolist(),
        strict=True,
    )
    arcs = [f"a {tail} {head} {low} {cap} {cost}" for tail, head, low, cap, cost in rows]
    return "\n".join([*comments, f"p min {view.supply.size} {view.tail.size}", *nodes, *arcs, ""])


def _fail(number: int, reason: str) -> NoReturn:
    raise InstanceError(reason, place=f"line {number}")


def _sort_lines(text: str) -> _Lines:
    """Sort the lines by kind; quickly when all arc lines stand in one run after the others."""
    rows = text.split("\n")
    lines = _Lines()
    arcs = [row[:2] == "a " for row in rows]
    first, count = arcs.index(True) if True in arcs else len(rows), sum(arcs)
    if all(arcs[first : first + count]):
        _sort_one_by_one(lines, rows[:first], 1)
        if lines.problem is not None:
            lines.arcs += rows[first : first + count]
            lines.arc_numbers += range(first + 1, first + count + 1)
            first += count
    else:
        first = 0
    _sort_one_by_one(lines, rows[first:], first + 1)
    return lines


def _sort_one_by_one(lines: _Lines, rows: list[str], start: int) -> None:
    for number, row in enumerate(rows, start):
        line = row.strip()
        letter = line[:1]
        if letter in ("", "c"):
            if letter:
                lines.comments.append(line[1:].strip())
            continue
        if letter == "p":
            if lines.problem is not None:
                _fail(number, f"a second problem line; the first is line {lines.problem[0]}")
            lines.problem = (number, *_problem(line, number))
            continue
        if letter not in ("a", "n") or line[1:2].strip():
            word = _short(line.split()[0])
            _fail(number, f"a line starts with c, p, n or a, this one with {word!r}")
        if lines.problem is None:
            _fail(number, f"an {letter!r} line before the problem line 'p min NODES ARCS'")
        if letter == "a":
            lines.arcs.append(line)
            lines.arc_numbers.append(number)
        else:
            node, units = _integers(line, number, "n NODE SUPPLY")
            lines.supply.append((number, node, units))


def _problem(line: str, number: int) -> tuple[int, int]:
    words = line.split()
    if words[0] != "p" or len(words) != 4 or words[1] != "min":
        _fail(number, f"the problem line must be 'p min NODES ARCS', this is {_short(line)!r}")
    nodes, arcs = (_integer(word, number) for word in words[2:])
    if not 1 <= nodes <= MAX_NODES:
        _fail(number, f"{nodes} nodes; there must be at least 1 and at most {MAX_NODES}")
    if arcs < 0:
        _fail(number, f"{arcs} arcs; the number must not be negative")
    return nodes, arcs


def _node_supply(lines: _Lines, nodes: int) -> list[int]:
    supply = [0] * nodes
    first_line: dict[int, int] = {}
    for number, node, units in lines.supply:
        if not 1 <= node <= nodes:
            _fail(number, f"node {node} does not exist (nodes are 1 to {nodes})")
        if node in first_line:
            _fail(number, f"a second n line for node {node}; the first is line {first_line[node]}")
        first_line[node] = number
        supply[node - 1] = units
    return supply


def _fast_columns(arcs: list[str]) -> Integers | None:
    """(5, A) numbers of the arc lines, or None when a line needs a closer look.

    Takes only lines of digits, signs and single spaces. Each has at most as many numbers as spaces, that is
    five; so if there are five a line in all, there are five in each.
    """
    text = " ".join([line[2:] for line in arcs])
    plain = text.isascii() and not text.encode().translate(None, b"0123456789 -")
    signs = text.count("-") == text.count(" -") and "- " not in text and not text.endswith("-")
    if not (plain and signs and text) or "  " in text:
        return None
    if any(map(ne, map(str.count, arcs, repeat(" ")), repeat(5))):
        return None
    numbers = np.fromstring(text, dtype=np.int64, sep=" ")
    if numbers.size != 5 * len(arcs) or (abs(numbers) >= _SAFE).any():
        return None
    return numbers.reshape(-1, 5).T


def _careful_columns(lines: _Lines) -> Integers:
    """The same, line by line, so that the first bad line is named."""
    rows = [
        _integers(line, number, "a TAIL HEAD LOWER CAPACITY COST")
        for number, line in zip(lines.arc_numbers, lines.arcs, strict=True)
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, 5).T


def _check_columns(columns: Integers, lines: _Lines, nodes: int) -> None:
    tail, head, lower, upper, _ = columns
    ends = (tail < 1) | (tail > nodes) | (head < 1) | (head > nodes)
    wrong = ends | (lower < 0) | (upper < -1) | ((lower > upper) & (upper >= 0))
    if not wrong.any():
        return
    arc = int(wrong.argmax())
    number = lines.arc_numbers[arc]
    for node in (tail[arc], head[arc]):
        if not 1 <= node <= nodes:
            _fail(number, f"the arc touches node {node}, which does not exist (nodes are 1 to {nodes})")
    if lower[arc] < 0:
        _fail(number, f"lower bound {lower[arc]} is negative")
    if upper[arc] < 0:
        _fail(number, f"capacity {upper[arc]} is negative; only -1 (no upper bound) may be")
    _fail(number, f"lower bound {lower[arc]} is above capacity {upper[arc]}")


def _integers(line: str, number: int, form: str) -> list[int]:
    words = line.split()[1:]
    if len(words) != form.count(" "):
        _fail(number, f"must be '{form}', this is {_short(line.strip())!r}")
    return [_integer(word, number) for word in words]


def _integer(word: str, number: int) -> int:
    if _INTEGER.fullmatch(word) is None:
        _fail(number, f"{_short(word)!r} is not an integer")
    if len(word) > 40 or not _INT64.min <= int(word) <= _INT64.max:
        _fail(number, f"{_short(word)} does not fit into 64 bits")
    return int(word)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


register_text_format(TextFormat(looks_like_dimacs, parse_dimacs, (".min", ".dimacs"), format_dimacs))
