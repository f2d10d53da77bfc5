"""Large changed rounds: the network of refined classes equals the plain program, its certificate refuses faults."""

import json

import pytest

import flowlex.models.gpu.model
import flowlex.validation.restated.gpu_answer
from flowlex import generate
from flowlex.models.gpu.methods.large_round import LARGEST
from flowlex.models.gpu.model import GpuAssignment
from flowlex.models.model_base import ModelError
from flowlex.testing.staged_optimum import optimise
from flowlex.validation.certificates import verify
from tests.models.gpu.cases import random_round
from tests.models.gpu.test_changes import figures
from tests.models.random_changes import Changed
from tests.seeds import seeds


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve and verify small rounds by classes too."""
    monkeypatch.setattr(flowlex.models.gpu.model, "SMALL", -1)
    monkeypatch.setattr(flowlex.validation.restated.gpu_answer, "_WRITTEN_OUT", -1)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seed", seeds(15, 80))
def test_small_rounds_equal_the_changed_arrays(seed: int) -> None:
    policy = ("FSP", "FS", "FSU")[seed % 3]
    changed = Changed(GpuAssignment(random_round(seed), policy=policy), seed).draw()
    model = changed.model
    if not model.changes or model.unrefined:
        return
    assert model.method.startswith("classes of tasks")
    wanted, solution = optimise(changed.program), model.solve("highs")
    certificate = verify(json.loads(json.dumps(solution.to_dict())), model.instance)
    assert certificate.ok
    if not wanted.values:
        assert str(solution.status) == "infeasible"
        return
    assert list(figures(solution).values()) == pytest.approx(wanted.values, rel=1e-6, abs=1e-4)
    shown = "optimal" if str(solution.status) == "optimal" else "bounded"
    assert certificate.claim in (shown, "feasible")


@pytest.mark.slow
def test_a_large_round_with_rules_is_proven() -> None:
    model = GpuAssignment(generate("gpu-scale", gpus=1200, tasks=2400, jobs=20))
    x = model.variables["x"]
    assert len(x) > LARGEST and "classes of tasks" not in model.method
    jobs, racks = (x.labels.levels[level].labels for level in ("job", "rack"))
    for job, rack in zip(jobs[:5], racks[:5], strict=True):
        model = model.with_constraint(f"{job} in {rack}", x.sel(job=job, rack=rack).sum() <= 1)
    solution = model.solve()
    assert solution.certificate is not None and solution.certificate.claim == "optimal"
    frame = solution.to_frame()
    for job, rack in zip(jobs[:5], racks[:5], strict=True):
        assert ((frame["job"] == job) & (frame["rack"] == rack)).sum() <= 1
    with pytest.raises(ModelError, match=r"pairs of tasks and GPUs, more than.*drops integrality"):
        model.relaxed()
    with pytest.raises(ModelError, match="is not stated one by one"):
        model.compile()
    with pytest.raises(ModelError, match="no rack"):
        x.sel(rack="none")
    busy = model.with_constraint("busy", x.sel(rack=racks[0]).sum() >= 2000).solve()
    assert str(busy.status) == "infeasible" and "busy" in busy.infeasibility.constraints
    assert busy.certificate is not None and busy.certificate.claim == "infeasible"
