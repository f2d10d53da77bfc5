"""Compute when each transfer may be sent, from the instance alone; shares no code with the model."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.exact_rationals import rational
from flowlex.instances.jit import JitInstance
from flowlex.instances.jit_jobs import Job, Transfer

NEAR = 1e-9


@dataclass(frozen=True, eq=False)
class JitColumns:
    """Transfers (F) in the order of jobs, and machines (M) in the order of the document."""

    names: tuple[str, ...]  # ``job/transfer``
    job: NDArray[np.int64]
    sender: NDArray[np.int64]
    receiver: NDArray[np.int64]
    size_mb: NDArray[np.float64]
    size_units: NDArray[np.int64]
    # (M,) units a slot
    out_units: NDArray[np.int64]
    in_units: NDArray[np.int64]

    @classmethod
    def of(cls, instance: JitInstance) -> JitColumns:
        """Read an instance."""
        number = {machine.name: m for m, machine in enumerate(instance.machines)}
        each = [(j, job.name, transfer) for j, job in enumerate(instance.jobs) for transfer in job.transfers]
        size = np.array([transfer.size_mb for _, _, transfer in each], np.float64)

        def capacity(mbps: Iterable[float]) -> NDArray[np.int64]:
            units = np.array(list(mbps), np.float64) * instance.slot_s / 8 / instance.unit_mb
            return np.floor(units + NEAR * units).astype(np.int64)

        def numbers(values: Iterable[int]) -> NDArray[np.int64]:
            return np.array(list(values), np.int64)

        return cls(
            tuple(f"{job}/{transfer.name}" for _, job, transfer in each),
            numbers(j for j, _, _ in each),
            numbers(number[transfer.sender] for _, _, transfer in each),
            numbers(number[transfer.receiver] for _, _, transfer in each),
            size,
            np.ceil(size / instance.unit_mb * (1 - NEAR)).astype(np.int64),
            capacity(machine.out_mbps for machine in instance.machines),
            capacity(machine.in_mbps for machine in instance.machines),
        )


#: A quotient this near to an integer counts as one.
_WHOLE = Fraction(1, 10**9)
#: A slot after all others.
NEVER = 1 << 60


@dataclass(frozen=True, eq=False)
class TransferWindows:
    """Windows of all transfers of an instance, in slots counted from the slot of the first arrival."""

    origin: int  # that slot, counted from time 0
    # start, due, stop, firm: (F,) first slot; end by the latest arrival time; that end, widened until the transfer
    # fits; end that holds even for elastic windows (`NEVER` without one)
    start: Integers
    due: Integers
    stop: Integers
    firm: Integers
    # units, most: (F,) integer units to send, and at most in one slot
    units: Integers
    most: Integers
    latest_s: Floats  # (F,) latest arrival from the job's arrival
    columns: JitColumns  # names, ends and sizes of transfers, and ports
    orders: Sequence[Sequence[str]]  # computations of each job in topological order


def transfer_windows(instance: JitInstance, rule: str) -> TransferWindows:
    """Recompute the windows: exact rationals for numbers of the instance, floats for sums along its DAGs."""
    slot = rational(instance.slot_s)
    arrivals = [rational(job.arrival_s) for job in instance.jobs]
    origin = min((a // slot for a in arrivals), default=0)
    graphs = [_precedence(job) for job in instance.jobs]
    orders, distinct = list[list[str]](), list[tuple[dict[str, list[str]], list[str]]]()
    for graph in graphs:
        order = next((each for known, each in distinct if known == graph), None)
        if order is None:
            order = list(_sorted(graph))
            distinct.insert(0, (graph, order))
            del distinct[8:]  # jobs of a model have the same computations
        orders.append(order)
    latest, there = _latest_and_ready(instance, rule, graphs, orders)
    start, due, firm = [], [], []
    seen: dict[tuple[int, float], int] = {}
    position = 0
    for number, job in enumerate(instance.jobs):
        base = arrivals[number] / slot - origin
        about = float(base)
        for transfer in job.transfers:
            key = (number, there[position])
            if key not in seen:
                seen[key] = -int((_WHOLE - base - rational(there[position]) / slot) // 1)
            start.append(seen[key])
            if transfer.deadline_s is not None:
                due.append(int((base + rational(transfer.deadline_s) / slot + _WHOLE) // 1))
            else:
                steps = float(latest[position]) / instance.slot_s
                end = about + steps
                if abs(end - round(end)) > 1e-6 * (1 + abs(end)):  # no rounding of floats reaches an integer
                    due.append(math.floor(end))
                else:
                    exact = Fraction(steps)
                    due.append(int((base + exact + _WHOLE * max(Fraction(1), exact)) // 1))
            last = transfer.firm_s
            firm.append(NEVER if last is None else int((base + rational(last) / slot + _WHOLE) // 1))
            position += 1
    arrays = JitColumns.of(instance)
    first, until = np.array(start, np.int64), np.array(due, np.int64)
    most = np.minimum(arrays.out_units[arrays.sender], arrays.in_units[arrays.receiver])
    least = (arrays.size_units + most - 1) // np.maximum(most, 1)
    return TransferWindows(
        int(origin),
        first,
        until,
        np.maximum(until, first + least),
        np.array(firm, np.int64),
        arrays.size_units,
        most,
        np.asarray(latest),
        arrays,
        orders,
    )


def _precedence(job: Job) -> dict[str, list[str]]:
    """Predecessors of every computation: those it comes after, and those that make data for it."""
    graph = {c.name: list(c.after) for c in job.computations}
    for transfer in job.transfers:
        graph[transfer.feeds] += [transfer.made_by] if transfer.made_by is not None else []
    return graph


def _latest_and_ready(
    instance: JitInstance, rule: str, graphs: Sequence[Mapping[str, list[str]]], orders: Sequence[Sequence[str]]
) -> tuple[list[float], list[float]]:
    """For every transfer, its latest arrival, and when its data are ready if all earlier transfers are on time."""
    rate = {m.name: (m.out_mbps / 8, m.in_mbps / 8) for m in instance.machines}
    answer: list[float] = []
    there: list[float] = []
    paper = rule != "critical"
    for job, graph, order in zip(instance.jobs, graphs, orders, strict=True):
        fed: dict[str, list[Transfer]] = {}
        number: dict[tuple[str, int, int], int] = defaultdict(int)
        for transfer in job.transfers:
            fed.setdefault(transfer.feeds, []).append(transfer)
        turn = dict.fromkeys(order, 0)  # pass of the paper's algorithm that takes the transfers of a computation
        for name in order if rule == "paper" else ():
            for b in graph[name]:
                turn[name] = max(turn[name], turn[b] + (b in fed))
        for transfer in job.transfers:
            number[transfer.sender, 0, turn[transfer.feeds]] += 1
            number[transfer.receiver, 1, turn[transfer.feeds]] += 1
        seconds = {c.name: c.seconds for c in job.computations}
        makes = any(transfer.made_by is not None for transfer in job.transfers)
        done: dict[str, float] = {}
        ended: dict[str, float] = {}
        due: dict[str, float] = {}
        ready = {transfer.name: transfer.ready_s for transfer in job.transfers}
        for name in order:
            before = -np.inf if paper else 0.0
            for b in graph[name]:
                if done[b] > before:
                    before = done[b]
            starts, mine = before, fed.get(name, ())
            for transfer in mine:
                if transfer.made_by is not None:
                    ready[transfer.name] = max(transfer.ready_s, ended[transfer.made_by])
                ends = (transfer.sender, 0), (transfer.receiver, 1)
                if paper:
                    slowest = min(rate[m][side] / number[m, side, turn[name]] for m, side in ends)
                    first = 0.0 if transfer.made_by is None else ready[transfer.name]
                    due[transfer.name] = max(before, first, 0.0) + transfer.size_mb / slowest
                else:
                    slowest = min(rate[m][side] for m, side in ends)
                    starts = max(starts, ready[transfer.name] + transfer.size_mb / slowest)
            for transfer in mine:
                if transfer.deadline_s is not None:
                    due[transfer.name] = transfer.deadline_s
                elif not paper:
                    due[transfer.name] = starts
            used = max([starts, *(due[transfer.name] for transfer in mine)]) if mine else starts
            done[name] = (used if paper else starts) + seconds[name]
            if makes:
                ended[name] = max(0.0, used, *(ended[b] for b in graph[name])) + seconds[name]
        answer += [due[transfer.name] for transfer in job.transfers]
        there += [ready[transfer.name] for transfer in job.transfers]
    return answer, there


def planned_transfers(
    instance: JitInstance, share: float, share_of: str, orders: Sequence[Sequence[str]]
) -> Iterator[int]:
    """The first share of every job's transfers, in topological order of the computations that they feed."""
    position = 0
    for job, computations in zip(instance.jobs, orders, strict=True):
        place = {name: k for k, name in enumerate(computations)}
        order = sorted(range(len(job.transfers)), key=lambda k: place[job.transfers[k].feeds])
        weight = [f.size_mb if share_of == "bytes" else 1.0 for f in job.transfers]
        total, before = sum(weight), 0.0
        for k in order:
            if before < share * total - NEAR * (1 + total):
                yield position + k
            before += weight[k]
        position += len(job.transfers)


def _sorted(graph: dict[str, list[str]]) -> Iterator[str]:
    """Computations in topological order, in the order in which they become ready."""
    followers: dict[str, list[str]] = defaultdict(list)
    left = {name: len(before) for name, before in graph.items()}
    for name, before in graph.items():
        for each in before:
            followers[each].append(name)
    ready = deque(name for name, count in left.items() if not count)
    while ready:
        name = ready.popleft()
        yield name
        for follower in followers[name]:
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
