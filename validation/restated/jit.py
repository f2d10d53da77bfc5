"""Just-in-time bandwidth restated from its instance: units of transfers by slot, ports, lateness, loads and levels.

`restate_jit` states a rate for each transfer and slot. To prove an unchanged answer, fewer numbers do: `_Part` states
the problem of some transfers, with the ports to themselves, over *runs* of slots that no multiplier and no window tells
apart, and over runs of levels that no load of the answer reaches. Each column and row is then the sum of those of its
slots, so every schedule satisfies it, and what is proven holds for all schedules. Parts share no load, so a schedule
is best if each part is. In a run of several slots, ``moment`` is the sum of units times their slots after the first: it
says how late units are, and lets the multipliers of a port rise or fall evenly within a run (``_early``, ``_late``).
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import Field

from flowlex.formulations.block_labels import label_text, label_texts
from flowlex.instances.exact_rationals import rational
from flowlex.instances.jit import JitInstance
from flowlex.validation.certificates.certificate import Certificate, Check, Claim, Finding
from flowlex.validation.certificates.exact_numbers import agrees
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.verifier_interface import Claimed, Strict, Verifier, same_values
from flowlex.validation.proofs.checker import Verdict, judge
from flowlex.validation.proofs.exact_program import SAFE, Exact, ExactProgram, Positions, Whole, largest, narrow
from flowlex.validation.proofs.program_builder import ProgramBuilder
from flowlex.validation.proofs.proof import Leaf, ProofError, from_document
from flowlex.validation.restated.jit_windows import NEVER, planned_transfers, transfer_windows

#: Most columns that are written out.
_MOST = 20_000_000
#: Relative difference of amounts where these are fractions.
_NEAR = 1e-6
#: Rows whose multipliers belong to loads, and those that belong to ports, by side.
_OF_LOADS = ("level_link", "largest_link")
_OF_PORTS = tuple(tuple(side + end for end in ("", "_early", "_late")) for side in ("egress", "ingress"))
#: How the answer was found, and what it leaves to background traffic, which no file holds.
_UNJUDGED = frozenset({"linear_programs", "integer_programs", "least_remaining_egress", "median_remaining_egress"})


class JitOptions(Strict):
    """Just-in-time bandwidth."""

    horizon: Literal["slots", "intervals"] = "slots"
    share: Annotated[float, Field(gt=0, le=1)] = 0.4
    load: Literal["pair", "port", "sender", "receiver"] = "pair"
    integrality: Literal["auto", "lp", "mip"] = "auto"
    windows: Literal["strict", "elastic"] | None = None
    program: Literal["P1", "P2", "P3", "P4"] = "P2"
    presolve: bool | None = None
    lat: Literal["critical", "paper", "paper-job"] = "critical"
    share_of: Literal["transfers", "bytes"] = "transfers"
    stage: Annotated[str, Field(pattern="^(lateness|level_[0-9]+)$")] | None = None
    extra_slots: Annotated[int, Field(ge=0)] = 0


class Answer(Strict):
    """The schedule. Slots count from ``origin_slot``, which counts from time 0."""

    slot_s: float
    unit_mb: float
    origin_slot: int
    lateness_unit_slots: float | int
    schedule: dict[str, list[list[float | int]]]
    """Runs of each planned transfer: first slot, end, units in each slot."""


class PartProof(Strict):
    """What proves the best schedule of some transfers that share no load with others, in format 3."""

    transfers: list[str]
    format: int = 3
    stages: dict[str, Any] = Field(default_factory=dict)
    empty: list[Any] = Field(default_factory=list)
    quoted: bool = False
    """Whether what the multipliers do not prove is the solver's word."""


class JitProof(Strict):
    """Proofs of parts."""

    parts: list[PartProof] = Field(default_factory=list)


