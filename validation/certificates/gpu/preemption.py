"""Which running tasks of GPU assignment may stop, and which waiting tasks may start, by the fair shares of jobs.

Policy FSP: a job that runs more tasks than its fair share, rounded down, is *above* it. It may lose as many tasks as it
is above, the shortest-running first (ties free), but never its longest-running task while its share is above 0; and it
starts nothing. Every other job keeps what it runs. The other policies stop nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np

from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.gpu.cluster_columns import Cluster, none
from flowlex.validation.certificates.gpu.fair_shares import Mask
from flowlex.validation.restated.gpu import PolicyRules


@dataclass(frozen=True)
class Stops:
    """For each job its running tasks, shortest-running first, and how many of them may stop; tasks that may start."""

    cluster: Cluster
    running: list[list[int]]
    allowed: list[int]
    startable: Mask

    @classmethod
    def of(cls, cluster: Cluster, policy: PolicyRules, level: list[Fraction] | None) -> Stops:
        """Derive them from the fair shares (None without)."""
        running: list[list[int]] = [[] for _ in cluster.job]
        for t in sorted(np.flatnonzero(cluster.own >= 0).tolist(), key=lambda t: float(cluster.elapsed[t])):
            running[int(cluster.job_of[t])].append(t)
        waits = cluster.own < 0
        if not policy.preemptive or level is None:
            return cls(cluster, running, [0] * len(running), waits)
        must = [max(floor(x), int(x > 0)) for x in level]
        above = np.array([len(mine) > floor(x) for mine, x in zip(running, level, strict=True)], dtype=bool)
        allowed = [max(0, len(mine) - least) for mine, least in zip(running, must, strict=True)]
        return cls(cluster, running, allowed, waits & ~above[cluster.job_of])

    def checks(self) -> Iterator[Check]:
        """Whether the answer stops and starts only what may stop and start."""
        cluster = self.cluster
        stopped, names = (cluster.own >= 0) & (cluster.at < 0), cluster.names_of_jobs
        lost = zip(names, cluster.counts(stopped).tolist(), self.allowed, strict=True)
        many = [f"{job} loses {n} of at most {most}" for job, n, most in lost if n > most]
        yield none("only jobs above their fair share lose tasks, no more than they are above", many)
        started = (cluster.own < 0) & (cluster.at >= 0) & ~self.startable
        yield none("no job above its fair share starts a task", [cluster.names[t] for t in np.flatnonzero(started)])

    def kept(self, kept: Mask, stopped: Mask) -> Mask | None:
        """All tasks that must continue, given some that do and some that stop; None if that breaks the rule."""
        sure = kept.copy()
        for mine, most in zip(self.running, self.allowed, strict=True):
            left = most - int(np.count_nonzero(stopped[mine]))
            if left < 0:
                return None
            last = float(self.cluster.elapsed[mine[most - 1]]) if most else -1.0
            sure[[t for t in mine if not stopped[t] and (not left or self.cluster.elapsed[t] > last)]] = True
        return None if (sure & stopped).any() else sure
