r"""Fractions of time as a mixture of whole rounds: which sets of jobs may run together, and how often each set does.

A *configuration* M is what one round may run: every job at most once, on no type more GPUs than there are. Fractions X
can be kept by whole rounds only if they are a mixture of configurations,

    X = sum_k lambda_k M_k,   sum_k lambda_k = 1,   lambda >= 0,

and the time and GPU rows that X keeps are not enough: with 3 GPUs, two jobs of 2 GPUs each could run 3/4 of the time as
fractions, but never in one round together. So we look for the largest part theta <= 1 of X that is a mixture. Where all
jobs have one scale and none are paired, the rows are those of a bipartite b-matching, whose corners are whole; then
theta is 1 (Birkhoff). Configurations come first by taking away one that covers all tight rows, as in Birkhoff's proof,
and then, where that is not enough, by column generation: an integer program finds the configuration that the prices of
the mixture want most, and where none is wanted, theta is proven the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowlex.formulations.arrays import Booleans, Floats, Integers
from flowlex.formulations.engines import solve
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineError, SolveOptions, Status

__all__ = ["Mixture", "Pool", "mixture"]

#: Fractions and slacks below this are nothing: what linear programs leave.
_NOTHING = 1e-9


@dataclass(frozen=True, eq=False)
class Pool:
    """What may run and what it needs. Sizes: C columns, n jobs, J GPU types.

    Attributes
    ----------
    first, second, gpu
        (C,) jobs (``second`` is -1 for a job alone) and GPU type.
    scale
        (C,) GPUs used at once.
    count
        (J,) GPUs.
    jobs
        n.
    """

    first: Integers
    second: Integers
    gpu: Integers
    scale: Integers
    count: Integers
    jobs: int

    def time(self, share: Floats) -> Floats:
        """(n,) fraction of time that every job runs."""
        pair = self.second >= 0
        alone = np.bincount(self.first, weights=share, minlength=self.jobs)
        return np.asarray(alone + np.bincount(self.second[pair], weights=share[pair], minlength=self.jobs))

    def held(self, share: Floats) -> Floats:
        """(J,) GPUs held."""
        return np.asarray(np.bincount(self.gpu, weights=self.scale * share, minlength=len(self.count)))

    @cached_property
    def _program(self) -> LinearProgram:
        program = LinearProgram("configuration")
        runs = program.variables("runs", len(self.first), upper=1.0, integer=True)
        pair = np.flatnonzero(self.second >= 0)
        time = runs.sum_by(self.first, self.jobs) + runs[pair].sum_by(self.second[pair], self.jobs)
        program.constrain("time", time, "<=", 1.0)
        program.constrain(
            "gpus", (runs * self.scale.astype(float)).sum_by(self.gpu, len(self.count)), "<=", self.count.astype(float)
        )
        return program

    def heaviest(self, weight: Floats) -> Booleans:
        """(C,) the configuration of most weight; nothing of no weight runs."""
        program = self._program.with_upper("runs", (weight > 0).astype(float))
        program.maximize((program.variable("runs") * np.maximum(weight, 0.0)).sum())
        return np.asarray(_solved(program)[0] > 0.5)


@dataclass(frozen=True, eq=False)
class Mixture:
    """``part * share`` as a mixture of configurations.

    Attributes
    ----------
    part
        theta: 1 where the fractions can be kept whole, else the largest part that was found.
    configurations
        (K, C) what runs.
    weight
        (K,) fraction of rounds; they sum to 1.
    largest
        Whether no larger part is a mixture (proven by prices, up to 1e-9), or the search stopped at its limit.
    """

    part: float
    configurations: Booleans
    weight: Floats
    largest: bool


def mixture(pool: Pool, share: Floats) -> Mixture:
    """The largest part of (C,) fractions that is a mixture of configurations."""
    alone = np.eye(len(share), dtype=bool)
    nothing = np.zeros((1, len(share)), bool)
    found = [*alone, *nothing, *_taken_away(pool, share)]
    known = {one.tobytes() for one in found}
    largest = False
    centre: Floats | None = None
    for _ in range(20 * len(share) + 100):
        part, weight, price, rent = _mixed(np.array(found), share)
        if part >= 1 - _NOTHING:
            largest = True
            break
        centre = price if centre is None else 0.7 * centre + 0.3 * price
        wanted = pool.heaviest(centre)  # prices jump about; their mean leads sooner to good configurations
        if price[wanted].sum() <= rent + _NOTHING or wanted.tobytes() in known:
            wanted = pool.heaviest(price)
        if price[wanted].sum() <= rent + _NOTHING or wanted.tobytes() in known:
            largest = True
            break
        found.append(wanted)
        known.add(wanted.tobytes())
    used = weight > 1e-12
    return Mixture(part, np.array(found)[used], weight[used] / weight[used].sum(), largest)


def _taken_away(pool: Pool, share: Floats) -> list[Booleans]:
    """Configurations that cover all that is tight, taken away one after the other for as long as the rest allows."""
    rest, left, found = share.copy(), 1.0, []
    for _ in range(2 * (len(share) + pool.jobs + len(pool.count))):
        time, held = pool.time(rest), pool.held(rest)
        due = (time >= left - _NOTHING).astype(float)
        full = held >= left * pool.count - _NOTHING
        pair = pool.second >= 0
        weight = due[pool.first] + np.where(pair, due[pool.second], 0.0) + pool.scale * full[pool.gpu]
        taken = pool.heaviest(np.where(rest > _NOTHING, weight + 1e-3 * rest, 0.0))
        if not taken.any():
            break
        runs, lent = pool.time(taken.astype(float)) > 0, pool.held(taken.astype(float))
        spare = (left * pool.count - held)[lent < pool.count] / (pool.count - lent)[lent < pool.count]
        step = min(rest[taken].min(), left, (left - time[~runs]).min(initial=1.0), spare.min(initial=1.0))
        if step <= _NOTHING:
            break
        found.append(taken)
        rest[taken] -= step
        left -= step
    return found


def _mixed(found: Booleans, share: Floats) -> tuple[float, Floats, Floats, float]:
    """The largest part that is a mixture of these: part, (K,) weights, (C,) prices of running, price of a round."""
    program = LinearProgram("mixture")
    weight = program.variables("weight", len(found))
    part = program.variables("part", 1, upper=1.0)
    which, column = np.nonzero(found)
    program.constrain("kept", weight[which].sum_by(column, len(share)) - part.repeated(len(share)) * share, "==", 0.0)
    program.constrain("whole", weight.sum(), "==", 1.0)
    program.maximize(part.sum())
    values, duals = _solved(program)
    rows = program.split_rows(duals)
    sign = 1.0 if rows["whole"][0] >= 0 else -1.0  # one more round lets more be kept
    return float(values[-1]), values[:-1], -sign * rows["kept"], abs(float(rows["whole"][0]))


def _solved(program: LinearProgram) -> tuple[Floats, Floats]:
    """Values and duals (none of an integer program)."""
    outcome = solve(program, "highs", SolveOptions(threads=1))
    if outcome.status is not Status.OPTIMAL or outcome.values is None:
        raise EngineError(f"{program.name}: the solver ended as {outcome.status}; please report this")
    return outcome.values, np.zeros(0) if outcome.duals is None else outcome.duals
