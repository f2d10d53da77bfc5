"""Public coflow traces in the format of ``FB2010-1Hr-150-0.txt``.

First line: number of ports and number of coflows. Then one line per coflow: id, arrival (ms), number of mappers,
their ports, number of reducers, and ``port:MB`` per reducer, the volume that reducer receives from all mappers
together, in equal parts.

A coflow becomes a job of one computation that waits for all its transfers. Ports count from 0 in the published file;
a file with ports from 1 (the number of ports is itself a port, 0 is not) is read as well. What a mapper sends to its
own port does not use the network and is left out.

Source: github.com/coflow/coflow-benchmark (format); the deadline rule is that of deadline experiments with such
traces: a multiple of the time the coflow would need alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from flowlex.instances.file_storage import read_text
from flowlex.instances.files import TextFormat, register_text_format
from flowlex.instances.input_errors import InstanceError, first_fault
from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer

_Found = TypeVar("_Found")
_FIRST = re.compile(r"\s*\d+[ \t]+\d+[ \t]*\r?\n")
_REDUCER = re.compile(r"(?<!\S)\d+:[\d.]+(?!\S)")


@dataclass(frozen=True)
class _Coflow:
    name: str
    arrival_s: float
    mappers: tuple[int, ...]
    reducers: tuple[tuple[int, float], ...]

    @property
    def ports(self) -> set[int]:
        return {*self.mappers, *(port for port, _ in self.reducers)}


def read_coflow_trace(
    path: str | Path,
    *,
    rate_mbps: float = 1000.0,
    slack: float = 2.0,
    slot_s: float = 0.1,
    unit_mb: float | None = None,
    first: int | None = None,
) -> JitInstance:
    """Read a trace file, plain or gzip.

    Parameters
    ----------
    path
        The file; its name up to the first dot becomes the name of the instance.
    rate_mbps
        Rate of every port, in Mbit/s (the trace has none).
    slack
        A coflow's deadline is ``slack`` (at least 1) times the time it needs alone on its busiest port, and at least
        what its sizes need after rounding to integer units and slots.
    slot_s
        Length of a slot of the planning grid, in seconds.
    unit_mb
        The unit of transfers in MB, for any slot length: sizes are rounded up to integer units. When None, 1 MB
        (every transfer of the published trace is an integer number of MB), or the amount a port sends in a slot, if
        that is less.
    first
        Number of coflows to read (the whole trace has some 700 000 transfers); all when None.

    Raises
    ------
    InstanceError
        Naming file, line and reason.
    """
    name, text = Path(path).name.split(".")[0] or "trace", read_text(path)
    try:
        return parse_coflow_trace(
            text, name, rate_mbps=rate_mbps, slack=slack, slot_s=slot_s, unit_mb=unit_mb, first=first
        )
    except InstanceError as error:
        raise error.at(path) from error.__cause__


def parse_coflow_trace(
    text: str,
    name: str = "trace",
    *,
    rate_mbps: float = 1000.0,
    slack: float = 2.0,
    slot_s: float = 0.1,
    unit_mb: float | None = None,
    first: int | None = None,
) -> JitInstance:
    """Turn the text of a trace into an instance of that name; other parameters are those of `read_coflow_trace`."""
    unit = min(1.0, rate_mbps / 8 * slot_s) if unit_mb is None else unit_mb
    _check(slack=slack, rate_mbps=rate_mbps, slot_s=slot_s, unit_mb=unit, first=first or 0)
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise InstanceError("the trace is empty")
    ports, count = _named(lines[0][0], lambda: _header(lines[0][1]))
    if len(lines) - 1 != count:
        raise InstanceError(f"the first line announces {count} coflows, {len(lines) - 1} follow; is the file cut off?")
    coflows = [_named(number, partial(_coflow, words)) for number, words in lines[1:]]
    base = 1 if any(ports in each.ports for each in coflows) and all(0 not in each.ports for each in coflows) else 0
    for (number, _), each in zip(lines[1:], coflows, strict=True):
        if wrong := [port for port in each.ports if not base <= port < ports + base]:
            reason = f"port {wrong[0]} is not among the {ports} ports ({base}..{ports + base - 1})"
            raise InstanceError(reason, place=f"line {number}")
    try:
        jobs = tuple(_job(coflow, ports, base, rate_mbps / 8, slack, slot_s, unit) for coflow in coflows[:first])
        machines = (Machine(name=f"p{k}", out_mbps=rate_mbps, in_mbps=rate_mbps) for k in range(base, ports + base))
        return JitInstance(
            name=name,
            comment=_left_out(coflows[:first], jobs),
            machines=tuple(machines),
            jobs=jobs,
            slot_s=slot_s,
            unit_mb=unit,
        )
    except ValidationError as error:
        raise InstanceError(first_fault(error)[1]) from error
    except OverflowError as error:
        raise InstanceError(
            f"sizes in units of {unit:g} MB, or times in slots of {slot_s:g} s at {rate_mbps:g} Mbit/s, are beyond all "
            "numbers; use a larger unit_mb, slot_s or rate_mbps"
        ) from error


def _check(slack: float, first: int, **positive: float) -> None:
    if not (slack >= 1 and math.isfinite(slack)):
        raise InstanceError(f"slack must be at least 1 (got {slack})")
    if first < 0:
        raise InstanceError(f"first must not be negative (got {first})")
    for name, value in positive.items():
        if not (value > 0 and math.isfinite(value)):
            raise InstanceError(f"{name} must be a positive number (got {value})")


def _named(number: int, read: Callable[[], _Found]) -> _Found:
    """Parse a line; an error names the line's number."""
    try:
        return read()
    except ValueError as error:
        raise InstanceError(str(error), place=f"line {number}") from None


