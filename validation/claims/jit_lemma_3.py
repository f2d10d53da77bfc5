"""Claim: JIT's Lemma 3, that constraints (4) to (7) form a totally unimodular matrix. It fails."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.plot_style import axes_for
from flowlex.validation.claims.claim_interface import Claim, Finding, Outcome
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.examples import LEMMA_3_FLOWS, jit_matrix, random_flows
from flowlex.validation.unimodularity.ghouila_houri import bicoloring_counterexample
from flowlex.validation.unimodularity.proof_types import Answer
from flowlex.validation.unimodularity.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Flows = tuple[tuple[int, int], ...]


def lemma_3_verdict() -> Verdict:
    """The verdict on the paper's own structure: four transfers between two senders and two receivers, 3 slots."""
    return check(jit_matrix(LEMMA_3_FLOWS, 3))


def flow_sets(count: int) -> Iterator[Flows]:
    """All sets of ``count`` transfers, up to the numbering of machines (some more than once).

    Machines are numbered in the order in which the sorted transfers first use them.
    """
    seen: set[Flows] = set()
    for flows in _numbered(count, (), 0, 0):
        key = min(flows, tuple(sorted((j, i) for i, j in flows)))
        if key not in seen:
            seen.add(key)
            yield flows


def _numbered(count: int, flows: Flows, senders: int, receivers: int) -> Iterator[Flows]:
    """Sorted transfers that begin with ``flows``; each uses known machines or the next new one."""
    if len(flows) == count:
        yield flows
        return
    for pair in product(range(senders + 1), range(receivers + 1)):
        if not flows or pair >= flows[-1]:
            yield from _numbered(count, (*flows, pair), max(senders, pair[0] + 1), max(receivers, pair[1] + 1))


def smallest_failing_cases(*, transfers: int = 5, slots: int = 4) -> dict[int, Flows]:
    """For every number of slots up to ``slots``: a set of fewest transfers whose matrix is not TU, by search.

    Numbers of slots for which all sets of up to ``transfers`` transfers are totally unimodular are left out.
    """
    found: dict[int, Flows] = {}
    for count in range(1, transfers + 1):
        for flows in flow_sets(count):
            for slot in range(1, slots + 1):
                if slot in found:
                    continue
                answer = check(jit_matrix(flows, slot)).answer
                if answer is Answer.UNDECIDED:
                    raise RuntimeError(f"{flows} over {slot} slots is undecided")
                if answer is Answer.NOT_TU:
                    found[slot] = flows
        if len(found) >= slots - 1:
            break
    return dict(sorted(found.items()))


def failing_share(
    transfers: tuple[int, ...] = (2, 4, 6, 8, 12, 16),
    slots: tuple[int, ...] = (1, 2, 3, 4, 6),
    *,
    machines: int = 6,
    samples: int = 20,
    seed: int = 0,
) -> np.ndarray:
    """Share of random JIT matrices (full windows) that are not totally unimodular.

    Every verdict is verified; an undecided one raises.
    """
    share = np.zeros((len(transfers), len(slots)))
    for row, count in enumerate(transfers):
        for column, slot in enumerate(slots):
            for sample in range(samples):
                matrix = jit_matrix(random_flows(count, machines, seed=seed + 1000 * sample + count), slot)
                verdict = check(matrix)
                if not verdict.verify(matrix):
                    raise RuntimeError(f"{count} transfers, {slot} slots, sample {sample}: {verdict}")
                share[row, column] += not verdict.is_tu
    return share / samples


def plot_failing_share(
    share: np.ndarray, transfers: tuple[int, ...], slots: tuple[int, ...], ax: Axes | None = None
) -> Axes:
    """Draw `failing_share` as a heat map."""
    ax = axes_for(ax, 5, 4)
    image = ax.imshow(share, cmap="magma_r", vmin=0, vmax=1, origin="lower", aspect="auto")
    ax.set_xticks(range(len(slots)), [str(slot) for slot in slots])
    ax.set_yticks(range(len(transfers)), [str(count) for count in transfers])
    for row, column in np.ndindex(*share.shape):
        dark = share[row, column] > 0.5
        ax.text(column, row, f"{share[row, column]:.0%}", ha="center", va="center", color="white" if dark else "black")
    ax.set(xlabel="time slots", ylabel="transfers", title="Random JIT matrices that are not totally unimodular")
    ax.figure.colorbar(image, ax=ax, label="share")
    return ax


def _check() -> Finding:
    matrix = jit_matrix(LEMMA_3_FLOWS, 3)
    verdict = lemma_3_verdict()
    if verdict.is_tu:
        return Finding(Outcome.HOLDS, f"on the test case: {verdict}")
    if verdict.witness is None or not verdict.verify(matrix):
        return Finding(Outcome.NOT_REPRODUCIBLE, f"no verified verdict: {verdict}")
    ports = list(range(12))  # the split of the proof: rows (4) and (5) against the demand rows
    split = bicoloring_counterexample(matrix, ports)
    smallest = smallest_failing_cases()
    listed = "; ".join(f"{slot} slots: {len(flows)} transfers {_words(flows)}" for slot, flows in smallest.items())
    size = len(verdict.witness.rows)
    evidence = (
        f"{verdict.shape[0]} x {verdict.shape[1]} matrix of {_words(LEMMA_3_FLOWS)} over 3 slots has a {size} x {size} "
        f"submatrix of determinant {verdict.witness.determinant}. "
        f"The proof's split fails on rows {None if split is None else list(split.rows)}. Fewest transfers: {listed}."
    )
    data = {
        "rows": list(verdict.witness.rows),
        "columns": list(verdict.witness.columns),
        "determinant": int(verdict.witness.determinant),
        "smallest": {slot: [list(flow) for flow in flows] for slot, flows in smallest.items()},
    }
    return Finding(Outcome.FAILS, evidence, data)


def _words(flows: Flows) -> str:
    return ", ".join(f"{i + 1}->{j + 1}'" for i, j in flows)


CLAIM = Claim(
    "jit-lemma-3",
    "The constraints (4)-(7) of the bandwidth program form a totally unimodular matrix.",
    "Shi et al. 2021 (JIT), Lemma 3",
    _check,
)
