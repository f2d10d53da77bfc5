"""Transfers of computed data (`made_by`) are planned from the end of their computation and proven."""

import json
from typing import Any

import numpy as np
import pytest

from flowlex.instances.generators.jit import jit_random
from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.jit.latest_arrival import Rule, latest_arrival_times
from flowlex.models.jit.model import JitBandwidth
from flowlex.validation.certificates import verify
from flowlex.validation.restated.jit_windows import transfer_windows


def training_step(backward_s: float = 2.0) -> JitInstance:
    """Parameters of two layers arrive for the forward pass; each layer's gradient leaves when its backward pass ends.

    forward1 1 s, forward2 1 s, then backward2 and backward1; 4 units each way at 2 units a slot.
    """
    names = ("forward1", "forward2", "backward2", "backward1", "update")
    seconds = (1.0, 1.0, backward_s, backward_s, 0.0)
    steps = tuple(
        Computation(name=name, seconds=s, after=names[k - 1 : k] if k else ())
        for k, (name, s) in enumerate(zip(names, seconds, strict=True))
    )
    there = [("parameters1", "forward1"), ("parameters2", "forward2")]
    made = [("gradient2", "backward2"), ("gradient1", "backward1")]
    transfers = [Transfer(name=n, size_mb=4, sender="ps", receiver="worker", feeds=c) for n, c in there]
    transfers += [
        Transfer(name=n, size_mb=4, sender="worker", receiver="ps", feeds="update", made_by=c) for n, c in made
    ]
    machines = tuple(Machine(name=name, out_mbps=16, in_mbps=16) for name in ("ps", "worker"))
    job = Job(name="j", computations=steps, transfers=tuple(transfers))
    return JitInstance(name="step", machines=machines, jobs=(job,), slot_s=1.0, unit_mb=1.0)


def test_a_training_step_by_hand() -> None:
    """forward1 begins at 2, forward2 at 3, backward2 ends at 6, backward1 at 8; both gradients are in by 10."""
    instance = training_step()
    latest = latest_arrival_times(instance)
    assert latest.ready_s.tolist() == [0, 0, 6, 8]
    assert latest.offset_s.tolist() == [2, 3, 10, 10]
    solution = JitBandwidth(instance, share=1.0).solve("highs")
    assert solution.lateness == 2  # 6 of the 8 units of parameters fit into 3 slots: two units are one slot late
    assert solution.certificate is not None and solution.certificate.claim == "optimal"
    sent = solution.to_frame().groupby("transfer")["slot"].agg(["min", "max"])
    assert tuple(sent.loc["j/gradient2"]) == (6, 7) and tuple(sent.loc["j/gradient1"]) == (8, 9)


@pytest.mark.parametrize("rule", ["critical", "paper", "paper-job"])
@pytest.mark.parametrize("seed", range(12))
def test_windows_are_those_that_the_certificate_recomputes(seed: int, rule: Rule) -> None:
    rng = np.random.default_rng(seed)
    made = jit_random(seed=seed, machines=3, jobs=2, transfers=4, slots=6, capacity=2, deadlines=bool(seed % 3 == 0))
    jobs = []
    for job in made.jobs:
        names = [c.name for c in job.computations]
        changed = []
        for transfer in job.transfers:
            before = names[: names.index(transfer.feeds)]
            maker = str(rng.choice(before)) if before and rng.random() < 0.7 else None
            changed.append(transfer.model_copy(update={"made_by": maker}))
        jobs.append(Job.model_validate(job.model_dump() | {"transfers": [t.model_dump() for t in changed]}))
    instance = JitInstance.model_validate(made.model_dump() | {"jobs": [job.model_dump() for job in jobs]})
    model = JitBandwidth(instance, share=1.0, lat=rule)
    windows = transfer_windows(instance, rule)
    for name in ("start", "due", "stop"):
        assert getattr(model.grid, name).tolist() == getattr(windows, name)[model.grid.transfer].tolist()
    solution = model.solve("highs")
    document: dict[str, Any] = json.loads(json.dumps(solution.to_dict()))
    assert verify(document, instance).claim == "optimal"
    earlier = document["answer"]["schedule"]
    name, runs = next((name, runs) for name, runs in earlier.items() if runs)
    k = instance.transfer_names.index(name)
    runs[0][0] = int(windows.start[k]) - 1
    assert not verify(document, instance).ok