def _header(words: list[str]) -> tuple[int, int]:
    if len(words) != 2:
        raise ValueError(f"expected the number of ports and of coflows, found {len(words)} columns")
    ports, count = (_whole(word, what) for word, what in zip(words, ("ports", "coflows"), strict=True))
    if ports < 2:
        raise ValueError(f"a trace needs at least 2 ports, this has {ports}")
    return ports, count


def _coflow(words: list[str]) -> _Coflow:
    if len(words) < 3:
        raise ValueError(f"missing columns: expected id, arrival, mappers, ..., found {len(words)}")
    arrival, mappers = _whole(words[1], "arrival (ms)"), _whole(words[2], "number of mappers")
    if len(words) < 4 + mappers:
        reason = f"{mappers} mappers and the number of reducers are announced, {len(words) - 3} columns follow"
        raise ValueError(f"missing columns: {reason}")
    reducers = _whole(words[3 + mappers], "number of reducers")
    rest = words[4 + mappers :]
    if len(rest) != reducers:
        raise ValueError(f"{reducers} reducers are announced, {len(rest)} follow")
    if mappers == 0 or reducers == 0:
        raise ValueError(f"coflow {words[0]!r} has no mapper or no reducer")
    senders = tuple(_whole(word, "mapper's port") for word in words[3 : 3 + mappers])
    return _Coflow(words[0], arrival / 1000, senders, tuple(map(_reducer, rest)))


def _reducer(word: str) -> tuple[int, float]:
    port, colon, size = word.partition(":")
    try:
        volume = float(size)
    except ValueError:
        volume = math.nan
    if not colon or not (volume > 0 and math.isfinite(volume)):
        raise ValueError(f"a reducer is port:MB with MB above 0, found {word!r}")
    return _whole(port, "reducer's port"), volume


def _whole(word: str, what: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 16):
        raise ValueError(f"{what} must be an integer, found {word!r}")
    return int(word)


def _job(coflow: _Coflow, ports: int, base: int, mb_per_s: float, slack: float, slot_s: float, unit_mb: float) -> Job:
    mappers = sorted(set(coflow.mappers))
    load = dict.fromkeys(range(base, ports + base), 0.0)
    into = dict(load)
    flows = []
    for reducer, volume in coflow.reducers:
        part = volume / len(coflow.mappers)
        for mapper in mappers:
            size = part * coflow.mappers.count(mapper)
            if mapper != reducer:
                load[mapper] += size
                into[reducer] += size
                flows.append((mapper, reducer, size))
    busiest = max(*load.values(), *into.values())
    largest = max((size for _, _, size in flows), default=0.0)
    needed = math.ceil(math.ceil(largest / unit_mb) * unit_mb / (mb_per_s * slot_s)) + 2  # both ends round inwards
    deadline = max(slack * busiest / mb_per_s, needed * slot_s)
    transfers = {
        (mapper, reducer): Transfer(
            name=f"{mapper}-{reducer}",
            size_mb=size,
            sender=f"p{mapper}",
            receiver=f"p{reducer}",
            feeds="shuffled",
            deadline_s=deadline,
        )
        for mapper, reducer, size in flows
    }
    if len(transfers) < len(flows):
        raise InstanceError(f"coflow {coflow.name!r} names a reducer twice")
    return Job(
        name=f"coflow{coflow.name}",
        arrival_s=coflow.arrival_s,
        computations=(Computation(name="shuffled", seconds=0.0),),
        transfers=tuple(transfers.values()),
    )


def _left_out(coflows: list[_Coflow], jobs: tuple[Job, ...]) -> str:
    """Describe the part of a trace that does not use the network."""
    volume = sum(mb for coflow in coflows for _, mb in coflow.reducers)
    sent = sum(transfer.size_mb for job in jobs for transfer in job.transfers)
    empty = sum(not job.transfers for job in jobs)
    return (
        f"coflow trace; {volume - sent:.6g} of {volume:.6g} MB stay within a port and are left out; "
        f"{empty} of {len(jobs)} coflows have nothing else and count 0 s"
    )


def _sniff(text: str) -> bool:
    """Return whether the first line has two numbers and a ``port:MB`` follows, as in no other format here."""
    return _FIRST.match(text) is not None and _REDUCER.search(text, 0, 100_000) is not None


register_text_format(TextFormat(_sniff, parse_coflow_trace))
