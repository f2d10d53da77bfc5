"""Engines, printed programs and routes agree; lateness by hand."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowlex.formulations.solver_outcome import Status
from flowlex.instances.generators.jit import jit_random
from flowlex.instances.jit import JitInstance
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.model_base import ModelError
from tests.models.jit.test_unequal_ports import alike, made

QUICK = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def small(seed: int) -> JitInstance:
    rng = np.random.default_rng(seed)
    return jit_random(
        seed=seed,
        machines=int(rng.integers(2, 5)),
        jobs=2,
        transfers=int(rng.integers(1, 4)),
        slots=int(rng.integers(2, 5)),
        capacity=int(rng.integers(1, 4)),
    )


@QUICK
@given(st.integers(0, 10_000))
def test_the_literal_programs_agree(seed: int) -> None:
    instance = small(seed)
    staged = JitBandwidth(instance, share=1.0, windows="strict").solve()
    largest = JitBandwidth(instance, share=1.0, program="P1", presolve=False).solve()
    assert largest.status == staged.status
    if staged.status.has_answer:
        assert largest.objective == staged.objective
        assert largest.certificate is not None and largest.certificate.claim in ("optimal", "bounded")
    for program in ("P3", "P4"):
        try:
            literal = JitBandwidth(instance, share=1.0, program=program).solve()
        except ModelError:
            continue
        assert literal.status == staged.status
        if staged.status.has_answer:
            assert literal.sorted_loads.tolist() == staged.sorted_loads.tolist()
            assert literal.certificate is not None and literal.certificate.claim == "optimal"
            assert literal.certificate.verdict == "proven" and literal.objective == literal.bound


def test_elastic_lateness_by_hand() -> None:
    """Two units due at once at one port of one unit a slot: one of them is one slot late."""
    instance = made(alike(1, 1, 1), [(0, 1, 1, 0, 1), (0, 2, 1, 0, 1)])
    strict = JitBandwidth(instance, share=1.0, windows="strict").solve()
    assert strict.status is Status.INFEASIBLE
    assert "egress of machine 'm0': 'j/t0', 'j/t1' must send 2 units between 0 s and 1 s, where 1 fit" in strict.message
    elastic = JitBandwidth(instance, share=1.0, windows="elastic").solve()
    assert elastic.lateness == 1
    assert len(elastic.late_frame()) == 1
    assert elastic.late_frame()["because_of"].tolist() == ["ports"]
