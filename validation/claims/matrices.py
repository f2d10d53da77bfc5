"""Claims: the constraint matrices of the placement papers are totally unimodular, so LP optima are integral."""

from __future__ import annotations

from collections.abc import Iterable

from flowlex.instances.base import Instance
from flowlex.instances.generators.registry import generate
from flowlex.models.registry import model_for
from flowlex.validation.claims.base import Claim, Finding, Outcome
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.proof import Answer

__all__ = ["NETWORKS", "TRANSPORT", "judge"]


def judge(instances: Iterable[Instance]) -> Finding:
    """Check every instance's formulation; one refutation refutes, one open question leaves it open."""
    proven: dict[str, str] = {}
    for instance in instances:
        formulation = model_for(instance).formulation
        verdict = check(formulation)
        if not verdict.verify(formulation):
            return Finding(Outcome.NOT_REPRODUCIBLE, f"{instance.name}: no proof either way ({verdict})")
        if verdict.answer is Answer.NOT_TU:
            return Finding(Outcome.FAILS, f"{instance.name}: {verdict}", {"instance": instance.name})
        proven[f"{instance.kind}: {instance.name}"] = f"{verdict.shape[0]} x {verdict.shape[1]}, {verdict.method}"
    listed = "; ".join(f"{name} ({how})" for name, how in proven.items())
    return Finding(Outcome.HOLDS, f"certificates verified on {len(proven)} instances: {listed}", proven)


def _networks() -> Finding:
    return judge(
        [
            generate("gpu-figure1"),
            generate("gpu-figure4"),
            generate("gpu-random", seed=1),
            *(generate("flow-random", seed=seed) for seed in range(3)),
            generate("flow-testbed", batch_tasks=24, service_tasks=8),
            generate("network-random"),
        ]
    )


def _transport() -> Finding:
    return judge(generate("inference-cluster", seed=seed, items=60 + 40 * seed, workers=4 + seed) for seed in range(4))


NETWORKS = Claim(
    "network-matrices",
    "The flow networks of task placement have totally unimodular constraint matrices, so the LP is integral.",
    "Tang et al. 2022; Chen et al. 2017 (Sirius)",
    _networks,
)
TRANSPORT = Claim(
    "transport-matrices",
    "Load partition as a transportation problem has a totally unimodular matrix, so whole items move.",
    "this project, on Hu et al. 2019",
    _transport,
)
