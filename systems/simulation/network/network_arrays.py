"""The running network as arrays that compiled loops share.

Transfers are served in *groups*: a policy chooses whether a group is a coflow, a single transfer, or all transfers on
one pair of machines (which a max-min fair network serves equally). A group has an *entry* per port it uses, sending
ports first. The transfers of a group that use an entry's port form the *row* of that entry, with active transfers at
its beginning.

Transfers of a pair are all served at one rate, so only the next to end matters. Their row is a heap by ``left``, which
counts from when the pair began to send; ``served`` is the volume that each of them has received since.

A coflow whose transfers are paced to end together is updated at once: its ``left`` and ``load`` stay constant while its
``scale`` decreases, and only transfers with an additional rate of their own are updated one by one.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.deferred_compilation import njit
from flowlex.systems.simulation.network.traffic_arrays import Floats, Ints, Traffic

Grouping: TypeAlias = Literal["coflow", "transfer", "pair"]


class Net(NamedTuple):
    """F transfers, G groups, P entries, 2M ports (sending ones first). Times in seconds, sizes in MB."""

    rate_of_port: Floats  # (2M,)
    copy: Ints  # (F,) 1 for background copies, else 0
    size: Floats  # (F,)
    left: Floats  # (F,) remainder divided by the group's scale; in a pair: value of `served` at its end
    begin: Floats  # (F,) first time with a rate, NaN before
    end: Floats  # (F,) NaN before
    feeds: Ints  # (F,) computation or -1
    missing: Ints  # (N,) transfers that each computation still waits for
    group: Ints  # (F,)
    out_at: Ints  # (F,) entries of its ports in its group
    in_at: Ints  # (F,)
    place: Ints  # (F,) position in the row of its sending port, -1 if it is not active
    place_in: Ints  # (F,) position in the row of its receiving port (not for pairs)
    row: Ints  # (2 F,) transfers by entry
    first: Ints  # (G + 1,) entries of each group
    split: Ints  # (G,) the first entry of a receiving port
    served: Floats  # (G,) pairs only: MB that each transfer has received
    alive: Ints  # (G,) transfers on their way
    scale: Floats  # (G,) factor of `left` and `load`
    pace: Floats  # (G,) seconds until a paced group ends
    paced: Ints  # (G,) list of groups whose transfers are paced to end together
    fresh: NDArray[np.bool_]  # (G,) whether a transfer may have arrived since the group was last paced
    bits: Ints  # (G, 2, W) bits of its sending and receiving ports with active transfers
    listed: Ints  # (F,) transfers by group, in the policy's order; ended ones are removed at times
    span: Ints  # (G, 2) start and end of a group's list
    port: Ints  # (P,)
    load: Floats  # (P,) remaining MB through the port, divided by the scale (not for pairs)
    members: Ints  # (P,) transfers on their way
    start: Ints  # (P,) start of the entry's row
    rate: Floats  # (F,) of transfers, in addition to their pace, 0 if not in `running`; (G,) of each transfer of a pair
    running: Ints  # transfers (or pairs) with a rate
    ended: Ints  # (F,) transfers that ended since the loop was entered
    used: Floats  # (2, 2M) port loads by jobs and by copies, as summed by the check
    bins: Floats  # (B, 2, 2M) MB by bin of time
    numbers: Ints  # counters, see below
    clock: Floats  # now, width of a bin, smallest step


#: Indices in `Net.numbers`: lengths of running, paced, ended; events; offender of a failed check; if groups are pairs.
RUNNING, PACED, ENDED, EVENTS, OFFENDER, PAIRS = range(6)
NOW, BIN = range(2)
#: Most numbers in the bins of time.
MOST_NUMBERS = 4_000_000


class _Layout(NamedTuple):
    """Layout of groups, entries and rows; see `Net`."""

    group: Ints
    groups: int
    out_at: Ints
    in_at: Ints
    first: Ints
    split: Ints
    port: Ints
    start: Ints


def _grouped(traffic: Traffic, grouping: Grouping) -> tuple[Ints, int]:
    """Return (F,) group of each transfer, and the number of groups."""
    if grouping == "coflow":
        return traffic.coflow.copy(), len(traffic.coflow_names)
    if grouping == "transfer":
        return np.arange(traffic.count), traffic.count
    keys = (traffic.sender * len(traffic.machines) + traffic.receiver) * 2 + traffic.copy
    kinds, group = np.unique(keys, return_inverse=True)
    return group, len(kinds)


def _lay_out(traffic: Traffic, grouping: Grouping) -> _Layout:
    """Assign an entry with a row to every port of every group, sending ports first."""
    ports, count = 2 * len(traffic.machines), traffic.count
    group, groups = _grouped(traffic, grouping)
    sides = (traffic.sender, traffic.receiver + ports // 2)
    entries, at = np.unique(np.concatenate([group * ports + side for side in sides]), return_inverse=True)
    row_ends = np.cumsum(np.bincount(at, minlength=len(entries)))
    return _Layout(
        group=group,
        groups=groups,
        out_at=at[:count],
        in_at=at[count:],
        first=np.searchsorted(entries, np.arange(groups + 1) * ports),
        split=np.searchsorted(entries, np.arange(groups) * ports + ports // 2),
        port=entries % ports,
        start=np.concatenate([[0], row_ends])[:-1],
    )


def make_net(traffic: Traffic, grouping: Grouping, bin_s: float) -> Net:
    """Create the network before any arrival."""
    machines, count = len(traffic.machines), traffic.count
    at = _lay_out(traffic, grouping)
    groups, entries = at.groups, len(at.port)
    bins = int(np.clip(MOST_NUMBERS // (8 * machines), 32, 2048)) * 2  # even, so that neighbours can be joined
    rates = groups if grouping == "pair" else count
    return Net(
        rate_of_port=traffic.ports.copy(),
        copy=traffic.copy.astype(np.int64),
        size=traffic.size_mb.copy(),
        left=traffic.size_mb.copy(),
        begin=np.full(count, np.nan),
        end=np.full(count, np.nan),
        feeds=traffic.feeds.copy(),
        missing=np.bincount(traffic.feeds[traffic.feeds >= 0], minlength=len(traffic.seconds)),
        group=at.group,
        out_at=at.out_at,
        in_at=at.in_at,
        place=np.full(count, -1),
        place_in=np.full(count, -1),
        row=np.full(2 * count, -1),
        first=at.first,
        split=at.split,
        served=np.zeros(groups),
        alive=np.zeros(groups, np.int64),
        scale=np.ones(groups),
        pace=np.full(groups, np.inf),
        paced=np.zeros(groups, np.int64),
        fresh=np.zeros(groups, np.bool_),
        bits=np.zeros((groups, 2, words(machines)), np.int64),
        listed=np.full(count, -1),
        span=np.zeros((groups, 2), np.int64),
        port=at.port,
        load=np.zeros(entries),
        members=np.zeros(entries, np.int64),
        start=at.start,
        rate=np.zeros(rates),
        running=np.zeros(rates, np.int64),
        ended=np.zeros(count, np.int64),
        used=np.zeros((2, 2 * machines)),
        bins=np.zeros((bins, 2, 2 * machines)),
        numbers=np.array([0, 0, 0, 0, -1, grouping == "pair"], np.int64),
        clock=np.array([0.0, bin_s]),
    )


def words(machines: int) -> int:
    """Return the number of 64-bit words for one bit per machine."""
    return (machines + 63) // 64


@njit(cache=True)
def flip(bits, p, machines):
    """Change the bit of a port, in ``bits[side, word]``."""
    side = 0 if p < machines else 1
    k = p - side * machines
    bits[side, k // 64] ^= np.int64(1) << np.int64(k % 64)


@njit(cache=True)
def common(first, second):
    """Return whether two bit sets of ports of one side intersect."""
    both = np.int64(0)
    for w in range(len(first)):
        both |= first[w] & second[w]
    return both != 0


@njit(cache=True)
def _put(net, f, at):
    net.row[at] = f
    net.place[f] = at


@njit(cache=True)
def _rise(net, f, at, start):
    """Insert a transfer into the heap of its pair, moving up from ``at``."""
    while at > start:
        above = start + (at - start - 1) // 2
        if net.left[net.row[above]] <= net.left[f]:
            break
        _put(net, net.row[above], at)
        at = above
    _put(net, f, at)


@njit(cache=True)
def _sink(net, f, at, start, stop):
    while True:
        below = 2 * at - start + 1
        if below >= stop:
            break
        if below + 1 < stop and net.left[net.row[below + 1]] < net.left[net.row[below]]:
            below += 1
        if net.left[net.row[below]] >= net.left[f]:
            break
        _put(net, net.row[below], at)
        at = below
    _put(net, f, at)


@njit(cache=True)
def add(net, transfers):
    """Activate transfers that may be sent from now on: each goes to the end of the rows of its two entries."""
    machines = len(net.rate_of_port) // 2
    for f in transfers:
        g, out, into = net.group[f], net.out_at[f], net.in_at[f]
        end_out, end_in = net.start[out] + net.members[out], net.start[into] + net.members[into]
        for entry in (out, into):
            if not net.members[entry]:
                flip(net.bits[g], net.port[entry], machines)
            net.members[entry] += 1
            net.load[entry] += net.size[f] / net.scale[g]
        net.alive[g] += 1
        net.fresh[g] = True
        if net.numbers[PAIRS]:
            net.left[f] = net.served[g] + net.size[f]
            _rise(net, f, end_out, net.start[out])
        else:
            net.left[f] = net.size[f] / net.scale[g]
            _put(net, f, end_out)
            net.place_in[f] = end_in
            net.row[net.place_in[f]] = f


@njit(cache=True)
def finish(net, f, now):
    """Remove an arrived transfer from its row and record its end."""
    g, out, into = net.group[f], net.out_at[f], net.in_at[f]
    last = net.start[out] + net.members[out] - 1
    moved, at = net.row[last], net.place[f]
    for entry in (out, into):
        net.members[entry] -= 1
        net.load[entry] = net.load[entry] - net.left[f] if net.members[entry] else 0.0
        if not net.members[entry]:
            flip(net.bits[g], net.port[entry], len(net.rate_of_port) // 2)
    net.alive[g] -= 1
    if net.numbers[PAIRS]:
        if moved != f:
            _sink(net, moved, at, net.start[out], last)
    else:
        _put(net, moved, at)
        last_in = net.row[net.start[into] + net.members[into]]
        net.place_in[last_in] = net.place_in[f]
        net.row[net.place_in[f]] = last_in
    if not net.alive[g]:
        net.served[g], net.scale[g] = 0.0, 1.0
    net.place[f] = -1
    net.left[f] = 0.0
    net.end[f] = now
    net.ended[net.numbers[ENDED]] = f
    net.numbers[ENDED] += 1
    c = net.feeds[f]
    if c >= 0:
        net.missing[c] -= 1
