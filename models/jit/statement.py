r"""Just-in-time bandwidth, stated once in the language: the programs P1 to P4 of the paper, slot by slot.

``rate[transfer,slot]`` (:math:`x_f^t`) units of a transfer are sent in a slot of its window. A load
(:math:`\delta_u`) is what a pair of machines (or a port) sends in a slot. Equations (4) to (7) are ``egress``,
``ingress``, ``size`` and the windows in which rates exist.

``P1``: the largest load. ``P2``: the lexicographic minimum, here in stages: ``level[load,slot,step]`` is 1 if a load
reaches a step, and from the highest step down as few loads as possible reach it. ``P3``: the sum of
:math:`n^{\delta_u}` over all n loads, in increments. ``P4``: the same in lambda form. Increments and points exist only
where the load can reach them.

Ours: lateness (windows that are *elastic* end later, and late units are least first), and the steps of P2, which have
coefficients 0 and 1; the weights of P3 and P4 leave double precision even at small sizes.

Source: Shi, Wen, Fei, Zhang 2021; numbers of equations are those of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.language.expressions import Expression
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.exact_rationals import rational
from flowlex.models.jit.slot_programs import Cells, latest_end
from flowlex.models.jit.transfer_slot_grid import Grid, Load, Loads
from flowlex.models.solution import ModelError

if TYPE_CHECKING:
    from flowlex.models.problem import Problem

#: Rows that changes must not drop, with the reasons.
NEEDED = {
    "size": "nothing would be sent",
    "level_link": "the levels would no longer count the loads",
    "level_order": "a load could reach a level without those below it",
    "largest_link": "the largest load would be no load's",
    "lambda_link": "the weights would no longer be those of the loads",
    "lambda_one": "a load would be no mixture",
}
#: Names of all rows, in some variant.
ROWS = frozenset({*NEEDED, "egress", "ingress"})
#: Above this, sums of integers are no longer exact in double precision.
_EXACT = 2.0**53


def window_ends(grid: Grid, *, elastic: bool) -> Integers:
    """(F,) end of every transfer's window.

    Elastic windows end ``grid.extra_slots`` after every schedule of least lateness of the unchanged model has ended, or
    at firm ends.
    """
    if not elastic or not grid.count:
        return grid.stop
    return np.minimum(latest_end(grid, np.arange(grid.count)) + grid.extra_slots, grid.firm)


def rate_cells(grid: Grid, *, elastic: bool) -> Cells:
    """The slots in which each transfer may be sent: the columns of ``rate``."""
    return Cells(grid, np.arange(grid.count), window_ends(grid, elastic=elastic), "slots")


def state(p: Problem, grid: Grid, load: Load, *, program: str, elastic: bool, whole: bool) -> None:
    """State a program of the paper.

    Parameters
    ----------
    p
        The problem to state.
    grid
        The planned transfers, in slots and units.
    load
        What is counted.
    program
        ``P1`` to ``P4``.
    elastic
        Whether transfers may be late; lateness is then the first objective.
    whole
        Whether units are integer.

    Raises
    ------
    ModelError
        The weights of P3 or P4 are too large.
    """
    import pandas as pd

    cells = rate_cells(grid, elastic=elastic)
    slot, transfer = cells.columns.slot + int(cells.edges[0]), cells.columns.row
    counted = grid.loads(load)
    labels = _sets(p, grid, int(cells.stop.max(initial=0)), counted)
    job = grid.instance.arrays.job[grid.transfer]
    follow = {"time": slot, "job": job[transfer], "sender": grid.sender[transfer]}
    follow |= {"receiver": grid.receiver[transfer], "link": grid.pair[transfer]}
    x = p.variables(
        "rate",
        over=_table(labels, {"transfer": transfer, "slot": slot}, follow),
        upper=cells.most,
        integer=whole,
        words="units of a transfer in a slot of its window, (7)",
    )
    for name, end, side, limit, words in (
        ("egress", "sender", "out", grid.out_units, "a port sends at most its capacity, (4)"),
        ("ingress", "receiver", "in", grid.in_units, "a port receives at most its capacity, (5)"),
    ):
        most = pd.Series(limit, pd.Index(labels[end], name=end, dtype=object))
        capacity = p.data(f"C_{side}", most, unit="units", words=f"capacity of a port, {side}")
        p.constrain(name, x.sum(by=[end, "slot"]) <= capacity, words=words, dual=_PORT)
    units = pd.Series(grid.units, pd.Index(labels["transfer"], name="transfer", dtype=object))
    size = p.data("d", units, unit="units", words="size of a transfer")
    p.constrain("size", x.sum(by="transfer") == size, words="all of a transfer arrives in its window, (6)", dual=_SIZE)
    if elastic:
        late = np.maximum(slot + 1 - grid.due[transfer], 0)
        slots = p.data("w", pd.Series(late, x.index.to_pandas()), words="slots by which a unit is late")
        p.minimize("lateness", (x * slots).sum(), words="units times slots of lateness")
    unit, cell, parts = cells.load_entries(load)
    key = counted.level
    loads = (x if key in follow else _by_load(labels, counted, x)).sum(by=[key, "slot"])
    top = grid.level_count(load)
    if program in ("P1", "P2"):
        z = p.variables("largest", upper=top, integer=whole, words="the largest load")
        p.constrain("largest_link", loads <= z, words="no load is above the largest")
        p.minimize("largest", z)
    if program == "P1":
        return
    if program != "P2" and len(unit) > 1 and (top + 1) * np.log2(len(unit)) > np.log2(_EXACT):
        raise ModelError(
            f"the weights n**load of {program} reach {len(unit)}**{top} and are summed over {len(unit)} loads: above "
            "2**53, where double precision loses single units; use program='P2', whose coefficients are 0 and 1"
        )
    sent = np.bincount(np.concatenate(parts), np.tile(cells.most, len(parts)), len(unit)).astype(np.int64)
    reach = np.minimum(counted.most[unit], sent)
    # Of each load the steps 1, 2, ... (and 0 for P4) that it can reach.
    count = reach + (program == "P4")
    row = np.repeat(np.arange(len(unit)), count)
    step = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + (program != "P4")
    labels["step"] = range(top, -1 if program == "P4" else 0, -1)
    p.set("step", labels["step"], words="steps of loads, from the highest down")
    slot = cell[row] + int(cells.edges[0])
    keys = {key: unit[row], "slot": slot, "step": top - step}
    ends = {level: codes[unit[row]] for level, codes in counted.ends.items()}
    table = _table(labels, keys, {**ends, "time": slot})
    heights = pd.Series([float(len(unit)) ** s for s in labels["step"]], pd.Index(labels["step"], name="step"))
    if program == "P4":
        mix = p.variables("lambda", over=table, upper=1, words="share of a load that is at a step")
        height = p.data("u", pd.Series(labels["step"], heights.index), words="units of a step")
        p.constrain("lambda_link", (mix * height).sum(by=[key, "slot"]) == loads, words="a load as a mixture of steps")
        p.constrain("lambda_one", mix.sum(by=[key, "slot"]) == 1, words="shares of a mixture sum to one")
        weight = p.data("n", heights, words="number of loads to the power of the step")
        p.minimize("weighted", (mix * weight).sum(), words="the sum of n to the power of each load")
        return
    y = p.variables("level", over=table, upper=1, integer=whole, words="whether a load reaches a step")
    p.constrain("level_link", loads == y.sum(by=[key, "slot"]), words="a load is cut into steps")
    if program == "P3":
        more = p.data("g", heights - heights / len(unit), words="n**s - n**(s - 1), for the number n of loads")
        p.minimize("weighted", len(unit) + (y * more).sum(), words="the sum of n to the power of each load")
        return
    at = np.flatnonzero(step < count[row])
    labels["above"] = labels["step"]
    p.set("above", labels["step"], words="the next step")
    higher = _table(labels, {name: code[at] for name, code in keys.items()}, {"above": top - step[at] - 1})
    rule = y.at(higher, **{key: key, "slot": "slot", "step": "above"}) <= y.reindex(higher)
    p.constrain("level_order", rule, words="a load that reaches a step reaches those below it")
    p.minimize_in_order("level", y.sum(by="step"), words="loads that reach the step")


_PORT = "minus an upper bound on what one more unit of capacity saves, in the first goal that it affects"
_SIZE = "upper bound on what one unit less of the transfer saves, in the first goal above level 1 that it affects"


def _sets(p: Problem, grid: Grid, end: int, counted: Loads) -> dict[str, Sequence[Any]]:
    """Declare transfers, slots, machines and loads; the labels of each level."""
    machines, slot_s = [machine.name for machine in grid.instance.machines], rational(grid.instance.slot_s)
    pairs, ports = grid.loads("pair"), grid.loads("port")
    levels: dict[str, tuple[Sequence[Any], str]] = {
        "transfer": ([grid.name(k) for k in range(grid.count)], "planned transfers"),
        "slot": (range(end), "slots"),
        "time": ([float(slot_s * (slot + grid.origin)) for slot in range(end)], "when slots begin, in seconds"),
        "job": ([job.name for job in grid.instance.jobs], "jobs"),
        "sender": (machines, "machines"),
        "receiver": (machines, "machines"),
        "link": ([pairs.label(k) for k in range(pairs.count)], "pairs of machines"),
        "machine": (machines, "machines"),
        "side": (("out", "in"), "sides of a port"),
        "port": ([ports.label(k) for k in range(ports.count)], "ports"),
    }
    levels.setdefault(counted.level, ([counted.label(k) for k in range(counted.count)], "loads"))
    for level, (labels, words) in levels.items():
        p.set(level, labels, words=words)
    return {level: labels for level, (labels, _) in levels.items()}


def _table(labels: Mapping[str, Sequence[Any]], keys: Mapping[str, Integers], follow: Mapping[str, Integers]) -> Any:
    """A table by keys, with labels that follow, from positions in the labels of each level."""
    import pandas as pd

    names = {level: pd.Index(labels[level], dtype=object) for level in (*keys, *follow)}
    codes: list[Any] = list(keys.values())
    index = pd.MultiIndex(levels=[names[level] for level in keys], codes=codes, names=list(keys))
    columns = {level: pd.Categorical.from_codes(code, names[level]) for level, code in follow.items()}
    return pd.DataFrame(columns, index=index)


def _by_load(labels: Mapping[str, Sequence[Any]], loads: Loads, x: Expression) -> Expression:
    """Rates by load: a transfer counts towards one of each group."""
    import pandas as pd

    names = np.tile(np.array(labels["transfer"], object), len(loads.groups))
    load = np.array(labels[loads.level], object)[np.concatenate(loads.groups)]
    return x.join(pd.DataFrame({"transfer": names, loads.level: load}))
