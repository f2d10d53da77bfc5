"""Lateness over intervals, compared with independent integer programs over single slots."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.jit.model import JitBandwidth
from tests.models.jit.test_unequal_ports import highest, truth


def overloaded(seed: int, slot_s: float = 1.0, stretch: int = 1, transfers: int = 7) -> JitInstance:
    """Unequal ports of 1 to 3 MB a second; windows and sizes in seconds and MB, ``stretch`` times as long."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    machines = tuple(
        Machine(name=f"m{k}", out_mbps=8.0 * int(rng.integers(1, 4)), in_mbps=8.0 * int(rng.integers(1, 4)))
        for k in range(count)
    )
    made = []
    for k in range(int(rng.integers(2, transfers + 1))):
        i, j = rng.choice(count, 2, replace=False)
        ready = int(rng.integers(0, 6)) * stretch
        due = ready + int(rng.integers(1, 12)) * stretch
        firm = float(due + 40 * stretch) if rng.random() < 0.1 else None
        made.append(
            Transfer(
                name=f"t{k}",
                size_mb=float(rng.integers(1, 20)) * stretch,
                sender=f"m{i}",
                receiver=f"m{j}",
                feeds="c",
                ready_s=float(ready),
                deadline_s=float(due),
                firm_s=firm,
            )
        )
    job = Job(name="j", computations=(Computation(name="c", seconds=0.0),), transfers=tuple(made))
    return JitInstance(machines=machines, jobs=(job,), slot_s=slot_s, unit_mb=slot_s)


def slot_by_slot(instance: JitInstance, load: str) -> tuple[int, dict[int, int]]:
    """Least lateness, and number of loads of at least every level, by integer programs over slots of 1 s and 1 MB."""
    made = instance.jobs[0].transfers
    numbers = [(int(f.sender[1:]), int(f.receiver[1:]), int(f.size_mb), int(f.ready_s)) for f in made]
    flows = [(*each, int(f.deadline_s or 0)) for each, f in zip(numbers, made, strict=True)]
    ports = [(int(m.out_mbps / 8), int(m.in_mbps / 8)) for m in instance.machines]
    found = truth(ports, flows, load, True, [f.firm_s for f in made])
    assert found is not None
    return found[0], {s: n for s, n in zip(range(highest(ports), 0, -1), found[1], strict=True) if n}


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["pair", "port", "sender", "receiver"]))
def test_least_lateness_and_levels_are_those_of_integer_programs(seed: int, load: Any) -> None:
    instance = overloaded(seed, transfers=5)
    solution = JitBandwidth(instance, share=1.0, load=load, windows="elastic").solve("highs")
    assert (solution.lateness, solution.levels) == slot_by_slot(instance, load)
    assert solution.certificate is not None and solution.certificate.claim == "optimal"


@pytest.mark.parametrize("seed", [1, 9])  # 9: two ports have the same sum of loads
def test_slots_as_short_as_one_likes(seed: int) -> None:
    """An hour and more of slots of 1 ms; in the limit of short slots lateness is that of fluid transfers."""
    late, blocks = [], []
    for slot_s in (10.0, 0.1, 0.001):
        instance = overloaded(seed, slot_s, stretch=100)
        solution = JitBandwidth(instance, share=1.0, load="port", windows="elastic").solve("highs")
        assert solution.certificate is not None and solution.certificate.claim == "optimal"
        late.append(solution.lateness * slot_s**2)  # MB times seconds
        blocks.append(len(solution.blocks.item))
    assert solution.grid.horizon > 10**6 // 2
    assert late[0] > late[1] > late[2] and late[1] - late[2] < 0.02 * (late[0] - late[2])
    assert blocks[2] < 3 * blocks[0]