class _Data:
    """The planned transfers (F) of an instance under its options, by position."""

    def __init__(self, instance: JitInstance, options: Mapping[str, Any]) -> None:
        self.instance, self.load, self.program = instance, str(options["load"]), str(options["program"])
        kind = options.get("windows") or ("elastic" if self.program == "P2" else "strict")
        self.elastic, self.whole = kind == "elastic", options.get("integrality") != "lp"
        w = transfer_windows(instance, str(options["lat"]))
        at = np.array(
            sorted(planned_transfers(instance, float(options["share"]), str(options["share_of"]), w.orders)), np.int64
        )
        columns, self.origin, self.transfer = w.columns, w.origin, at
        self.names = [columns.names[k] for k in at.tolist()]
        self.place = {name: k for k, name in enumerate(self.names)}
        self.jobs = [instance.jobs[j].name for j in columns.job[at].tolist()]
        self.machines = [machine.name for machine in instance.machines]
        self.machine = {name: m for m, name in enumerate(self.machines)}
        self.ports = columns.sender[at], columns.receiver[at]
        self.capacity = columns.out_units, columns.in_units
        self.units, self.most, self.start, self.due = w.units[at], w.most[at], w.start[at], w.due[at]
        self.size_mb, self.count = columns.size_mb[at], len(columns.names)
        self.widened, self.firm = int((w.stop > w.due)[at].sum()), w.firm[at]
        #: (F,) end of the window: of elastic ones, the firm end or a slot by which all can have been sent.
        self.stop = w.stop[at]
        if self.elastic and len(at):
            last = int(np.maximum(self.start, self.stop).max()) + int(options.get("extra_slots") or 0)
            for port, limit in zip(self.ports, self.capacity, strict=True):
                last += int((-(-np.bincount(port, self.units, len(limit)).astype(np.int64) // limit)).max())
            self.stop = np.minimum(last, self.firm)
        #: (F,) numbers of the loads that a transfer counts towards, one array for each kind.
        count, (out, into) = len(self.machines), self.ports
        self.groups: tuple[Positions, ...] = {
            "pair": (out * count + into,),
            "sender": (out,),
            "receiver": (into + count,),
            "port": (out, into + count),
        }[self.load]

    def load_most(self, unit: Positions) -> Positions:
        """Units that loads can reach in a slot."""
        count, (out, into) = len(self.machines), self.capacity
        if self.load == "pair":
            return np.minimum(out[unit // count], into[unit % count])
        return np.concatenate([out, into])[unit]

    @cached_property
    def top(self) -> int:
        """The highest level that some load can reach."""
        found = 0
        for group in self.groups:
            unit, inverse = np.unique(group, return_inverse=True)
            total = np.bincount(inverse, self.units).astype(np.int64)
            found = max(found, int(np.minimum(self.load_most(unit), total).max(initial=0)))
        return found

    def load_name(self, unit: int) -> str:
        """Label of a load."""
        return next(iter(self.load_labels(unit).values()))

    def load_labels(self, unit: int) -> dict[str, str]:
        """Labels of a load by level, its own first."""
        first, second = divmod(unit, len(self.machines))
        if self.load == "pair":
            out, into = self.machines[first], self.machines[second]
            return {"link": f"{out}>{into}", "sender": out, "receiver": into}
        side, machine = ("out", "in")[first], self.machines[second]
        return {"port": f"{machine} {side}", "machine": machine, "side": side}

    def seconds(self, slot: int) -> float:
        """When a slot begins."""
        return float(rational(self.instance.slot_s) * (slot + self.origin))


@dataclass(frozen=True, eq=False)
class _Runs:
    """Units of transfers in each of the slots ``begin .. end - 1``."""

    transfer: Positions
    begin: Positions
    end: Positions
    rate: NDArray[Any]

    def of(self, members: Positions) -> _Runs:
        """Those of some transfers, by their position among these."""
        kept = np.flatnonzero(np.isin(self.transfer, members))
        at = np.searchsorted(members, self.transfer[kept])
        return _Runs(at, self.begin[kept], self.end[kept], self.rate[kept])

    def piled(self, unit: Positions, base: Positions | int = 0) -> tuple[Positions, Positions, Positions, NDArray[Any]]:
        """Sums by the unit of each run, ``base`` slots later: unit, first slot, end, and sum of each piece."""
        units = np.concatenate([unit, unit])
        times = np.concatenate([self.begin + base, self.end + base])
        order = np.lexsort((times, units))
        units, times, change = units[order], times[order], np.concatenate([self.rate, -self.rate])[order]
        if not len(units):
            return units, times, times, change
        first = np.flatnonzero(np.r_[True, (np.diff(units) != 0) | (np.diff(times) != 0)])
        height = np.cumsum(np.add.reduceat(change, first))
        units, times = units[first], times[first]
        least = 0 if np.issubdtype(height.dtype, np.integer) else 1e-9
        kept = np.flatnonzero(np.r_[units[1:] == units[:-1], False] & (np.abs(height) > least))
        return units[kept], times[kept], times[kept + 1], height[kept]

    def lateness(self, due: Positions) -> Fraction:
        """Units times the slots by which they arrive after their due slots."""
        first = np.maximum(self.begin, due[self.transfer])
        slots = np.maximum(self.end - first, 0)
        late = _times(first + self.end + 1 - 2 * due[self.transfer], slots) // 2
        if np.issubdtype(self.rate.dtype, np.integer):
            return Fraction(sum(r * n for r, n in zip(self.rate.tolist(), late.tolist(), strict=True)))
        return sum((rational(r) * n for r, n in zip(self.rate.tolist(), late.tolist(), strict=True)), Fraction(0))


def _times(a: Whole, b: Whole) -> Whole:
    """Products of integers, of Python's where the sum of all could leave 64 bits."""
    return a * b if largest(a) * largest(b) * max(len(a), 1) < SAFE else a.astype(object) * b


def _key(text: Sequence[str]) -> tuple[str, int, int]:
    """Name and slots (first, end) of a label such as ``a>b,3`` or ``a>b,3..7``."""
    if len(text) == 2:
        first, dots, last = text[1].partition("..")
        ends = (first, last if dots else first)
        if all(each.isascii() and each.isdigit() and len(each) < 16 for each in ends):
            begin, end = int(ends[0]), int(ends[1]) + 1
            if begin < end:
                return text[0], begin, end
    raise ProofError(f"expected a name and slots such as 3 or 3..7, got {','.join(text)[:60]!r}")


class _Part:
    """Some transfers (F') over cells: single slots, or runs of slots that neither windows nor ``keys`` tell apart.

    ``keys``: labels of loads, and of the ports of each side, whose slots are cells of their own; None: every slot is a
    cell. ``steps``: the levels between which loads are cut.
    """

    def __init__(
        self,
        data: _Data,
        members: Positions,
        steps: Sequence[int],
        keys: tuple[list[str], tuple[list[str], list[str]]] | None = None,
        *,
        linear: bool = False,
    ) -> None:
        self.data, self.members, self.single = data, members, keys is None
        self.steps, self.units = np.array(steps, np.int64), data.units[members]
        self.start, self.stop, self.due = data.start[members], data.stop[members], data.due[members]
        self.groups, self.sides = [g[members] for g in data.groups], [p[members] for p in data.ports]
        self.has_ports = keys is None or any(keys[1])
        count = len(members)
        width = self.stop - self.start
        if keys is None and float(width.sum()) > _MOST:
            raise ValueError(f"{width.sum()} rates slot by slot are more than {_MOST}; use longer slots")
        clock = np.zeros(count, np.int64) if keys is None else self._clocks()
        span = int(self.stop.max(initial=0)) + 2
        self.base: Positions = clock * span
        first, stop = self.base + self.start, self.base + self.stop
        if keys is None:
            self.edge: Positions = np.arange(int(first.min(initial=0)), int(stop.max(initial=0)) + 1)
        else:
            marks = [first, stop, *self._marks(keys)]
            if data.elastic:
                marks.append(np.clip(self.base + self.due, first, np.maximum(first, stop)))
            self.edge = np.unique(np.concatenate(marks))
        self.first: Positions = np.searchsorted(self.edge, first)
        size = np.maximum(np.searchsorted(self.edge, stop) - self.first, 0)
        if float(size.sum()) > _MOST:
            raise ValueError(f"{size.sum()} rates are more than {_MOST}")
        self.offset: Positions = np.concatenate([[0], np.cumsum(size)])
        self.row: Positions = np.repeat(np.arange(count), size)
        self.cell: Positions = np.arange(int(self.offset[-1])) - self.offset[self.row] + self.first[self.row]
        self.begin: Positions = self.edge[self.cell] - self.base[self.row]
        self.length: Positions = self.edge[self.cell + 1] - self.edge[self.cell] if len(self.cell) else self.cell
        most = data.most[members]
        self.most: Positions = np.minimum(most, self.units)[self.row]
        enough = np.minimum(self.length, (-(-self.units // np.maximum(most, 1)))[self.row])
        self.upper: Positions = np.minimum(most[self.row] * enough, self.units[self.row])
        late = self.begin >= self.due[self.row] if data.elastic else np.zeros(len(self.row), bool)
        #: Columns of several slots with a moment, and whether its units get later with their slots.
        self.wide: Positions = np.flatnonzero((late | linear) & (self.length > 1))
        self.later: Positions = late[self.wide].astype(np.int64)

    def _clocks(self) -> Positions:
        """(F',) transfers that share a load (or a port, where ports count) share a time line."""
        count, tails, heads = len(self.members), [], []
        for group in (*self.groups, *(self.sides if self.has_ports else ())):
            inverse = np.unique(group, return_inverse=True)[1]
            tails.append(np.arange(len(self.members)))
            heads.append(inverse + count)
            count += int(inverse.max(initial=-1)) + 1
        tail, head = np.concatenate(tails), np.concatenate(heads)
        graph = scipy.sparse.coo_array((np.ones(len(tail)), (tail, head)), shape=(count, count))
        found = scipy.sparse.csgraph.connected_components(graph, directed=False)[1]
        return np.asarray(found[: len(self.members)], np.int64)

    def _marks(self, keys: tuple[list[str], tuple[list[str], list[str]]]) -> list[Positions]:
        """Where the slots of labels begin and end, on the time line of their load or port."""
        base = self.base.tolist()
        loads = {self.data.load_name(u): b for g in self.groups for u, b in zip(g.tolist(), base, strict=True)}
        tables = [(keys[0], loads)]
        for side, mine in zip(self.sides, keys[1], strict=True):
            names = (self.data.machines[m] for m in side.tolist())
            tables.append((mine, dict(zip(names, base, strict=True))))
        found, last = [], int(self.stop.max(initial=0))
        for texts, starts in tables:
            for text in csv.reader(texts):
                name, begin, end = _key(text)
                if name not in starts or end > last:
                    raise ProofError(f"a multiplier of {','.join(text)[:60]!r}, where nothing can be sent")
                found += [starts[name] + begin, starts[name] + end]
        return [np.array(found, np.int64)]

    def _table(self, groups: Iterable[Positions]) -> _Table:
        """Rows for each unit of some groups and each cell in which its transfers may be sent."""
        cells, columns = max(len(self.edge), 1), np.arange(len(self.row))
        key = np.concatenate([group[self.row] * cells + self.cell for group in groups])
        found, at, row = np.unique(key, return_index=True, return_inverse=True)
        column = np.tile(columns, len(key) // max(len(columns), 1))
        at = column[at] if len(found) else at
        return _Table(found, cells, found // cells, self.begin[at], self.length[at], row, column)

    @cached_property
    def loads(self) -> _Table:
        """Loads by unit and cell."""
        return self._table(self.groups)

    @cached_property
    def reach(self) -> Positions:
        """Units that each load can reach in a slot."""
        reach = np.bincount(self.loads.row, self.most[self.loads.column], len(self.loads.unit)).astype(np.int64)
        return np.minimum(self.data.load_most(self.loads.unit), reach)

    @cached_property
    def pieces(self) -> tuple[Positions, Positions, Positions]:
        """Pieces of loads between levels: load, number of the piece, and how much it holds."""
        table, reach = self.loads, self.reach
        low, high = self.steps[:-1], self.steps[1:]
        held = np.clip(reach[:, None], low, high) - low
        load, piece = np.nonzero(held)
        if len(load) > _MOST:
            raise ValueError(f"{len(load)} levels of loads are more than {_MOST}")
        return load, piece, held[load, piece] * table.length[load]

    def program(self, form: str = "P2") -> ExactProgram:
        """Sizes, ports (where they count), lateness, the largest load, and the levels from the highest down.

        ``form``: P1 has no levels. P3 and P4 have no largest load, and one weighted sum of increments, or of the points
        of a mixture.
        """
        data, table, rates, of = self.data, self.loads, np.arange(len(self.row)), ProgramBuilder()
        names, whole = [data.names[k] for k in self.members.tolist()], data.whole
        of.columns("rate", self._rate_labels, len(rates), texts=self._rate_texts, upper=self.upper, integer=whole)
        wide, slots = np.arange(len(self.wide)), self.length[self.wide] - 1
        texts = lambda: label_texts([[names[r] for r in self.row[self.wide].tolist()], self._slots(self.wide)])  # noqa: E731
        moment = len(rates) + wide
        if len(wide):
            upper = _times(self.upper[self.wide], slots)
            of.columns("moment", list, len(wide), texts=texts, upper=upper, integer=whole)
        of.rows("size", "==", names, self.units, (self.row, rates, 1))
        of.rows("moment", "<=", texts, 0 * wide, (wide, moment, 1), (wide, self.wide, -slots))
        for side, name in enumerate(("egress", "ingress")) if self.has_ports else ():
            self._port_rows(of, side, name, moment)
        if data.elastic:
            late = np.maximum(self.begin + 1 - self.due[self.row], 0)
            of.objective("lateness", (rates, late), (moment, self.later))
        links, runs = self._labels(table, data.load_name)
        every, sums = np.arange(len(table.unit)), (table.row, table.column, 1)
        if form in ("P1", "P2"):
            # Of fractions, the highest level that they reach.
            most = of.columns("largest", [{}], upper=data.top, integer=whole or not self.single)
            of.rows("largest_link", "<=", links, 0 * every, sums, (every, 0 * every + most, -table.length), runs=runs)
            of.objective("largest", {most: 1})
        if form == "P1":
            return of.program()
        if form == "P4":
            load = np.repeat(every, self.reach + 1)
            piece = np.arange(len(load)) - np.searchsorted(load, load) - 1

            def points() -> list[str]:
                each = links()
                return [f"{each[k]},{s + 1}" for k, s in zip(load.tolist(), piece.tolist(), strict=True)]

            labels = partial(self._level_labels, load, piece)
            point = np.arange(len(load)) + of.columns("lambda", labels, len(load), texts=points, integer=False)
            less = table.row, table.column, -1
            of.rows("lambda_link", "==", links, 0 * every, (load, point, piece + 1), less, runs=runs)
            of.rows("lambda_one", "==", links, 0 * every + 1, (load, point, 1), runs=runs)
            of.objective("weighted", (point, narrow([len(every) ** (s + 1) for s in piece.tolist()])))
            return of.program()
        load, piece, held = self.pieces
        number, labels = np.arange(len(load)), partial(self._level_labels, load, piece)
        texts = partial(self._level_texts, number)
        level = number + of.columns("level", labels, len(load), texts=texts, upper=held, integer=whole)
        of.rows("level_link", "==", links, 0 * every, sums, (load, level, -1), runs=runs)
        if form == "P3":  # by how much each step raises n ** load
            n = len(every)
            value = narrow([n ** (s + 1) - n**s for s in piece.tolist()])
            of.objective("weighted", (level, value), constant=Exact(np.array([n])))
            return of.program()
        if self.single:
            above = np.flatnonzero(np.r_[False, load[1:] == load[:-1]]) if len(load) else load
            k, texts = np.arange(len(above)), partial(self._level_texts, above - 1)
            of.rows("level_order", "<=", texts, 0 * k, (k, level[above], 1), (k, level[above - 1], -1))
        for step in range(len(self.steps) - 2, -1, -1):
            of.objective(self.stage(step), (level[piece == step], 1))
        return of.program()

    def stage(self, k: int) -> str:
        """Name of the objective of a piece."""
        low, high = int(self.steps[k]) + 1, int(self.steps[k + 1])
        return f"level_{high}" if low == high else f"level_{low}..{high}"

    def _port_rows(self, of: ProgramBuilder, side: int, name: str, moment: Positions) -> None:
        """What a port carries in a cell; of several slots also no more than it can early, and late, in them."""
        table, limit = self._table([self.sides[side]]), self.data.capacity[side]
        texts, runs = self._labels(table, self.data.machines.__getitem__)
        most = limit[table.unit] * table.length
        of.rows(name, "<=", texts, most, (table.row, table.column, 1), runs=runs)
        if not len(self.wide) or self.single:
            return
        row, slots = table.row[self.wide], self.length[self.wide] - 1
        sides = narrow([a * (b - 1) // 2 for a, b in zip(most.tolist(), table.length.tolist(), strict=True)])
        of.rows(f"{name}_late", "<=", texts, sides, (row, moment, 1), runs=runs)
        of.rows(f"{name}_early", "<=", texts, sides, (row, self.wide, slots), (row, moment, -1), runs=runs)

    def _slots(self, columns: Positions | None = None) -> list[str]:
        at = slice(None) if columns is None else columns
        return _run_texts(self.begin[at], self.length[at])

    def _labels(
        self, table: _Table, name: Callable[[int], str]
    ) -> tuple[Callable[[], list[str]], Callable[[Sequence[str]], tuple[Positions, Positions]]]:
        """Labels of the rows of a table, and the rows that labels of runs stand for; ``name``: of a unit."""

        @cache
        def names() -> dict[str, int]:
            return {name(unit): unit for unit in np.unique(table.unit).tolist()}

        def texts() -> list[str]:
            of = {unit: text for text, unit in names().items()}
            return label_texts([[of[u] for u in table.unit.tolist()], _run_texts(table.begin, table.length)])

        def find(labels: Sequence[str]) -> tuple[Positions, Positions]:
            read, units = [_key(text) for text in csv.reader(labels)], names()
            if odd := [text for text, _, _ in read if text not in units]:
                raise ProofError(f"a multiplier of {odd[0][:60]!r}, where nothing can be sent")
            span = int(table.begin.max(initial=0)) + int(table.length.max(initial=0)) + 2
            at = table.unit * span + table.begin
            unit = np.array([units[text] for text, _, _ in read], np.int64) * span
            low, high = (
                np.searchsorted(at, unit + np.array([min(key[k], span - 1) for key in read], np.int64)) for k in (1, 2)
            )
            size = np.maximum(high - low, 0)
            key = np.repeat(np.arange(len(read)), size)
            return np.arange(len(key)) - np.repeat(np.cumsum(size) - size - low, size), key

        return texts, find

    def _rate_texts(self) -> list[str]:
        names = [self.data.names[f] for f in self.members[self.row].tolist()]
        return label_texts([names, self._slots()])

    def _rate_labels(self) -> list[dict[str, Any]]:
        data, found = self.data, []
        for k, slot in zip(self.row.tolist(), self.begin.tolist(), strict=True):
            f = int(self.members[k])
            sender, receiver = (data.machines[int(port[f])] for port in data.ports)
            found.append(
                {
                    "transfer": data.names[f],
                    "slot": slot,
                    "time": data.seconds(slot),
                    "job": data.jobs[f],
                    "sender": sender,
                    "receiver": receiver,
                    "link": f"{sender}>{receiver}",
                }
            )
        return found

    def _level_texts(self, at: Positions) -> list[str]:
        load, piece = self.pieces[0][at], self.pieces[1][at]
        slots = _run_texts(self.loads.begin[load], self.loads.length[load])
        steps = [f"{a + 1}" if b == a + 1 else f"{a + 1}..{b}" for a, b in pairwise(self.steps.tolist())]
        names = [self.data.load_name(u) for u in self.loads.unit[load].tolist()]
        return label_texts([names, slots, [steps[k] for k in piece.tolist()]])

    def _level_labels(self, load: Positions, piece: Positions) -> list[dict[str, Any]]:
        table = self.loads
        return [
            {**self.data.load_labels(int(table.unit[k])), "slot": int(table.begin[k])}
            | {"time": self.data.seconds(int(table.begin[k])), "step": int(self.steps[p + 1])}
            for k, p in zip(load.tolist(), piece.tolist(), strict=True)
        ]

    def values(self, runs: _Runs) -> Exact:
        """Values of all columns at the runs of the part's transfers, which lie in their windows."""
        table, rates = self.loads, len(self.row)
        exact = np.issubdtype(runs.rate.dtype, np.integer)
        kind: Any = np.int64 if exact else np.float64
        base = self.base[runs.transfer]
        run, cell, low, high = self._cut(runs.begin + base, runs.end + base)
        column = self.offset[runs.transfer[run]] + cell - self.first[runs.transfer[run]]
        rate = np.zeros(rates, kind)
        np.add.at(rate, column, runs.rate[run] * (high - low))
        each = _times(low + high - 1 - 2 * self.edge[cell], high - low) // 2
        each = _times(runs.rate[run], each) if exact else runs.rate[run] * each.astype(np.float64)
        moments = np.zeros(rates, each.dtype)
        np.add.at(moments, column, each)
        load, _, _ = self.pieces
        begin = np.searchsorted(load, np.arange(len(table.unit)))
        level, highest = np.zeros(len(load), kind), 0
        for group in self.groups:
            unit, start, stop, height = runs.piled(group[runs.transfer], base)
            at, cell, low, high = self._cut(start, stop)
            row = np.searchsorted(table.key, unit[at] * table.cells + cell)
            highest = max(highest, height.max(initial=0).item())
            for k, (a, b) in enumerate(pairwise(self.steps.tolist())):
                held = np.clip(height[at] - a, 0, b - a)
                some = np.flatnonzero(held)
                np.add.at(level, begin[row[some]] + k, held[some] * (high - low)[some])
        highest = highest if self.single else int(np.ceil(highest - _NEAR))
        found = np.concatenate([rate, moments[self.wide], np.array([highest], kind), level])
        return Exact(found) if exact else Exact.of_floats(found)

    def _cut(self, begin: Positions, end: Positions) -> tuple[Positions, Positions, Positions, Positions]:
        """Cut slots on the time lines at the edges of cells: which, cell, first slot and end of every cut."""
        first = np.searchsorted(self.edge, begin, side="right") - 1
        size = np.searchsorted(self.edge, end) - first
        which = np.repeat(np.arange(len(begin)), size)
        cell = np.arange(len(which)) - np.repeat(np.cumsum(size) - size - first, size)
        return which, cell, np.maximum(begin[which], self.edge[cell]), np.minimum(end[which], self.edge[cell + 1])


@dataclass(frozen=True, eq=False)
class _Table:
    """Rows by unit and cell: keys ``unit * cells + cell``, unit, first slot, slots; and the row of each column."""

    key: Positions
    cells: int
    unit: Positions
    begin: Positions
    length: Positions
    row: Positions
    column: Positions


def _run_texts(begin: Positions, length: Positions) -> list[str]:
    return [f"{a}" if n == 1 else f"{a}..{a + n - 1}" for a, n in zip(begin.tolist(), length.tolist(), strict=True)]


def restate_jit(claimed: Claimed) -> ExactProgram:
    """``rate`` by transfer and slot; ``largest``, ``level`` and ``lambda`` as the program has them."""
    data = _Data(claimed.instance, claimed.document.options)
    part = _Part(data, np.arange(len(data.names)), range(data.top + 1))
    return part.program(data.program)


# ---- answers


def _read(data: _Data, answer: Answer) -> _Runs:
    """The runs of an answer, in the order of transfers and slots."""
    table = [(data.place[name], *run) for name, runs in answer.schedule.items() for run in runs]
    if any(len(run) != 4 or not isinstance(run[1], int) or not isinstance(run[2], int) for run in table):
        raise ValueError("a run is its first slot, its end, and the units in each slot")
    rate = [run[3] for run in table]
    numbers = np.array([run[:3] for run in table], np.int64).reshape(-1, 3)
    whole = all(isinstance(r, int) for r in rate)
    return _Runs(numbers[:, 0], numbers[:, 1], numbers[:, 2], np.array(rate, np.int64 if whole else np.float64))


def _basis(data: _Data, answer: Answer, runs: _Runs) -> list[Check]:
    """Whether the runs are of the planned transfers, in their windows, on the grid of the instance."""
    f = runs.transfer
    missing = ", ".join([name for name in data.names if name not in answer.schedule][:3])
    outside = (runs.begin < data.start[f]) | (runs.end > data.stop[f]) | (runs.begin >= runs.end)
    where = data.names[int(f[np.argmax(outside)])] if outside.any() else ""
    grid = data.instance.slot_s, data.instance.unit_mb, data.origin
    checks = [
        Check("the planned transfers are the stated share of every job", not missing, detail=missing),
        Check("transfers are sent in their windows", not outside.any(), int(outside.sum()), where),
        Check("slots and units are those of the instance", (answer.slot_s, answer.unit_mb, answer.origin_slot) == grid),
    ]
    if not outside.any():
        late, near = runs.lateness(data.due), 0.0 if np.issubdtype(runs.rate.dtype, np.integer) else _NEAR
        checks.append(Check("lateness", agrees(answer.lateness_unit_slots, late, near), float(late)))
    return checks


def _facts(data: _Data, answer: Answer, runs: _Runs) -> list[Check]:
    """Whether the runs are a schedule of the planned transfers."""
    f, whole = runs.transfer, np.issubdtype(runs.rate.dtype, np.integer)
    near = 0.0 if whole else _NEAR
    checks = [
        *_basis(data, answer, runs),
        # No single rate may leave 64 bits in the sums below.
        Check("rates are positive, and of a size", bool(((runs.rate > 0) & (runs.rate <= 2 * data.most[f])).all())),
        Check("rates are units", bool(whole or not data.whole)),
    ]
    if not all(check.ok for check in checks):
        return checks
    sent = np.zeros(len(data.names), runs.rate.dtype)
    np.add.at(sent, f, runs.rate * (runs.end - runs.begin))
    off = np.abs(sent - data.units)
    checks.append(
        Check("every transfer is sent whole", bool((off <= near * (1 + data.units)).all()), float(off.max(initial=0)))
    )
    for name, port, limit in zip(("egress", "ingress"), data.ports, data.capacity, strict=True):
        unit, _, _, load = runs.piled(port[f])
        over = load - limit[unit]
        fits = bool((over <= near * (1 + limit[unit])).all())
        checks.append(Check(f"{name} stays within the ports", fits, max(0.0, float(over.max(initial=0)))))
    overlap = runs.piled(f)
    twice = bool((overlap[3] > data.most[overlap[0]] * (1 + near)).any())
    checks.append(Check("no transfer is sent faster than its ports", not twice))
    return checks


class _Loads:
    """Positive loads of a schedule and their numbers of slots."""

    def __init__(self, groups: Iterable[Positions], runs: _Runs) -> None:
        found = [runs.piled(group[runs.transfer]) for group in groups]
        self.load = np.concatenate([height for *_, height in found])
        self.slots = np.concatenate([end - begin for _, begin, end, _ in found])
        self.largest = Fraction(self.load.max(initial=0).item())
        self.top = int(np.ceil(float(self.largest) - _NEAR))

    def counts(self) -> dict[str, Fraction]:
        """By level, how many loads reach it (of fractions, the sum of their parts in it)."""
        if not np.issubdtype(self.load.dtype, np.integer):
            parts = ((np.clip(self.load - (s - 1), 0, 1) * self.slots).sum() for s in range(self.top, 0, -1))
            return {f"level_{self.top - k}": Fraction(part.item()) for k, part in enumerate(parts)}
        met = np.zeros(self.top + 1, np.int64)
        np.add.at(met, self.load, self.slots)
        counts = np.cumsum(met[::-1])[:-1].tolist()
        return {f"level_{self.top - k}": Fraction(n) for k, n in enumerate(counts)}

    def steps(self, top: int, named: Iterable[int] = ()) -> list[int]:
        """Levels that loads reach, and those of some names, each apart from the others."""
        levels = np.unique(np.ceil(self.load - _NEAR)).astype(np.int64).tolist()
        cuts = {0, top, *(k - d for k in (*levels, *named) for d in (0, 1))}
        return sorted(k for k in cuts if 0 <= k <= top)


def _figures(data: _Data, runs: _Runs, loads: _Loads) -> dict[str, float | int | Fraction | str]:
    """The metrics that a schedule and its windows determine."""
    real = float(np.sum(data.size_mb))
    planned = float(data.units.sum()) * data.instance.unit_mb
    counts = [(int(loads.slots[loads.load >= s - _NEAR].sum()), s) for s in range(loads.top, max(loads.top - 4, 0), -1)]
    return {
        "largest_load": loads.largest,
        "loads_by_level": ", ".join(f"{count} at {s}" for count, s in counts) or "none",
        "planned_transfers": len(data.names),
        "background_transfers": data.count - len(data.names),
        "lateness_unit_slots": runs.lateness(data.due),
        "windows_widened_by_grid": data.widened,
        "planned_over_real_bytes": planned / real if real else 1.0,
    }


# ---- proofs


def _keys(document: Mapping[str, Any]) -> tuple[tuple[list[str], tuple[list[str], list[str]]], bool]:
    """Labels of loads and of the ports of each side that have multipliers; whether some rise or fall in their runs."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for leaf in (leaf for leaves in (*document["stages"].values(), document["empty"]) for leaf in leaves):
        for name, given in leaf.get("rows", {}).items():
            found[name] |= dict.fromkeys(given.get("at", {}))
    loads = {text: None for name in _OF_LOADS for text in found[name]}
    out, into = ({text: None for name in names for text in found[name]} for names in _OF_PORTS)
    linear = any(found[name] for names in _OF_PORTS for name in names[1:])
    return (list(loads), (list(out), list(into))), linear


def _members(data: _Data, part: PartProof) -> Positions:
    members = np.array(sorted(data.place[name] for name in part.transfers), np.int64)
    if len(np.unique(members)) < len(members):
        raise ProofError("a part names a transfer twice")
    return members


def _prove(data: _Data, part: PartProof, members: Positions, runs: _Runs, budget: Budget) -> Verdict:
    """Judge the schedule of a part, with the ports to itself."""
    document = part.model_dump(exclude={"transfers", "quoted"})
    mine = runs.of(members)
    named = [int(name[6:]) for name in part.stages if name.startswith("level_") and name[6:].isdigit()]
    loads = _Loads([group[members] for group in data.groups], mine)
    keys, linear = _keys(document)
    stated = _Part(data, members, loads.steps(data.top, named), keys, linear=linear)
    program = stated.program()
    proof = from_document(document, program)
    return judge(
        program, stated.values(mine), replace(proof, stages=_completed(program, proof.stages, data)), "optimal", budget
    )


def _completed(
    program: ExactProgram, stages: Mapping[str, tuple[Leaf, ...]], data: _Data
) -> dict[str, tuple[Leaf, ...]]:
    """What a proof leaves out: nothing is late, a level as low as those above allow, the sum of all loads."""
    moment = ("moment",) if "moment" in program.rows else ()
    found = {
        name: tuple(replace(leaf, complete=tuple({*leaf.complete, *moment})) for leaf in leaves)
        for name, leaves in stages.items()
    }
    names = [each.name for each in program.objectives]
    for name in names:
        found.setdefault(name, (Leaf(complete=moment, with_earlier=True),))
    last = names[-1]
    if last.startswith("level") and last not in stages:
        sizes, links = program.rows.get("size"), program.rows.get("level_link")
        if sizes is not None and links is not None:
            whole = Exact(np.full(sizes.count, len(data.groups))), Exact(np.full(links.count, -1))
            above = {name: Fraction(-1) for name in names[:-1] if name.startswith("level")}
            found[last] = (Leaf({"size": whole[0], "level_link": whole[1]}, above, complete=moment),)
    return found


def _judge(claimed: Claimed) -> Finding:
    data = _Data(claimed.instance, claimed.document.options)
    if claimed.answer is None:
        return _no_answer(claimed, data)
    if data.program in ("P3", "P4"):
        detail = "the file holds no values of the program's variables; solve again"
        return Finding("feasible", (Check(f"{data.program} is judged by its own program", False, detail=detail),))
    runs = _read(data, claimed.answer)
    checks = _facts(data, claimed.answer, runs)
    if not all(check.ok for check in checks):
        return Finding("feasible", tuple(checks))
    if len(claimed.proof.parts) > max(1, len(data.names)):
        raise ProofError(f"{len(claimed.proof.parts)} parts of {len(data.names)} transfers")
    loads, whole = _Loads(data.groups, runs), data.whole
    stages = {"lateness": runs.lateness(data.due), **loads.counts()}
    figures, tolerance = _figures(data, runs, loads), 0.0 if whole else _NEAR
    rest: dict[str, Any] = {
        "stages": stages,
        "metrics": figures,
        "unjudged": _UNJUDGED,
        "words": {"route"},
        "tolerance": tolerance,
    }
    optimal, late, least = True, Fraction(0), Fraction(int(whole and loads.top > 0))
    shown, left = least, np.ones(len(data.names), bool)
    for number, part in enumerate(claimed.proof.parts):
        members = _members(data, part)
        where = f"part {number + 1}: " if len(claimed.proof.parts) > 1 else ""
        others = np.setdiff1d(np.arange(len(data.names)), members)
        optimal = optimal and not any(np.isin(g[members], g[others]).any() for g in data.groups)
        if not left[members].all() or claimed.budget.spent:
            once = Check(f"{where}names transfers of no other part", False)
            checks.append(claimed.budget.quoted(f"{where}objectives") if left[members].all() else once)
            optimal = False
            continue
        left[members] = False
        verdict = _prove(data, part, members, runs, claimed.budget)
        checks += [replace(check, name=where + check.name) for check in verdict.certificate.checks]
        if verdict.late:
            checks.append(claimed.budget.quoted(f"{where}objectives"))
        elif verdict.claim != "optimal" and part.quoted:
            checks.append(Check(f"{where}the integer program's word", True, detail=_open(verdict), how="quoted"))
        optimal = optimal and verdict.claim == "optimal"
        bounds = {stage.name: stage.bound for stage in verdict.stages}
        late += bounds.get("lateness") or 0
        shown = max(shown, bounds["largest"] or Fraction(0))
    optimal = optimal and not left.any()
    if data.elastic and abs(late - stages["lateness"]) > Fraction(tolerance) * (1 + late):
        shown = least
    claim: Claim = "optimal" if optimal else "bounded" if shown > least else "feasible"
    return Finding(claim, tuple(checks), loads.largest, loads.largest if optimal else shown, **rest)


def _open(verdict: Verdict) -> str:
    return "; ".join(f"{stage.name}: {stage.reason}" for stage in verdict.stages if not stage.proven)[:200]


def certify_schedule(instance: JitInstance, options: Mapping[str, Any], answer: Mapping[str, Any]) -> Certificate:
    """Whether a schedule, as a solution file states it, is one; nothing is claimed of its loads."""
    data, read = _Data(instance, JitOptions(**options).model_dump()), Answer(**answer)
    return Certificate("feasible", data.whole, tuple(_facts(data, read, _read(data, read))))


def _no_answer(claimed: Claimed, data: _Data) -> Finding:
    """Judge that there is no schedule: shown by multipliers of some transfers, or quoted."""
    name, status = "there is no schedule", claimed.document.status
    if status != "infeasible":
        return Finding("feasible", (Check("there is an answer", False, detail=status),))
    if data.elastic and (data.firm >= NEVER).all():
        return Finding("feasible", (Check(name, False, detail="no end is firm: what is late may be later"),))
    for part in claimed.proof.parts:
        document = part.model_dump(exclude={"transfers", "quoted"})
        keys, linear = _keys(document)
        program = _Part(data, _members(data, part), [0, data.top], keys, linear=linear).program()
        verdict = judge(program, None, from_document(document, program), "infeasible", claimed.budget)
        return Finding(verdict.claim if verdict.certificate.exact else "feasible", verdict.certificate.checks)
    return Finding("feasible", (Check(name, True, detail="the solver's word", how="quoted"),))


def _changed_figures(claimed: Claimed, values: Mapping[str, Mapping[str, Any]]) -> Finding:
    """The answer of a changed model: rates are those of the values."""
    data = _Data(claimed.instance, claimed.document.options)
    runs = _read(data, claimed.answer)
    checks = _basis(data, claimed.answer, runs)
    if not all(check.ok for check in checks):
        return Finding("feasible", tuple(checks))
    rates: dict[str, Fraction] = defaultdict(Fraction)
    table = (runs.transfer.tolist(), runs.begin.tolist(), runs.end.tolist(), runs.rate.tolist())
    for f, begin, end, rate in zip(*table, strict=True):
        for slot in range(begin, end):
            rates[label_text((data.names[f], slot))] += rational(rate)
    near = 0.0 if np.issubdtype(runs.rate.dtype, np.integer) else _NEAR
    checks.append(same_values({"rate": rates}, values, near))
    figures = _figures(data, runs, _Loads(data.groups, runs))
    return Finding("feasible", tuple(checks), metrics=figures, unjudged=_UNJUDGED, words={"route"})


VERIFIER = Verifier(
    "jit-bandwidth",
    Answer,
    JitProof,
    _judge,
    options=JitOptions,
    restated=restate_jit,
    main="largest",
    needed=frozenset({"size", "level_link", "level_order", "largest_link", "lambda_link", "lambda_one"}),
    figures=_changed_figures,
)
