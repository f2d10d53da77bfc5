"""Balanced loads and interval decomposition compared with exhaustive search and their definitions."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations.balanced_load import BalancedLoad, balance, even_split, greatest_intensity
from flowlex.formulations.bipartite_decomposition import decompose, decompose_runs

SLOTS = 5


def splits(amount: int, slots: int) -> Iterator[tuple[int, ...]]:
    if slots == 1:
        yield (amount,)
        return
    for first in range(amount + 1):
        for rest in splits(amount - first, slots - 1):
            yield (first, *rest)


def best_of_all(items: list[tuple[int, int, int]]) -> tuple[int, ...]:
    """Return the lexicographically least sorted loads over all integer distributions."""
    reached = {(0,) * SLOTS}
    for start, stop, amount in items:
        reached = {
            (*load[:start], *(a + b for a, b in zip(load[start:stop], split, strict=True)), *load[stop:])
            for load in reached
            for split in splits(amount, stop - start)
        }
    return min(tuple(sorted(load, reverse=True)) for load in reached)


items_strategy = st.lists(
    st.tuples(st.integers(0, SLOTS - 1), st.integers(1, SLOTS), st.integers(1, 5)).map(
        lambda t: (t[0], min(SLOTS, t[0] + t[1]), t[2])
    ),
    min_size=1,
    max_size=4,
)


def by_slot(found: BalancedLoad) -> tuple[list[tuple[int, int, int]], dict[int, int]]:
    """Return entries (item, slot, units) that spread each cell's total evenly, and the band of every slot."""
    entries = []
    for cell in range(len(found.band)):
        inside = found.cell == cell
        owners = [int(k) for k, n in zip(found.item[inside], found.amount[inside], strict=True) for _ in range(n)]
        slots = range(int(found.edge[cell]), int(found.edge[cell + 1]))
        for slot, units in zip(slots, even_split(len(owners), len(slots)).tolist(), strict=True):
            entries += [(owners.pop(0), slot, 1) for _ in range(units)]
    length = np.diff(found.edge)
    return entries, dict(
        zip(range(int(found.edge[0]), int(found.edge[-1])), np.repeat(found.band, length).tolist(), strict=True)
    )


@settings(max_examples=40, deadline=None)
@given(items_strategy)
def test_balance_is_least_of_all_integer_spreads(items: list[tuple[int, int, int]]) -> None:
    start, stop, amount = np.array(items, dtype=np.int64).T
    found = balance(start, stop, amount)
    spread = np.zeros((len(items), SLOTS), np.int64)
    entries, bands = by_slot(found)
    for item, slot, units in entries:
        spread[item, slot] += units
    assert spread.sum(axis=1).tolist() == amount.tolist()
    for k in range(len(items)):
        assert spread[k, : start[k]].sum() == spread[k, stop[k] :].sum() == 0
    load = spread.sum(axis=0)
    assert tuple(sorted(load.tolist(), reverse=True)) == best_of_all(items)
    band = np.full(SLOTS, -1)
    band[list(bands)] = list(bands.values())
    assert ((load >= np.maximum(band, 0)) & (load <= band + 1)).all()
    # The bands prove optimality: items confined to slots of band >= c exceed the level c by this total.
    for c in range(int(band.max()) + 1):
        inside = band >= c
        confined = sum(int(a) for s, e, a in items if inside[s:e].all())
        assert np.maximum(load - c, 0).sum() == confined - c * inside.sum()


