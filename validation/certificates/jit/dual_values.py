"""Check the duals that a file of a just-in-time schedule states against its proof.

A port or transfer has the price of the first goal with a price for it; over several slots, the mean. The goals in
order are lateness, then the levels from the highest down.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

from flowlex.instances.jit import JitInstance
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.exact_numbers import agrees
from flowlex.validation.certificates.jit import SchedulePart
from flowlex.validation.certificates.jit.prices_and_windows import LATENESS, LevelProof
from flowlex.validation.restated.jit import JitColumns


def check_duals(
    instance: JitInstance, parts: tuple[SchedulePart, ...], stated: Mapping[str, Mapping[str, Any]]
) -> Check:
    """Whether stated duals are the prices of the proof, per unit."""
    true = _true(instance, parts)
    wrong = [name for name in stated if name not in true]
    for name in true.keys() & stated.keys():
        said, meant = stated[name], true[name]
        wrong += [f"{name}[{label}]" for label in said.keys() ^ meant.keys()]
        wrong += [f"{name}[{label}]" for label in said.keys() & meant.keys() if not agrees(said[label], meant[label])]
    wrong += sorted(true.keys() - stated.keys()) if stated else []
    return Check("duals are the prices of the proof", not wrong, len(wrong), ", ".join(sorted(wrong)[:3]))


def _true(instance: JitInstance, parts: tuple[SchedulePart, ...]) -> dict[str, dict[str, Fraction]]:
    machines = [machine.name for machine in instance.machines]
    size: dict[int, Fraction] = {}
    runs: dict[int, list[tuple[int, int, tuple[Fraction, Fraction]]]] = {}
    for part in parts:
        for proof in sorted(part.proofs, key=_order):
            for k, price in zip(part.transfers.tolist(), proof.lam.tolist(), strict=True):
                if price:
                    size.setdefault(k, Fraction(price, proof.scale))
            p = proof.port
            rows = zip(*(each.tolist() for each in (p.unit, p.begin, p.end, p.price, p.last)), strict=True)
            for port, begin, end, price, last in rows:
                # Slot t has the price at + t * step.
                step = Fraction(price - last, proof.scale * max(end - 1 - begin, 1))
                runs.setdefault(port, []).append((begin, end, (Fraction(-price, proof.scale) - begin * step, step)))
    names = JitColumns.of(instance).names
    found: dict[str, dict[str, Fraction]] = {"egress": {}, "ingress": {}}
    found["size"] = {names[k]: price for k, price in size.items()}
    for port, mine in runs.items():
        side, machine = divmod(port, len(machines))
        marks = sorted({mark for begin, end, _ in mine for mark in (begin, end)})
        cell = {mark: k for k, mark in enumerate(marks)}
        priced: list[tuple[Fraction, Fraction] | None] = [None] * (len(marks) - 1)
        for begin, end, value in reversed(mine):
            priced[cell[begin] : cell[end]] = [value] * (cell[end] - cell[begin])
        for (a, b), known in zip(pairwise(marks), priced, strict=True):
            if known is not None:
                label = f"{machines[machine]},{a}" if b == a + 1 else f"{machines[machine]},{a}..{b - 1}"
                mean = known[0] + known[1] * Fraction(a + b - 1, 2)
                found[("egress", "ingress")[side]][label] = mean
    return found


def _order(proof: LevelProof) -> tuple[bool, int]:
    return proof.level != LATENESS, -proof.level
