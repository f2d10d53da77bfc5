"""Claims about JIT's latest arrival times: that all can be met together, and that meeting them delays no job."""

from __future__ import annotations

import numpy as np

from flowlex.instances.generators.registry import generate
from flowlex.instances.jit import JitInstance
from flowlex.models.jit.latest_arrival import latest_arrival_times
from flowlex.validation.claims.claim_interface import Claim, Finding, Outcome


def overload(instance: JitInstance) -> tuple[str, float, float, float] | None:
    """A port and a time interval whose transfers hold more than the port carries: (port, from, to, excess in MB).

    Transfers whose whole window lies in the interval must pass the port within it, whatever the schedule. None when
    no interval between a start and a latest arrival is overloaded (then the times may still be impossible).
    """
    arrays, late = instance.arrays, latest_arrival_times(instance, rule="paper").latest_s
    for side, port in (("out", arrays.sender), ("in", arrays.receiver)):
        for number in np.unique(port).tolist():
            mine = port == number
            start, end, size = arrays.start_s[mine], late[mine], arrays.size_mb[mine]
            machine = instance.machines[number]
            rate = (machine.out_mbps if side == "out" else machine.in_mbps) / 8
            for low in np.unique(start):
                order = np.argsort(end)
                inside = start[order] >= low
                held = np.cumsum(np.where(inside, size[order], 0.0))
                excess = np.where(inside, held - rate * (end[order] - low), -np.inf)
                worst = int(np.argmax(excess))
                if excess[worst] > 1e-6 * held[worst]:
                    return f"{side} of {machine.name}", float(low), float(end[order][worst]), float(excess[worst])
    return None


def _feasible() -> Finding:
    """Look at jobs alone first, then at several on one cluster."""
    for jobs, seeds in ((1, 3), (10, 3), (40, 3)):
        for seed in range(seeds):
            instance = generate("jit-cluster", seed=seed, jobs=jobs, machines=10, mix="LeNet,AlexNet,VGG16", copies=0)
            assert isinstance(instance, JitInstance)
            found = overload(instance)
            if found is not None:
                port, low, high, excess = found
                text = (
                    f"{jobs} job(s) on 10 machines, seed {seed}: between {low:.3f} and {high:.3f} s the transfers due "
                    f"there exceed what the port ({port}) carries by {excess:.3g} MB: no schedule meets all times"
                )
                return Finding(Outcome.FAILS, text, {"jobs": jobs, "seed": seed, "excess_mb": excess})
    return Finding(
        Outcome.NOT_REPRODUCIBLE, "no overloaded port among 9 generated clusters: neither proof nor refutation"
    )


def end_of_jobs(instance: JitInstance, arrival_s: np.ndarray) -> np.ndarray:
    """(J,) when each job's last computation ends, from the job's arrival, if transfers arrive at these times.

    A computation starts when its transfers have arrived and those before it are done; written for the claim, in
    plain loops, apart from the code that computes the latest times.
    """
    place = 0
    ends = []
    for job in instance.jobs:
        due: dict[str, float] = {}
        for transfer in job.transfers:
            due[transfer.feeds] = max(due.get(transfer.feeds, 0.0), float(arrival_s[place]))
            place += 1
        done: dict[str, float] = {}
        waiting = list(job.computations)
        while waiting:
            ready = [c for c in waiting if all(name in done for name in c.after)]
            for c in ready:
                done[c.name] = max([due.get(c.name, 0.0), *(done[name] for name in c.after)]) + c.seconds
            waiting = [c for c in waiting if c.name not in done]
        ends.append(max(done.values()))
    return np.array(ends)


def _no_delay() -> Finding:
    instance = generate("jit-figure4")
    assert isinstance(instance, JitInstance)
    times = latest_arrival_times(instance, rule="paper")
    at_latest = end_of_jobs(instance, times.offset_s)[0]
    at_once = end_of_jobs(instance, times.trans_s)[0]
    text = (
        f"figure 4, job alone: transfers that all start at once at their fair share of the ports end the job after "
        f"{at_once:g} s; transfers that arrive exactly at their latest times end it after {at_latest:g} s"
    )
    data = {"at_latest_s": float(at_latest), "at_once_s": float(at_once)}
    return Finding(Outcome.HOLDS if at_latest <= at_once else Outcome.FAILS, text, data)


FEASIBLE = Claim(
    "jit-latest-feasible",
    "The latest arrival times of all jobs can be met together.",
    "Shi et al. 2021 (JIT), implied by P1",
    _feasible,
)
NO_DELAY = Claim(
    "jit-no-delay",
    "Meeting the latest arrival times suffices not to delay the job.",
    "Shi et al. 2021 (JIT), section on algorithm 1",
    _no_delay,
)
