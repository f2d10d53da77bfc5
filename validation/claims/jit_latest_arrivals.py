"""The claim about JIT's latest arrival times: meeting them delays no job."""

from __future__ import annotations

import numpy as np

from flowlex.instances.generators.registry import generate
from flowlex.instances.jit import JitInstance
from flowlex.models.jit.latest_arrival import Rule, latest_arrival_times
from flowlex.validation.claims.claim_interface import Claim, Finding, Outcome


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
    """Compare under both readings of ``num``; the claim fails only if it fails under each."""
    instance = generate("jit-figure4")
    assert isinstance(instance, JitInstance)
    at_once = float(end_of_jobs(instance, latest_arrival_times(instance, rule="paper-job").trans_s)[0])
    readings: tuple[Rule, ...] = ("paper", "paper-job")
    at_latest = {
        rule: float(end_of_jobs(instance, latest_arrival_times(instance, rule).offset_s)[0]) for rule in readings
    }
    text = (
        f"figure 4, job alone: transfers that all start at once at their fair share of the ports end the job after "
        f"{at_once:g} s; transfers that arrive exactly at their latest times end it after {at_latest['paper']:g} s "
        f"if one pass (ReadySet) shares a port, {at_latest['paper-job']:g} s if the whole job does"
    )
    data = {"at_latest_s": at_latest, "at_once_s": at_once}
    return Finding(Outcome.HOLDS if min(at_latest.values()) <= at_once else Outcome.FAILS, text, data)


NO_DELAY = Claim(
    "jit-no-delay",
    "Meeting the latest arrival times suffices not to delay the job.",
    "Shi et al. 2021 (JIT), section on algorithm 1",
    _no_delay,
)
