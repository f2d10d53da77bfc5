"""The compute of cards, recounted: the shares on a card sum to at most one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.pods import PodInstance
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.pods.sizes import size_of

__all__ = ["compute_checks", "compute_left"]


def compute_left(
    instance: PodInstance, where: Sequence[int], on: Mapping[int, NDArray[np.int64]], cards: bool
) -> list[list[Fraction]]:
    """What is left of the compute of every card, by node; of the node in all where cards are not told apart."""
    left = [[Fraction(1)] * node.cards if cards else [Fraction(node.cards)] for node in instance.nodes]
    for p, (pod, n) in enumerate(zip(instance.pods, where, strict=True)):
        if n < 0 or not pod.gpu_compute:
            continue
        if not cards:
            left[n][0] -= size_of(pod.gpu_compute) * pod.gpu_cards
        for k in on.get(p, ()) if cards else ():
            if 0 <= k < len(left[n]):
                left[n][int(k)] -= size_of(pod.gpu_compute)
    return left


def compute_checks(
    instance: PodInstance, where: Sequence[int], on: Mapping[int, NDArray[np.int64]], cards: bool
) -> tuple[Check, ...]:
    """One check, where pods ask for compute."""
    if not any(pod.gpu_compute for pod in instance.pods):
        return ()
    least = min(
        (min(left, default=Fraction(0)) for left in compute_left(instance, where, on, cards)), default=Fraction(0)
    )
    return (Check("compute of every card", least >= 0, max(0.0, -float(least))),)