def test_balance_by_hand() -> None:
    """Three units in slot 0, two in slots 0..3: the second item leaves slot 0 alone."""
    found = balance(np.array([0, 0]), np.array([1, 4]), np.array([3, 2]))
    assert (found.edge.tolist(), found.band.tolist()) == ([0, 1, 4], [2, 0])
    assert found.cell[found.item == 1].tolist() == [1]
    later = balance(np.array([0, 10**15]), np.array([10**15, 4 * 10**15]), np.array([3, 2]), np.array([7]))
    assert (later.edge.tolist(), later.band.tolist()) == ([0, 7, 10**15, 4 * 10**15], [0, 0, 0])
    assert greatest_intensity(np.array([0, 0]), np.array([1, 4]), np.array([3, 2])) == (0, 1, 3)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_runs_carry_everything_evenly(data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20, unique=True))
    slots = data.draw(st.integers(65, 300))
    some = st.one_of(st.integers(0, 5), st.sampled_from([slots, 2 * slots]), st.integers(0, 10_000))
    amount = np.array(data.draw(st.lists(some, min_size=len(pairs), max_size=len(pairs))))
    left, right = np.array(pairs).T
    runs = decompose_runs(left, right, amount, slots)
    many, parts = np.array([count for count, _ in runs]), np.array([part for _, part in runs])
    assert many.sum() == slots
    assert (many @ parts).tolist() == amount.tolist()
    assert len(runs) <= len(pairs) + len(set(left.tolist())) + len(set(right.tolist()))
    for node in (np.arange(len(pairs)), left, right):
        load, total = np.zeros((node.max() + 1, len(runs)), np.int64), np.bincount(node, amount).astype(np.int64)
        np.add.at(load, node, parts.T)
        assert ((load == total[:, None] // slots) | (load == -(-total[:, None] // slots))).all()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_decomposition_is_even_at_edges_and_nodes(data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12, unique=True))
    amount = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(pairs), max_size=len(pairs))))
    slots = data.draw(st.integers(1, 6))
    left, right = np.array(pairs).T
    parts = decompose(left, right, amount, slots)
    assert parts.sum(axis=1).tolist() == amount.tolist()
    assert ((parts == amount[:, None] // slots) | (parts == amount[:, None] // slots + 1)).all()
    for node in (left, right):
        load = np.zeros((5, slots), np.int64)
        np.add.at(load, node, parts)
        assert (load.max(axis=1) - load.min(axis=1) <= 1).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2**53, 2**57]))
def test_no_unit_is_lost_beyond_floating_point(seed: int, largest: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 7))
    start = rng.integers(0, 8, count)
    stop = start + rng.integers(1, 6, count)
    amount = rng.integers(1, largest, count)
    found = balance(start, stop, amount)
    sent, total = [0] * count, [0] * len(found.band)
    for item, cell, units in zip(found.item.tolist(), found.cell.tolist(), found.amount.tolist(), strict=True):
        assert start[item] <= found.edge[cell] and found.edge[cell + 1] <= stop[item]
        sent[item] += units
        total[cell] += units
    assert sent == amount.tolist()
    load, band = {}, {}
    for cell, units in enumerate(total):
        slots = range(int(found.edge[cell]), int(found.edge[cell + 1]))
        load |= dict(zip(slots, even_split(units, len(slots)).tolist(), strict=True))
        band |= dict.fromkeys(slots, int(found.band[cell]))
    assert all(max(band[slot], 0) <= units <= band[slot] + 1 for slot, units in load.items())
    for c in set(found.band.tolist()) - {-1}:
        inside = {slot for slot in load if band[slot] >= c}
        windows = zip(start.tolist(), stop.tolist(), amount.tolist(), strict=True)
        confined = sum(units for a, b, units in windows if set(range(a, b)) <= inside)
        assert sum(max(units - c, 0) for units in load.values()) == confined - c * len(inside)


def test_amounts_beyond_64_bits_are_refused() -> None:
    huge = np.array([2**62, 2**62 - 1])
    with pytest.raises(ValueError, match=f"the amounts sum to {2**63 - 1}, the limit is {2**62}; use a coarser unit"):
        balance(np.array([0, 0]), np.array([1, 1]), huge)
    with pytest.raises(ValueError, match="use a coarser unit"):
        decompose(np.array([0, 1]), np.array([0, 1]), huge, 2)
