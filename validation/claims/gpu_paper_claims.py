"""Claims of the GPU-assignment paper: the size of its graph, its inputs, and what fairness costs in figure 1."""

from __future__ import annotations

import numpy as np

from flowlex.instances.generators.gpu import paper_jobs
from flowlex.instances.generators.registry import generate
from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu.baselines import greedy
from flowlex.models.gpu.model import GpuAssignment, Policy
from flowlex.models.gpu.round_eligibility import base_shares
from flowlex.models.gpu.transfer_costs import Penalties, TransferCosts
from flowlex.validation.claims.claim_interface import Claim, Finding, Outcome

SOURCE = "Tang et al. 2022"


def paper_sizes(gpus: int, tasks: list[int]) -> tuple[int, int]:
    """The paper's |V| and |E| for m GPUs and k_j tasks of job j, all of which fit everywhere."""
    return 2 + len(tasks) + sum(k + 1 for k in tasks) + gpus, 3 * len(tasks) + gpus + (gpus + 1) * sum(tasks)


def _gpu(name: str, seed: int = 0) -> GpuInstance:
    instance = generate(name, seed=seed)
    assert isinstance(instance, GpuInstance)
    return instance


def _graph() -> Finding:
    instance = _gpu("gpu-figure4")
    view = instance.arrays
    tasks = np.bincount(view.task_job, minlength=len(view.job_names)).tolist()
    stated = paper_sizes(len(view.gpu_node), tasks)
    program = GpuAssignment(instance, network="published").problem  # S and E have no row
    ours = program.row_count + 2, program.column_count
    data = {"formula": list(stated), "counted": [23, 78], "built": list(ours)}
    words = f"figure 4: formulas give |V| = {stated[0]}, |E| = {stated[1]} (counted in the figure: 23, 78)"
    built = f"{words}; the network stated here has {ours[0]} vertices and {ours[1]} arcs"
    return Finding(Outcome.HOLDS if stated == ours == (23, 78) else Outcome.FAILS, built, data)


def _inputs() -> Finding:
    total = sum(job.input_mb for job in paper_jobs()[:36]) / 1e6
    outcome = Outcome.HOLDS if abs(total / 1.3 - 1) <= 0.05 else Outcome.FAILS
    return Finding(outcome, f"the inputs of J1-J36, rebuilt from the table, sum to {total:.3f} TB", {"tb": total})


def _figure_1() -> Finding:
    instance = _gpu("gpu-figure1")
    answers = {policy: GpuAssignment(instance, policy=policy).solve("network") for policy in (Policy.FSP, Policy.FSU)}
    jobs = {policy: answer.placement.running_by_job.tolist() for policy, answer in answers.items()}
    cost = {policy: float(answer.placement.metrics()["transfer_s"]) for policy, answer in answers.items()}
    fair, free = Policy.FSP, Policy.FSU
    words = (
        f"fair: tasks by job {jobs[fair]}, {cost[fair]:.6g} s of transfer; "
        f"without fairness the least is {cost[free]:.6g} s"
    )
    holds = jobs[fair] == [1, 1] and cost[fair] == cost[free]
    return Finding(Outcome.HOLDS if holds else Outcome.FAILS, words, {"fair": jobs[fair], "seconds": cost[fair]})


def _greedy(samples: int = 60) -> Finding:
    """Search random clusters for jobs that the greedy leaves below min(floor(Q/K), N_j) though the flow does not."""
    below: list[int] = []
    for seed in range(samples):
        instance = _gpu("gpu-random", seed=seed)
        view, costs = instance.arrays, TransferCosts.of(instance, Penalties())
        share = base_shares(view)
        placed = greedy(view, costs)
        of_greedy = np.bincount(view.task_job[placed >= 0], minlength=len(share))
        best = GpuAssignment(instance, policy=Policy.FSP).solve("network").placement.running_by_job
        if np.any(of_greedy < share) and np.all(np.asarray(best) >= share):
            below.append(seed)
    words = f"{len(below)} of {samples} random clusters (seeds {below[:5]}...)" if below else f"none of {samples}"
    text = f"greedy offers leave a job below its base share where the flow gives every job its own: {words}"
    return Finding(Outcome.HOLDS if below else Outcome.NOT_REPRODUCIBLE, text, {"seeds": below})


GRAPH = Claim(
    "gpu-graph-size",
    "With m GPUs and k_j tasks |V| = 2 + |J| + sum(k_j + 1) + m and |E| = 3 |J| + m + (m + 1) sum k_j; so figure 4 "
    "has 23 vertices and 78 edges (our count).",
    SOURCE,
    _graph,
)
INPUTS = Claim("gpu-inputs", "The inputs of all jobs sum to 1.3 TB.", SOURCE, _inputs)
FIGURE_1 = Claim(
    "gpu-figure-1", "In figure 1 the fair assignment moves no more data than the unfair one.", SOURCE, _figure_1
)
GREEDY = Claim(
    "gpu-greedy-unfair",
    "Greedy offers (GS) can leave a job below its fair share where the minimum-cost flow does not.",
    SOURCE,
    _greedy,
)
