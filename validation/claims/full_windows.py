r"""A claim of ours, proven: when JIT matrices with full windows and at least 3 slots are totally unimodular.

Rows of the matrix are (i, t) for senders, (j, t) for receivers and one demand row per transfer; the column of
transfer f = (i, j) in slot t has ones in (i, t), (j, t) and f. Let G be the simple graph of senders and
receivers that have a transfer between them; transfers between the same two form a bundle.

**Theorem.** With T >= 3 slots the matrix is totally unimodular if and only if G is a forest and every bundle of
two or more transfers has an end of degree 1 in G. ("If" holds for every T.)

*If.* It is a network matrix of this tree. Every component of G gives a tree on its machines whose edges are its
single transfers; a bundle's end j of degree 1 is left out of it (the other end i stays). At a machine v in the
tree hang its slot rows (v, t) as leaves. At the outer end of (i, t) hang the rows (j, t) of the left-out ends j
of i's bundles, and at i itself hang the demand rows of these bundles as leaves. Then x_f^t is the path
(i, t), f, (j, t) for a single transfer, and f, (i, t), (j, t) for one of a bundle. Direct paths from sender to
receiver: (i, t) is always walked towards its sender i, (j, t) away from its receiver j, and f from the sender's
side to the receiver's, so all entries are +1. (A bundle that is a whole component keeps one end in the tree.)

*Only if.* Walk through columns, stepping from x_f^t to x_g^t by the row (v, t) of a machine v of both, and from
x_f^t to x_f^s by the demand row f. A closed walk of odd length that meets every column once and whose rows
contain no third column of it is a submatrix of determinant +-2.

(a) G has a cycle, with transfers f_1 .. f_2k, k >= 2. Walk around it once, and change the slot at f_1 (0 to 1),
f_2 (1 to 2) and f_3 (2 to 0): 2k machine steps and 3 demand steps, an odd length; a machine row holds only its
two neighbours on the cycle, a demand row only the two slots of its change.

(b) f and g join i and j, a another transfer of i (to some other machine), b another one of j. Walk
x_f^0 -(i,0)- x_a^0 -a- x_a^1 -(i,1)- x_g^1 -(j,1)- x_b^1 -b- x_b^2 -(j,2)- x_f^2 -f- x_f^0: length 7. In row
(i, 1) the third candidate x_f^1 is not in the walk, and so on for the other rows. QED

Two slots are different: (1,1), (1,2), (2,2), (1,3), (2,3) is not totally unimodular, (1,1), (1,2), (2,1), (2,2)
is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

#: Least number of slots for which the rule decides.
LEAST_SLOTS = 3

Flow = Sequence[int]
#: A column of the matrix: transfer and slot.
Column = tuple[int, int]
#: A row: ("egress", machine, slot), ("ingress", machine, slot) or ("demand", transfer, 0).
Row = tuple[str, int, int]


@dataclass(frozen=True)
class JitRule:
    """Result of the theorem for a set of transfers."""

    tu: bool  # whether the matrix is totally unimodular
    reason: str  # in words
    #: The odd closed walk when it is not: indices into `jit_matrix`; empty otherwise.
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()


def full_window_rule(flows: Sequence[Flow], slots: int) -> JitRule:
    """Decide a JIT matrix with full windows by the theorem, in time linear in the transfers.

    ``flows``: sender and receiver of every transfer, numbered from 0 on each side.
    ``slots``: at least 3.
    Raises `ValueError`: with fewer slots, about which the theorem says nothing.
    """
    if slots < LEAST_SLOTS:
        raise ValueError(f"the rule needs at least {LEAST_SLOTS} slots, not {slots}; use check()")
    found = odd_walk(flows)
    if found is not None:
        reason, rows, columns = found
        return JitRule(False, reason, *_indices(flows, slots, rows, columns))
    most = max(Counter(map(tuple, flows)).values(), default=0)
    return JitRule(True, f"a forest in which every bundle (at most {most} transfers) ends in a leaf")


def odd_walk(flows: Sequence[Flow]) -> tuple[str, list[Row], list[Column]] | None:
    """Return why the matrix is not totally unimodular with the walk that shows it, or None if it is."""
    graph = nx.Graph()
    bundle: dict[frozenset[tuple[str, int]], list[int]] = {}
    for number, (i, j) in enumerate(flows):
        ends = ("egress", int(i)), ("ingress", int(j))
        graph.add_edge(*ends)
        bundle.setdefault(frozenset(ends), []).append(number)
    try:
        cycle = [frozenset(edge[:2]) for edge in nx.find_cycle(graph)]
    except nx.NetworkXNoCycle:
        cycle = []
    if cycle:
        machines = [_shared(one, two) for one, two in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
        reason = f"the sender-receiver graph has a cycle of {len(cycle)} transfers"
        return reason, *_around([bundle[edge][0] for edge in cycle], machines)
    for edge, members in bundle.items():
        one, two = sorted(edge)
        if len(members) >= 2 and graph.degree(one) >= 2 and graph.degree(two) >= 2:
            a, b = (bundle[frozenset((end, _beyond(graph, end, edge)))][0] for end in (one, two))
            reason = f"both ends of {len(members)} parallel transfers have others"
            return reason, *_across(members[0], members[1], a, b, one, two)
    return None


def _beyond(graph: nx.Graph, end: tuple[str, int], edge: frozenset[tuple[str, int]]) -> tuple[str, int]:
    """A neighbour of ``end`` other than across the edge."""
    far: tuple[str, int] = next(machine for machine in graph[end] if machine not in edge)
    return far


def _shared(one: frozenset[tuple[str, int]], two: frozenset[tuple[str, int]]) -> tuple[str, int]:
    (machine,) = one & two
    return machine


def _around(transfers: list[int], machines: list[tuple[str, int]]) -> tuple[list[Row], list[Column]]:
    """The walk of case (a): ``machines[k]`` joins transfers k and k + 1."""
    rows: list[Row] = []
    columns: list[Column] = []
    slot = 0
    for place, transfer in enumerate(transfers):
        columns.append((transfer, slot))
        if place < 3:
            slot = (slot + 1) % 3
            rows.append(("demand", transfer, 0))
            columns.append((transfer, slot))
        rows.append((*machines[place], slot))
    return rows, columns


def _across(
    f: int, g: int, a: int, b: int, one: tuple[str, int], two: tuple[str, int]
) -> tuple[list[Row], list[Column]]:
    """The walk of case (b)."""
    columns = [(f, 0), (a, 0), (a, 1), (g, 1), (b, 1), (b, 2), (f, 2)]
    rows: list[Row] = [(*one, 0), ("demand", a, 0), (*one, 1), (*two, 1), ("demand", b, 0), (*two, 2), ("demand", f, 0)]
    return rows, columns


def _indices(
    flows: Sequence[Flow], slots: int, rows: list[Row], columns: list[Column]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Row and column numbers in the layout of `jit_matrix`: slots of senders and of receivers, then transfers."""
    senders = max(int(i) for i, _ in flows) + 1
    receivers = max(int(j) for _, j in flows) + 1
    start = {"egress": 0, "ingress": senders * slots, "demand": (senders + receivers) * slots}
    return (
        tuple(start[kind] + (k if kind == "demand" else k * slots + slot) for kind, k, slot in rows),
        tuple(transfer * slots + slot for transfer, slot in columns),
    )
