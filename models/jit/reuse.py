"""What of the last plan a live scheduler can use again: rates and prices of loads that nothing has changed.

Time has passed, some transfers are sent, others have arrived. A load (pair or port) that no new transfer uses, and that
lost nothing but what was sent as planned, keeps its rates. Its bands stay, and so do the prices of a part with proofs
of its own: complementary slackness holds in every slot, so also in those that are left. Only lateness is counted anew:
overdue transfers count from the first slot left, which lowers their price. The certificate of the new plan checks all
of it against the instance. So transfers that nothing concerns keep their rates, and a step takes less time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers
from flowlex.models.jit.blocks import Blocks
from flowlex.models.jit.grid import Grid, Load
from flowlex.models.jit.presolve import Bands, components
from flowlex.models.jit.search import Reused
from flowlex.models.jit.solution import JitSolution
from flowlex.validation.certificates.jit import LevelProof, Prices, SchedulePart

__all__ = ["reused_of"]


def reused_of(plan: JitSolution, new: Grid, before: Integers, blocks: Blocks) -> Reused | None:
    """What stays of a plan for the grid ``new``, whose slots begin later; None where the plan has no trail.

    Parameters
    ----------
    before
        (new transfers,) number of each in the plan's grid; -1 for those to be planned anew.
    blocks
        What is planned for the others, in slots of ``new``.
    """
    old, trail, load = plan.grid, plan.trail, plan.load
    if trail is None:
        return None
    last = np.zeros(old.count, np.int64)
    np.maximum.at(last, plan.blocks.item, plan.blocks.end)
    unsent = last > new.origin - old.origin
    unsent[before[before >= 0]] = False
    stays = _untouched(old, new, load, before, unsent)
    place = np.full(old.count, -1)
    place[before[stays]] = np.flatnonzero(stays)
    gone = (last > new.origin - old.origin) & (place < 0)
    settled, staged = np.zeros(new.count, np.bool_), np.zeros(new.count, np.bool_)
    settled[stays] = trail.settled[before[stays]]
    kept_parts = []
    for part in plan.plan_parts:
        numbers = np.searchsorted(old.transfer, part.transfers)
        quoted = any(proof.solver_bound is not None for proof in part.proofs)
        left = np.flatnonzero(place[numbers] >= 0)
        whole = all(_passed(proof.port, new.origin - old.origin)[1].all() for proof in part.proofs)
        if trail.settled[numbers[0]] or quoted or not whole or gone[numbers].any() or not len(left):
            continue
        at = place[numbers[left]]
        if _told(part) - (new.origin - old.origin) > _latest(new, at, blocks):
            continue
        staged[at] = True
        proofs = tuple(_later(proof, left, new.due[at] - old.due[numbers[left]], old, new) for proof in part.proofs)
        kept_parts.append(SchedulePart(new.transfer[at], proofs))
    bands = _bands_later(old, trail.bands, new, load, before, settled, blocks)
    return Reused(bands, settled, staged, blocks.only(np.flatnonzero(staged)), tuple(kept_parts), trail.active)


def _told(part: SchedulePart) -> int:
    """End of the last slot with a price."""
    prices = [each for proof in part.proofs for each in (proof.load, proof.port)]
    return max((int(each.end.max(initial=0)) for each in prices), default=0)


def _latest(grid: Grid, part: Integers, blocks: Blocks) -> int:
    """A slot before which there is room for all of a part: certificates refuse prices of later ones.

    As what is left becomes less, prices of slots that were of use may lie after it: the part is then planned anew.
    """
    mine = blocks.end[np.isin(blocks.item, part)]
    ends = (grid.start[part], grid.due[part], mine)
    return max(int(each.max(initial=0)) for each in ends) + int(grid.units[part].sum()) + 1


def _passed(prices: Prices, passed: int) -> tuple[Integers, NDArray[np.bool_]]:
    """Prices of the first slots that are left, and whether they are whole; between its ends a run is linear."""
    steps = np.maximum(prices.end - 1 - prices.begin, 1)
    gone = np.clip(passed - prices.begin, 0, steps)
    change = (prices.last - prices.price) * gone
    return prices.price + change // steps, np.asarray((change % steps == 0) | (prices.end <= passed))


def _untouched(old: Grid, new: Grid, load: Load, before: Integers, gone: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(new transfers,) whether none that shares a load, or loads with it through others, is new or gone unsent."""
    machines = len(new.out_units)
    labels = components(new, load, (np.zeros(machines, np.bool_),) * 2)
    touched = before < 0
    if gone.any():
        for was, now in zip(_loads(old, load), _loads(new, load), strict=True):
            touched |= np.isin(now, was[gone])
    return np.asarray(~np.isin(labels, labels[touched]))


def _loads(grid: Grid, load: Load) -> tuple[Integers, ...]:
    """The loads a transfer counts towards, by numbers that all grids of these machines share."""
    pair = grid.sender * len(grid.out_units) + grid.receiver
    known = {"pair": (pair,), "sender": (grid.sender,), "receiver": (grid.receiver,)}
    return known.get(load, (grid.sender, grid.receiver))


def _later(proof: LevelProof, left: Integers, due: Integers, old: Grid, new: Grid) -> LevelProof:
    """The prices of the slots that are left; ``due``: change of the due slots, as both grids count them."""
    passed = new.origin - old.origin

    def rest(prices: Prices) -> Prices:
        kept = prices.end > passed
        begin = np.maximum(prices.begin[kept] - passed, 0)
        first = _passed(prices, passed)[0][kept]
        return Prices(prices.unit[kept], begin, prices.end[kept] - passed, first, prices.last[kept])

    lam = proof.lam[left] - proof.nu * (due + passed)
    return replace(proof, lam=lam, load=rest(proof.load), port=rest(proof.port))


def _bands_later(
    old: Grid, bands: Bands, new: Grid, load: Load, before: Integers, settled: NDArray[np.bool_], blocks: Blocks
) -> Bands:
    """The bands of the settled transfers' loads, from the first slot of the new grid on."""
    at, passed = np.flatnonzero(settled), new.origin - old.origin
    number = np.full(old.units_of_load(load), -1)
    for was, now in zip(old.groups(load), new.groups(load), strict=True):
        number[was[before[at]]] = now[at]
    kept = (number[bands.unit] >= 0) & (bands.end > passed)
    begin = np.maximum(bands.begin[kept] - passed, 0)
    return Bands(
        number[bands.unit[kept]],
        begin,
        bands.end[kept] - passed,
        bands.band[kept],
        np.zeros((0, new.count), np.int64),
        blocks.only(at),
    )
