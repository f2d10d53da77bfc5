r"""Convert fractions of time to a schedule of rounds, with a proven bound on the lag.

1. Decompose the fractions into a convex combination of configurations, sets of jobs that can run in the same round (see
   `flowlex.models.allocation.methods.mixture_of_rounds`): configuration k gets the fraction ``lambda_k`` of all rounds.
2. Each round runs one configuration. The i-th round of k is released at time ``(i - 1) / lambda_k`` and due at
   ``i / lambda_k``; among the released ones, the earliest due date runs.

Proof of the lag. Divide time into rounds [t - 1, t]. If every k runs at rate ``lambda_k`` all the time, the part of its
i-th round done in round t is the overlap of ``[lambda_k (t - 1), lambda_k t]`` with ``[i - 1, i]``: nothing before the
release ``floor((i - 1) / lambda_k)`` and nothing after the due date ``ceil(i / lambda_k)``. Rates sum to 1, so every
round is full. So a fractional schedule of unit jobs meets the integer release and due dates, hence (bipartite matching)
an integer schedule does, and earliest due date first finds one. After t rounds, due dates imply that k has run at least
``floor(lambda_k t)`` rounds, release dates at most ``ceil(lambda_k t)``: a difference of less than 1 to ``lambda_k t``.
For a job on a GPU type in p of the K configurations, the lag is therefore less than p rounds. As all configurations
together run exactly t rounds, it is also less than K - p. So it is always less than ``min(p, K - p)`` rounds.

Source: the problem is from Narayanan et al. (OSDI 2020), section 5, which uses priorities and states no bound; due
dates as in Liu and Layland and in the chairman assignment problem; their use here is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.models.allocation.methods.mixture_of_rounds import Pool, mixture
from flowlex.models.allocation.solution import AllocationSolution
from flowlex.models.model_base import ModelError
from flowlex.validation.certificates import Certificate
from flowlex.validation.restated.allocation_rounds import certify_rounds

if TYPE_CHECKING:
    import pandas as pd

#: Rates are integer multiples of 1 / _UNITS, so that comparisons of release and due dates are exact.
_UNITS = 2**40
_MOST_ROUNDS = 100_000
#: Fractions up to this count as zero; a part within 1e-7 of 1 counts as 1.
_LEAST_SHARE, _WHOLE = 1e-9, 1 - 1e-7


@dataclass(frozen=True, eq=False)
class RoundSchedule:
    """A schedule of rounds. Sizes: n jobs, J GPU types, S columns that run, K configurations, R rounds."""

    solution: AllocationSolution = field(repr=False)  # the fractions
    seconds: float  # length of a round
    part: float  # part of the fractions that is delivered: 1, or less with ``shrink``
    columns: Integers = field(repr=False)  # (S,) columns of the solution that run
    configurations: Booleans = field(repr=False)  # (K, S) what runs together
    # (K,) rate of every configuration, in ``2**-40`` rounds per round; they sum to ``2**40``
    units: Integers = field(repr=False)
    picked: Integers = field(repr=False)  # (R,) the configuration of each round

    @property
    def _taking_part(self) -> Integers:
        """(K, n, J) whether a job runs on a type in a configuration."""
        all_columns, source = self.solution.columns, self.solution.source
        which, s = np.nonzero(self.configurations)
        c = self.columns[s]
        taking = np.zeros((len(self.units), len(source.jobs), len(source.gpu_types)), np.int64)
        taking[which, all_columns.first[c], all_columns.gpu[c]] = 1
        pair = all_columns.second[c] >= 0
        taking[which[pair], all_columns.second[c[pair]], all_columns.gpu[c[pair]]] = 1
        return taking

    @property
    def owed(self) -> Floats:
        """(n, J) target seconds per second of every job on every type: ``part`` times its fraction."""
        columns, source = self.solution.columns, self.solution.source
        types = range(len(source.gpu_types))
        on = [np.where(columns.gpu == j, self.solution.share, 0.0) for j in types]
        fractions = [columns.per_job(share, len(source.jobs), speed=False) for share in on]
        return np.asarray(self.part * np.column_stack(fractions))

    @property
    def lag(self) -> Floats:
        """(n, J) proven bound on ``|delivered - owed * time|``, seconds, after every round of any number of rounds.

        In addition, the solver's tolerances cause at most `drift` per round.
        """
        taking = self._taking_part.sum(axis=0)
        return np.asarray(self.seconds * np.minimum(taking, len(self.units) - taking).astype(np.float64))

    @property
    def drift(self) -> float:
        """Largest difference between the configurations' rates and `owed`, seconds per round (about 1e-9)."""
        mixed = np.einsum("k,kmj->mj", self.units / _UNITS, self._taking_part.astype(float))
        return float(self.seconds * np.abs(mixed - self.owed).max())

    @property
    def delivered(self) -> Floats:
        """(n, J) seconds that every job runs on every type in all rounds."""
        runs = np.bincount(self.picked, minlength=len(self.units))
        return np.asarray(self.seconds * np.tensordot(runs, self._taking_part, 1).astype(np.float64))

    def to_frame(self) -> pd.DataFrame:
        """One row per round and job or pair that runs: round, start_s, jobs (``a`` or ``a+b``), gpu_type, gpus."""
        import pandas as pd

        source = self.solution.source
        names, types = [job.name for job in source.jobs], [t.name for t in source.gpu_types]
        labels, gpus, scales = [], [], []
        for members, j in self._members():
            labels.append("+".join(names[m] for m in members))
            gpus.append(types[j])
            scales.append(int(source.arrays.scale[members[0]]))
        number, s = np.nonzero(self.configurations[self.picked])
        data = {"round": number, "start_s": number * self.seconds, "jobs": np.array(labels, object)[s]}
        return pd.DataFrame({**data, "gpu_type": np.array(gpus, object)[s], "gpus": np.array(scales, np.int64)[s]})

    def _members(self) -> list[tuple[list[int], int]]:
        """Jobs and GPU type of every column that runs."""
        c = self.solution.columns
        pairs = zip(c.first[self.columns].tolist(), c.second[self.columns].tolist(), strict=True)
        jobs = [[m for m in both if m >= 0] for both in pairs]
        return list(zip(jobs, c.gpu[self.columns].tolist(), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, by name; the input of `certify_rounds`."""
        source = self.solution.source
        names, types = [job.name for job in source.jobs], [t.name for t in source.gpu_types]
        runs = [{"jobs": [names[m] for m in members], "gpu_type": types[j]} for members, j in self._members()]
        lag = {
            name: {types[j]: row[j] for j in np.flatnonzero(self.owed[m] > 0)}
            for m, (name, row) in enumerate(zip(names, self.lag.tolist(), strict=True))
        }
        return {
            "seconds": self.seconds,
            "part": self.part,
            "shares": self.solution.to_dict()["answer"]["shares"],
            "configurations": [[runs[s] for s in np.flatnonzero(one)] for one in self.configurations],
            "rounds": self.picked.tolist(),
            "lag_s": lag,
            "drift_s": self.drift,
        }

    @property
    def certificate(self) -> Certificate:
        """Verify the schedule: recompute deliveries after every round and compare them with `owed` and `lag`."""
        return certify_rounds(self.to_dict(), self.solution.source)


def schedule_rounds(
    allocation: AllocationSolution, seconds: float, *, rounds: int = 100, shrink: bool = False
) -> RoundSchedule:
    """Convert fractions of time to a schedule of rounds that deviates at most by a proven lag.

    Parameters
    ----------
    allocation
        Fractions of time, from any policy or baseline; jobs of a pair share their GPUs.
    seconds
        Length of a round.
    rounds
        Number of rounds, at most 100 000. A longer schedule begins with the same rounds.
    shrink
        If rounds cannot realise the fractions (3 GPUs, two jobs of 2 GPUs, each 3/4 of the time), scale all of them by
        the same factor instead of raising an error.

    Raises
    ------
    ModelError
        The allocation has no solution or runs no job, rounds cannot realise it (without ``shrink``), or an argument is
        out of range.
    CertificateError
        The schedule fails verification (a defect, never an input error).

    Examples
    --------
    >>> from flowlex import generate, solve
    >>> rounds = schedule_rounds(solve(generate("gavel-like", jobs=4)), 360.0, rounds=20)
    >>> rounds.certificate.ok
    True
    """
    if not (math.isfinite(seconds) and seconds > 0):
        raise ModelError(f"seconds must be a positive number, the length of a round; got {seconds}")
    if isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= _MOST_ROUNDS:
        raise ModelError(f"rounds must be an integer from 1 to {_MOST_ROUNDS}, got {rounds}")
    if not allocation.status.has_answer:
        raise ModelError(
            f"the allocation has no answer ({allocation.status}): {allocation.message or 'solve it first'}"
        )
    columns, view = allocation.columns, allocation.source.arrays
    kept = np.flatnonzero(allocation.share > _LEAST_SHARE)
    if not len(kept):
        raise ModelError("the allocation runs nothing; there are no rounds to schedule")
    first, second, gpu = columns.first[kept], columns.second[kept], columns.gpu[kept]
    pool = Pool(first, second, gpu, view.scale[first], view.count, len(view.scale))
    mixed = mixture(pool, allocation.share[kept])
    if mixed.part < _WHOLE and not shrink:
        most = "at most" if mixed.largest else "as far as was searched"
        raise ModelError(
            f"whole rounds cannot keep these fractions: jobs that run all at once or not at all can have {most} "
            f"{100 * mixed.part:.4g} % of each; pass shrink=True to deliver that part"
        )
    units = _whole(mixed.weight)
    part = 1.0 if mixed.part >= _WHOLE else mixed.part
    facts = (allocation, float(seconds), part, kept, mixed.configurations[units > 0], units[units > 0])
    schedule = RoundSchedule(*facts, picked=_earliest_due(units[units > 0], rounds))
    schedule.certificate.require(f"rounds of {allocation.source.name}")
    return schedule


def _whole(weight: Floats) -> Integers:
    """Round weights that sum to 1 to integers that sum to ``_UNITS``, by largest remainders."""
    exact = weight * _UNITS
    units = np.floor(exact).astype(np.int64)
    units[np.argsort(units - exact, kind="stable")[: _UNITS - int(units.sum())]] += 1
    return units


def _earliest_due(units: Integers, rounds: int) -> Integers:
    """Return the configuration of each round, (R,): of the released ones the earliest due, ties to the first."""
    ran = np.zeros(len(units), np.int64)
    due = -(-_UNITS // units)
    picked = np.empty(rounds, np.int64)
    for t in range(1, rounds + 1):
        released = ran * _UNITS < t * units
        k = int(np.where(released, due, np.iinfo(np.int64).max).argmin())
        picked[t - 1] = k
        ran[k] += 1
        due[k] = -(-(int(ran[k]) + 1) * _UNITS // int(units[k]))
    return picked
