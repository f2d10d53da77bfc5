"""The time limit: checked inside compiled loops, without compile time, with progress messages."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flowlex.formulations import deferred_compilation
from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.proof_types import Answer
from flowlex.validation.unimodularity.time_limit import Clock, TimeIsUp


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is true, a minute at most."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "waited a minute in vain"
        time.sleep(0.02)


def test_the_limit_is_kept_inside_the_loops() -> None:
    """A 3-connected matrix that takes long to decide: the answer comes soon after the limit."""
    generator = np.random.default_rng(0)
    dense = (generator.random((250, 250)) < 0.5).astype(int) * generator.choice([-1, 1], (250, 1))
    check(dense[:20, :20])
    start = time.perf_counter()
    check(dense, method="sums", time_limit=1.0)
    assert time.perf_counter() - start < 60


def test_waiting_is_not_counted() -> None:
    """The limit counts processor seconds: a process that waits has used none."""
    with Clock(0.3) as clock:
        time.sleep(0.5)
        clock.check()
        assert clock.left() > 0.1
        while time.thread_time() and clock.left() > 0:
            pass
        with pytest.raises(TimeIsUp):
            clock.check()


def test_progress_is_told_after_two_seconds() -> None:
    told: list[str] = []
    with Clock(60.0, told.append) as clock:
        clock.check("camion on 4 x 4")
        wait_for(lambda: bool(told))
    assert "camion on 4 x 4" in told[0]


def test_undecided_for_lack_of_time_says_so() -> None:
    verdict = check(examples.network(300, 900), time_limit=1e-9)
    assert verdict.answer is Answer.UNDECIDED
    assert "a longer time limit" in verdict.conclusion


def test_a_small_matrix_is_checked_without_the_compiler(tmp_path: Path) -> None:
    """With an empty cache folder nothing is compiled and numba is not even imported."""
    script = "import sys, flowlex\nprint(flowlex.check([[1, 1, 0], [0, 1, 1]]).is_tu, 'numba' in sys.modules)"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"
    assert not list(tmp_path.rglob("*.nbc"))


@pytest.mark.parametrize("shape", [(12, 30), (25, 60)])
def test_plain_and_compiled_loops_agree(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    matrices = [
        examples.network(*shape, seed=1),
        examples.jit_matrix(examples.random_flows(shape[0], 5, seed=2), 4),
        examples.two_sum(examples.r10(), examples.network(*shape, seed=3)),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(deferred_compilation.Loop, "plain_pays", lambda _: True)
        plain = [check(matrix) for matrix in matrices]
    with deferred_compilation.always_compiled():
        compiled = [check(matrix) for matrix in matrices]
    for one, two in zip(plain, compiled, strict=True):
        assert (one.answer, one.certificate, one.witness) == (two.answer, two.certificate, two.witness)
