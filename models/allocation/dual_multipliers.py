"""Dual values of solved programs as multipliers of rows, for `flowlex.validation.restated.allocation_program`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flowlex.formulations.program_arrays import Floats
from flowlex.models.allocation.methods.pair_pricing import PairPrices
from flowlex.models.allocation.policies import Goal, Step
from flowlex.models.allocation.policy_linear_programs import TOTALS, PolicyProgram

#: By how much prices are raised, so that what earns as much as it pays is left out whatever rounding does.
_MARGIN = 1e-13
_SIGNS = {"time": -1, "gpus": -1, "most": -1, "least": 1, "deadline": 1}


class Multipliers:
    """Leaves for the programs of a policy."""

    def __init__(self, policy: PolicyProgram) -> None:
        instance = policy.instance
        self._policy, self._pairs = policy, PairPrices(instance, sharing=policy.sharing)
        jobs, limits = [job.name for job in instance.jobs], list(map(str, range(len(instance.limits))))
        types = [t.name for t in instance.gpu_types]
        self._labels = {"time": jobs, "gpus": types, "most": limits, "least": limits, "deadline": jobs, "level": jobs}

    def empty(self, step: Step) -> dict[str, Any]:
        """Deadlines and floors that exceed what can be."""
        rows, _, _ = self._rows(step.prices, Goal())
        return {"format": 3, "empty": [{"own": 0, "rows": rows}]}

    def first(self, step: Step) -> dict[str, Any]:
        """The objective of the first program, or of the only one."""
        policy = self._policy
        rows, level, _ = self._rows(step.prices, policy.goal)
        if policy.policy in TOTALS:
            return self._stages({"objective": [{"rows": rows}]})
        leaf = self._raised(level, policy.pace(np.zeros(len(level), bool)))
        return self._stages({"objective": [{**leaf, "rows": rows | leaf["rows"]}]})

    def filled(self, steps: Sequence[Step]) -> dict[str, Any]:
        """Each step's rise, and that the jobs which it fills can gain no more."""
        policy = self._policy
        shared: dict[str, Any] = {}
        stages: dict[str, Any] = {}
        full = np.zeros(len(policy.instance.jobs), bool)
        for k, step in enumerate(steps, 1):
            pace, found = policy.pace(full), step.full & ~full
            rows, level, _ = self._rows(step.prices, Goal(policy.unit, pace=pace))
            shared[f"step {k}"] = rows
            least = float(level[found].min())
            rest = level - np.where(found, least, 0.0)
            stages[f"rise_{k}"] = [{"shared": f"step {k}", **self._raised(level, pace)}]
            stages[f"full_{k}"] = [{"shared": f"step {k}", "own": least, "rows": self._of("level", rest)}]
            full = full | found
        return {**self._stages(stages), "shared": shared}

    def ratio(self, steps: Sequence[Step], bound: float) -> dict[str, Any]:
        """No allocation gives every job what it needs for a ratio below the bound."""
        times, n = self._policy.times, len(self._policy.instance.jobs)
        needed = times.needed(bound * (1 - 1e-9))
        first = np.zeros(n)
        first[int(times.ratio(self._policy.best).argmax())] = 1.0
        best: tuple[float, Any, Floats] | None = None
        for prices in (*(step.prices for step in steps), {"level": first}):
            goal = Goal(np.ones(n), pace=np.minimum(needed, 1e300))
            rows, level, every = self._rows(prices, goal)
            most, _ = self._pairs.bound(every, goal)
            if best is None or most < best[0]:
                best = most, rows, np.where(level > 0, level * needed, 0.0)
        assert best is not None
        if not np.isfinite(best[2]).all():  # a job that cannot be in time, whatever it gets
            best = best[0], {}, np.where(np.isfinite(needed), 0.0, 1.0)
        leaf = self._raised(best[2], np.ones(n))
        return self._stages({"objective": [{**leaf, "rows": best[1] | leaf["rows"]}]})

    @staticmethod
    def _stages(stages: Mapping[str, Any]) -> dict[str, Any]:
        return {"format": 3, "stages": dict(stages)}

    def _rows(self, prices: Mapping[str, Floats], goal: Goal) -> tuple[dict[str, Any], Floats, dict[str, Floats]]:
        """Multipliers of all rows but levels, those of time as high as all pairs need; and those of levels."""
        every = self._pairs.all_rows({"gpus": np.zeros(len(self._labels["gpus"])), **prices})
        every["time"] = self._pairs.bound(every, goal)[1]
        rows: dict[str, Any] = {}
        for name, sign in _SIGNS.items():
            factor = {"least": 1 - _MARGIN, "deadline": 1.0}.get(name, 1 + _MARGIN)
            rows |= self._of(name, sign * factor * every[name])
        return rows, every["level"], every

    def _of(self, name: str, values: Floats) -> dict[str, Any]:
        labels = self._labels[name]
        at = {labels[k]: float(values[k]) for k in np.flatnonzero(values).tolist()}
        return {name: {"at": at}} if at else {}

    def _raised(self, level: Floats, pace: Floats) -> dict[str, Any]:
        """A leaf of a rise with these multipliers of levels."""
        return {"own": float(level @ pace) * (1 - 1e-15), "rows": self._of("level", level)}
