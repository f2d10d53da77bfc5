"""Seeded faults in model code: every wrong answer is refused, for bandwidth and allocation over time.

``pytest -s -m slow`` prints the table that ``validation/README.md`` keeps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowlex.instances import generate
from tests.models.allocation.cases import random_instance
from tests.validation.faults.seeding import THOROUGH, Change, array, field, refuse_all

_JIT, _ALLOCATION = "flowlex.models.jit", "flowlex.models.allocation"


def _plus(amount: int, where: slice = slice(None)) -> Change:
    return array(lambda values: values[where].__iadd__(amount))


_SWAP = array(lambda values: values.__setitem__([0, -1], values[[-1, 0]]))
_REVERSED = array(lambda values: values.__setitem__(slice(None), values[::-1].copy()))
_ZERO = array(lambda values: values.fill(0))


def _none(*_: Any) -> Any:
    return None


def _fewer(found: Any, *_: Any) -> Any:
    return found[1:]


def _proofs(change: Change) -> Change:
    """Return a change of every proof."""
    return lambda proofs, *args: tuple(change(proof, *args) for proof in proofs)


def _blocks(name: str, change: Change) -> Change:
    """Return a change of one column of the sent blocks."""
    return lambda found, *args: None if found is None else field(name, change)(found, *args)


JIT: dict[str, dict[str, Change]] = {
    f"{_JIT}.transfer_slot_grid:make_grid": {
        "every window a slot longer": lambda g, *_: replace(g, stop=g.stop + 1, due=g.due + 1),
        "the last window a slot shorter": field("stop", _plus(-1, slice(-1, None))),
        "widened windows are on time": lambda g, *_: replace(g, due=g.stop),
        "due a slot early": field("due", _plus(-1)),
        "a transfer before it is ready": lambda g, *_: replace(g, start=np.maximum(g.start - 1, 0)),
        "a unit less of the first": field("units", _plus(-1, slice(1))),
        "a unit more of the last": field("units", _plus(1, slice(-1, None))),
        "egress one more": lambda g, *_: replace(g, out_units=g.out_units + 1, cap=g.cap + 1),
        "ingress of the first machine one more": field("in_units", _plus(1, slice(1))),
        "first and last sender swapped": field("sender", _SWAP),
        "receivers the other way round": field("receiver", _REVERSED),
        "first and last transfer swapped": field("transfer", _SWAP),
    },
    f"{_JIT}.transfer_slot_grid:_first_share": {
        "the others": lambda planned, *_: ~planned,
        "one fewer": array(lambda planned: planned.__setitem__(int(planned.argmax()), False)),
    },
    f"{_JIT}.latest_arrival:_transmission": {"at half the rate": lambda t, *_: 2 * t, "at once": lambda t, *_: 0 * t},
    f"{_JIT}.latest_arrival:_propagate": {
        "nothing runs": lambda found, *_: (found[0], found[1] * 0.5, found[2] * 0.5),
    },
    f"{_JIT}.transfer_slot_grid:Grid.groups": {
        "receivers for senders": lambda groups, grid, load: (
            (grid.sender,) if load == "receiver" else (grid.receiver,) if load == "sender" else groups
        ),
        "one side of two": lambda groups, *_: groups[:1],
        "all one load": lambda groups, *_: tuple(np.zeros_like(group) for group in groups),
    },
    f"{_JIT}.slot_programs:Cells.port_rows": {
        "none": lambda rows, *_: (rows[0][:0], rows[1][:0], np.full_like(rows[2], -1))
    },
    f"{_JIT}.slot_programs:latest_end": {
        "a slot early": lambda end, grid, members: np.maximum(end - 1, grid.stop[members])
    },
    f"{_JIT}.load_levels:overfull": {"never": lambda over, *_: (over[0] & False, over[1] & False)},
    f"{_JIT}.presolve:port_overload": {"never": lambda found, *_: ("", None, tuple(each & False for each in found[2]))},
    f"{_JIT}.presolve:find_bands": {
        "one band lower": field("band", lambda band, *_: np.maximum(band - 1, -1)),
        "transfers in the lowest": field("transfer_band", _ZERO),
        "transfers one band up": field("transfer_band", lambda band, *_: band + 1),
        "a unit lost": field("blocks", _blocks("amount", _plus(-1, slice(1)))),
        "a slot late": field("blocks", lambda b, *_: replace(b, begin=b.begin + 1, end=b.end + 1)),
    },
    f"{_JIT}.presolve:components": {
        "all alone": lambda found, *_: np.arange(len(found)),
        "all together": lambda found, *_: 0 * found,
    },
    f"{_JIT}.interval_schedules:blocks_of_cells": {
        "one slot later": lambda b, *_: replace(b, begin=b.begin + 1, end=b.end + 1),
        "one unit to the next": _blocks("amount", array(lambda a: _shift(a))),
        "the first transfer's by the last": _blocks("item", _SWAP),
    },
    f"{_JIT}.load_levels:settle": {"a slot late": lambda b, *_: replace(b, begin=b.begin + 1, end=b.end + 1)},
    f"{_JIT}.multipliers:band_proofs": {
        "none": lambda *_: (),
        "the highest left out": _fewer,
        "transfers free": _proofs(field("lam", _ZERO)),
    },
    f"{_JIT}.multipliers:stage_proofs": {
        "none": lambda *_: (),
        "transfers free": _proofs(field("lam", _ZERO)),
        "lateness free": _proofs(field("nu", lambda *_: 0)),
        "levels below paid for": _proofs(lambda p, *_: replace(p, mu={1: p.scale} if p.level > 1 else {})),
        "doubled": _proofs(field("lam", lambda lam, *_: 2 * lam)),
    },
    f"{_JIT}.multipliers:_number": {"the other way round": _REVERSED},
    f"{_JIT}.solution:stages_of": {
        "a load less": lambda stages, *_: {name: value - (name == "level_1") for name, value in stages.items()},
        "nothing late": lambda stages, *_: stages | {"lateness": 0},
    },
    f"{_JIT}.interval_schedules:Blocks.lateness": {"one less": lambda late, *_: max(late - 1, 0)},
    "flowlex.formulations.lexicographic.optimal_faces:_Faces.ended": {
        "the last stage lost": lambda r, *_: None if r is None else replace(r, stages=r.stages[:-1]),
        "values the other way round": lambda r, *_: (
            r if r is None or r.values is None else replace(r, values=r.values[::-1].copy())
        ),
    },
}


def _shift(amount: Any) -> None:
    amount[0] += 1
    amount[-1] -= 1


ALLOCATION: dict[str, dict[str, Change]] = {
    f"{_ALLOCATION}.allocation_linear_program:run_columns": {
        "no pairs": lambda c, *_: _columns(c, ~c.paired),
        "the first lost": lambda c, *_: _columns(c, np.arange(c.count) > 0),
        "every second lost": lambda c, *_: _columns(c, np.arange(c.count) % 2 == 0),
        "the last type lost": lambda c, *_: _columns(c, c.gpu < c.gpu.max()),
        "all as fast": field("speed", lambda speed, *_: np.where(speed > 0, speed.max(), 0.0)),
        "pairs do not slow down": field("speed", lambda speed, *_: speed * 1.2),
        "speeds of a pair swapped": lambda c, *_: replace(
            c, speed=np.where(c.paired[:, None], c.speed[:, ::-1], c.speed)
        ),
        "on another type": field("gpu", lambda gpu, *_: (gpu + 1) % (gpu.max() + 1)),
        "jobs the other way round": lambda c, *_: replace(
            c, first=np.where(c.paired, c.first, c.first.max() - c.first)
        ),
    },
    f"{_ALLOCATION}.allocation_linear_program:equal_throughput": {
        "all the same": lambda v, *_: np.ones_like(v),
        "the first twice": array(lambda v: v[:1].__imul__(2)),
        "the other way round": _REVERSED,
    },
    f"{_ALLOCATION}.allocation_linear_program:limited": {
        "nothing": lambda m, *_: m & False,
        "everything": lambda m, *_: m | True,
    },
    f"{_ALLOCATION}.allocation_linear_program:Columns.per_job": {
        "a tenth more": lambda values, *_: values * 1.1,
        "the last nothing": array(lambda v: v[-1:].__imul__(0)),
    },
    f"{_ALLOCATION}.policies:pace_of": {
        "all equal": lambda pace, *_: np.where(pace > 0, pace.max(), 0.0),
        "no scale": lambda pace, instance, *_, **__: pace * instance.arrays.scale,
        "the first twice": array(lambda pace: pace[:1].__imul__(2)),
        "the other way round": lambda pace, instance, full, **_: pace if full.any() else pace[::-1].copy(),
    },
    f"{_ALLOCATION}.policies:quickest": {"half as long": lambda s, *_: s / 2},
    f"{_ALLOCATION}.policies:prices_of": {
        "none": lambda prices, *_: {name: 0 * p for name, p in prices.items()},
        "levels all alike": lambda prices, *_: {n: p + (n == "level") for n, p in prices.items()},
        "GPUs free": lambda prices, *_: {n: p * (n != "gpus") for n, p in prices.items()},
        "time free": lambda prices, *_: {n: p * (n != "time") for n, p in prices.items()},
    },
    f"{_ALLOCATION}.policy_linear_programs:fill": {
        "all full at once": lambda r, *_: replace(
            r, steps=tuple(replace(s, full=s.full | True) for s in r.steps[:1]) or r.steps
        ),
        "the last step lost": lambda r, *_: replace(r, steps=r.steps[:-1]),
        "steps a little higher": lambda r, *_: replace(
            r, steps=tuple(replace(s, value=s.value * (1 + 1e-4)) for s in r.steps)
        ),
        "steps a little lower": lambda r, *_: replace(
            r, steps=tuple(replace(s, value=s.value * (1 - 1e-4)) for s in r.steps)
        ),
        "the first step twice": lambda r, *_: replace(r, steps=r.steps[:1] + r.steps),
    },
    f"{_ALLOCATION}.policies:FinishTimes.of": {
        "alone it takes as long again": field("isolated", lambda s, *_: 2 * s),
        "nothing has run": field("running", _ZERO),
        "the other way round": field("isolated", _REVERSED),
    },
    f"{_ALLOCATION}.policies:FinishTimes.least": {"a tenth higher": lambda rho, *_: rho * 1.1},
    f"{_ALLOCATION}.policy_linear_programs:unit_of": {
        "none": _none,
        "all the same": lambda unit, *_: None if unit is None else np.ones_like(unit),
    },
    f"{_ALLOCATION}.model:Allocation._reached": {"a hundredth more": lambda value, *_: value * 1.01},
    f"{_ALLOCATION}.solution:row_labels": {
        "jobs the other way round": lambda rows, *_: {n: r[::-1] if n == "level" else r for n, r in rows.items()},
    },
}


def _columns(columns: Any, kept: Any) -> Any:
    return replace(columns, **{name: getattr(columns, name)[kept] for name in ("first", "second", "gpu", "speed")})


def jit_value(solution: Any) -> Any:
    return solution.status, solution.stages


def allocation_value(solution: Any) -> Any:
    gained = np.sort(solution.throughput / solution.source.arrays.speed.max(axis=1))
    filled = solution.options["policy"] in ("water_filling", "hierarchical")
    return solution.status, round(float(solution.objective or 0), 4), gained.round(3).tolist() if filled else None


_TIMES = [
    (3, {"windows": "elastic", "load": "port", "share": 1.0}),
    (4, {"windows": "elastic", "load": "pair", "share": 1.0}),
    (1, {"windows": "elastic", "load": "receiver", "share": 0.6}),
    (2, {"windows": "elastic", "load": "sender", "share": 1.0, "presolve": False}),
    (0, {"windows": "elastic", "load": "pair", "share": 0.5, "share_of": "bytes", "lat": "paper"}),
    (5, {"windows": "elastic", "load": "pair", "share": 1.0, "lat": "critical"}),
    (6, {"windows": "elastic", "load": "pair", "share": 1.0}),
]
#: Wide ports, so that every pair can be planned separately.
_WIDE = {6: 12}
_POLICIES = ("max_min", "water_filling", "hierarchical", "makespan", "finish_time", "max_throughput", "min_cost")

FAMILIES: dict[str, Any] = {
    "jit": (
        JIT,
        [
            (
                generate(
                    "jit-random",
                    seed=seed,
                    jobs=4,
                    slots=5,
                    machines=4,
                    capacity=_WIDE.get(seed, 3),
                    deadlines="lat" not in options,
                ),
                options,
            )
            for seed, options in _TIMES
        ],
        jit_value,
    ),
    "allocation": (
        ALLOCATION,
        [(random_instance(2 + k, tight=0.5), {"policy": policy}) for k, policy in enumerate(_POLICIES)],
        allocation_value,
    ),
}


@pytest.mark.rare
@pytest.mark.parametrize("thorough", THOROUGH)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_fault_in_model_code_gets_a_wrong_answer_through(family: str, thorough: bool) -> None:
    refuse_all(family, FAMILIES[family], "highs", thorough=thorough)
