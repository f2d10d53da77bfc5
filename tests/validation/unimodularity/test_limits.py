"""The time limit: kept inside the compiled loops, without the compilation, and told about while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flowlex.validation.unimodularity import zoo
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.clock import Clock, TimeIsUp
from flowlex.validation.unimodularity.network_matrix import network_matrix
from flowlex.validation.unimodularity.proof import Answer

ONE_VERDICT = """
from flowlex.validation.unimodularity import zoo
from flowlex.validation.unimodularity.check import check
verdict = check(zoo.network(60, 150, seed=3), time_limit={limit})
print(verdict.answer.value, verdict.method)
"""


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is true, a minute at most."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "waited a minute in vain"
        time.sleep(0.02)


def test_a_loop_stops_when_the_clock_says_so() -> None:
    with Clock(0.001) as clock:
        wait_for(lambda: clock.stop[0] == 1)
        with pytest.raises(TimeIsUp):
            network_matrix(zoo.network(200, 900), clock=clock)
        with pytest.raises(TimeIsUp):
            clock.check()


def test_the_limit_is_kept_inside_the_loops() -> None:
    """A 3-connected matrix that takes long to decide: the answer comes soon after the limit."""
    generator = np.random.default_rng(0)
    dense = (generator.random((400, 400)) < 0.5).astype(int) * generator.choice([-1, 1], (400, 1))
    check(dense[:20, :20])
    start = time.perf_counter()
    check(dense, method="sums", time_limit=1.0)
    assert time.perf_counter() - start < 60


def test_what_happens_outside_is_not_counted() -> None:
    clock = Clock(1000.0)
    before = clock.left()
    with clock.outside():
        time.sleep(3)
    assert before - clock.left() < 2


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_fresh_cache_gives_the_verdict_of_a_warm_one(tmp_path: Path) -> None:
    """Compiling takes tens of seconds; under a limit of two the matrix is decided all the same."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", ONE_VERDICT.format(limit=2.0)]
    told = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(2)]
    assert told[0].stdout == told[1].stdout == "tu network\n"


def test_progress_is_told_after_two_seconds() -> None:
    told: list[str] = []
    with Clock(60.0, told.append) as clock:
        clock.check("camion on 4 x 4")
        wait_for(lambda: bool(told))
    assert "camion on 4 x 4" in told[0]


def test_undecided_for_lack_of_time_says_so() -> None:
    verdict = check(zoo.network(300, 900), time_limit=1e-9)
    assert verdict.answer is Answer.UNDECIDED
    assert "a longer time limit" in verdict.conclusion
