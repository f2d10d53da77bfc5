"""Allocations by independent methods, in a separate process that reads only the JSON of instances.

Reads a list of ``{"instance": ..., "policy": ..., "aware": ...}``, writes the list of optima. Policies are stated as
Gavel states them, convex programs for Clarabel through cvxpy (makespan and finish-time fairness as maxima of
``n / thr``); water filling is bisection with scipy, with one program per job to test whether it can rise.
"""

import json
import sys

import numpy as np
from scipy.optimize import linprog


class Problem:
    def __init__(self, document):
        self.doc = document
        kinds = {kind["name"]: kind for kind in document["job_types"]}
        self.jobs = document["jobs"]
        self.kind = [kinds[job["job_type"]] for job in self.jobs]
        self.types = document["gpu_types"]
        count = {t["name"]: t["count"] for t in self.types}
        self.columns = []  # members, type, speeds
        for m, kind in enumerate(self.kind):
            for name, speed in kind["steps_per_s"].items():
                if speed > 0 and kind["gpus"] <= count[name]:
                    self.columns.append(((m,), name, (speed,)))
        for pair in document["pairs"]:
            for m, one in enumerate(self.kind):
                for k, other in enumerate(self.kind):
                    fits = one["gpus"] <= count[pair["gpu_type"]]
                    names = tuple(pair["job_types"])
                    if m == k or (names[0] == names[1] and m > k) or not fits:
                        continue
                    if (one["name"], other["name"]) == names:
                        self.columns.append(((m, k), pair["gpu_type"], tuple(pair["steps_per_s"])))
        n, c = len(self.jobs), len(self.columns)
        self.speed, self.time = np.zeros((n, c)), np.zeros((n, c))
        self.scale = np.array([self.kind[members[0]]["gpus"] for members, _, _ in self.columns])
        self.on = np.array([[t["name"] == name for _, name, _ in self.columns] for t in self.types]) * self.scale
        for k, (members, _, speeds) in enumerate(self.columns):
            for m, speed in zip(members, speeds, strict=True):
                self.speed[m, k], self.time[m, k] = speed, 1
        self.count = np.array([t["count"] for t in self.types])
        self.limits = [(self.against(limit), limit) for limit in document["limits"]]
        fits = [[t["count"] >= kind["gpus"] for t in self.types] for kind in self.kind]
        table = np.array([[kind["steps_per_s"].get(t["name"], 0.0) for t in self.types] for kind in self.kind]) * fits
        self.table = table
        self.equal = (table * self.count).sum(axis=1) / self.count.sum()
        self.gpus = np.array([kind["gpus"] for kind in self.kind])
        self.weight = np.array([job["weight"] for job in self.jobs])
        self.steps = np.array([job["steps_left"] or np.nan for job in self.jobs], float)

    def against(self, limit):
        row = np.zeros(len(self.columns))
        for k, (members, name, _) in enumerate(self.columns):
            owners = [self.jobs[m] for m in members]
            meant = any(
                (limit["job"] in (None, job["name"])) and (limit["entity"] in (None, job["entity"])) for job in owners
            )
            row[k] = self.scale[k] * (meant and limit["gpu_type"] in (None, name))
        return row

    def rows(self, deadlines):
        """Rows ``A x <= b``."""
        rows, rhs = [*self.time, *self.on], [*np.ones(len(self.jobs)), *self.count]
        for row, limit in self.limits:
            rows.append(-row)
            rhs.append(-limit["least_gpus"])
            if limit["most_gpus"] is not None:
                rows.append(row)
                rhs.append(limit["most_gpus"])
        for m, job in enumerate(self.jobs):
            if deadlines and job["deadline_s"] is not None:
                rows.append(-self.speed[m])
                rhs.append(-job["steps_left"] / job["deadline_s"])
        return np.array(rows), np.array(rhs)

    def solve(self, policy, aware):
        import cvxpy as cp

        deadlines = policy in ("max_throughput", "min_cost")
        a, b = self.rows(deadlines)
        x = cp.Variable(len(self.columns), nonneg=True)
        thr = self.speed @ x
        gain = (thr / self.equal) if aware else self.time @ x
        if policy == "max_min":
            goal = cp.Maximize(cp.min(cp.multiply(gain, self.gpus / self.weight)))
        elif policy == "makespan":
            goal = cp.Minimize(cp.max(cp.multiply(self.steps, cp.inv_pos(thr))))
        elif policy == "finish_time":
            share = np.where(self.table > 0, self.count / len(self.jobs) / self.gpus[:, None], 0)
            share = share / np.maximum(share.sum(axis=1), 1)[:, None]
            alone = np.array([job["isolated_s"] for job in self.jobs])
            alone = alone + self.steps / (share * self.table).sum(axis=1)
            run = np.array([job["running_s"] for job in self.jobs])
            goal = cp.Minimize(cp.max((run + cp.multiply(self.steps, cp.inv_pos(thr))) / alone))
        elif policy == "max_throughput":
            goal = cp.Maximize(cp.sum(thr))
        else:
            prices = np.array([t["usd_per_hour"] for t in self.types])
            goal = cp.Minimize((prices @ self.on) @ x)
        program = cp.Problem(goal, [a @ x <= b])
        program.solve(solver=cp.CLARABEL)
        if program.status not in ("optimal", "optimal_inaccurate"):
            return program.status
        return float(program.value)

    def fill(self, aware):
        """Return levels of water filling: bisect the common level, then test each job alone whether it can rise."""
        a, b = self.rows(False)
        gain = (self.speed / self.equal[:, None] if aware else self.time) * (self.gpus / self.weight)[:, None]
        n = len(self.jobs)
        level, fixed = np.zeros(n), np.zeros(n, bool)

        def possible(want, m=None):
            rows, rhs = np.vstack([a, -gain]), np.concatenate([b, 1e-7 * (1 + want) - want])
            goal = np.zeros(gain.shape[1]) if m is None else -gain[m]
            for method in ("highs-ds", "highs-ipm"):
                answer = linprog(goal, A_ub=rows, b_ub=rhs, method=method)
                if answer.status in (0, 2):  # solved, or infeasible
                    break
            if m is None:
                return answer.status == 0
            return -answer.fun if answer.status == 0 else level[m] + 1.0

        if not possible(level):
            return "infeasible"
        while not fixed.all():
            low, high = level[~fixed].max(), 100.0
            while high - low > 1e-7 * (1 + low):
                middle = (low + high) / 2
                low, high = (middle, high) if possible(np.where(fixed, level, middle)) else (low, middle)
            level[~fixed] = low
            can = np.array([possible(level, m) for m in range(n)])
            room = np.where(fixed, np.inf, can - level)
            fixed |= room <= 3e-5 * (1 + level)
            fixed[room.argmin()] = True  # the job with the least slack is full, so the loop ends
        return level.tolist()


def answer(case):
    problem = Problem(case["instance"])
    if case["policy"] == "water_filling":
        return problem.fill(case.get("aware", True))
    return problem.solve(case["policy"], case.get("aware", True))


if __name__ == "__main__":
    print(json.dumps([answer(case) for case in json.load(sys.stdin)]))
