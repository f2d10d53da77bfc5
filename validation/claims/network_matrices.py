"""Claim: the constraint matrices of the two flow papers are totally unimodular, so LP optima are integral."""

from __future__ import annotations

from flowlex.instances.files import read_instance
from flowlex.instances.library import library
from flowlex.models.registry import model_class, model_for
from flowlex.validation.claims.base import Claim, Finding, Outcome
from flowlex.validation.unimodularity.check import check

__all__ = ["CLAIM"]

#: Kinds whose model the papers state as one flow network; the last is the plain network both are made of.
KINDS = ("gpu-assignment", "flow-scheduling", "min-cost-flow")


def _check() -> Finding:
    proven: dict[str, str] = {}
    for kind in KINDS:
        model_class(kind)  # importing the model registers the kind of file
    for name, path in library().items():
        instance = read_instance(path)
        if instance.kind not in KINDS:
            continue
        formulation = model_for(instance).formulation
        verdict = check(formulation)
        size = f"{verdict.shape[0]} x {verdict.shape[1]}"
        if not verdict.is_tu:
            return Finding(Outcome.FAILS, f"{name}: {verdict}", {"instance": name})
        if not verdict.verify(formulation):
            return Finding(Outcome.NOT_REPRODUCIBLE, f"{name}: the certificate found does not verify")
        proven[name] = size
    if not proven:
        return Finding(Outcome.NOT_REPRODUCIBLE, "no library instance is of these kinds")
    listed = ", ".join(f"{name} ({size})" for name, size in proven.items())
    return Finding(Outcome.HOLDS, f"certificates verified on {len(proven)} library instances: {listed}", proven)


CLAIM = Claim(
    "network-matrices",
    "The flow networks of task placement have totally unimodular constraint matrices, so the LP is integral.",
    "Tang et al. 2022; Chen et al. 2017 (Sirius)",
    _check,
)
