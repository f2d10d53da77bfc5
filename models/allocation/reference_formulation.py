"""Allocation as a linear program: time shares, named constraints and one objective.

``share[job,partner,gpu_type]`` is the fraction of time that a job runs on a type, alone (partner is empty) or with a
partner (in a pair, ``job`` is the earlier in the instance). ``runs[job,gpu_type]`` is the total fraction of time that a
job runs on a type, alone or in pairs. ``rise`` is the common rise of all jobs, if the policy compares jobs.
"""

from __future__ import annotations

import numpy as np

from flowlex.formulations.block_labels import block_labels
from flowlex.instances.allocation import AllocationInstance
from flowlex.models.allocation.allocation_linear_program import Columns
from flowlex.models.allocation.policy_linear_programs import TOTALS, PolicyProgram
from flowlex.models.solution import ModelError
from flowlex.models.statement.rows_and_objectives import Stage, Statement
from flowlex.models.statement.variable_labels import Index

#: Largest number of columns of the statement.
LARGEST = 300_000
#: Policies with a single linear program.
_STATED = ("max_min", "makespan", *TOTALS)
_NEEDED = {
    "time": "a job would run more than all the time",
    "gpus": "GPUs would be lent twice",
    "runs": "`runs` would say nothing",
}


def state(policy: PolicyProgram) -> Statement:
    """Build the statement of a policy.

    Raises `ModelError` if the policy is a sequence of programs, each dependent on the previous one, or if there are
    too many pairs.
    """
    if policy.policy not in _STATED:
        raise ModelError(
            f"policy {policy.policy!r} takes no changes, as each of its programs follows from the one before; "
            f"policies that take changes: {', '.join(_STATED)}"
        )
    instance = policy.instance
    base = policy.base()
    columns = base.columns
    if columns.count > LARGEST:
        raise ModelError(f"the statement has {columns.count} shares, more than {LARGEST}; use sharing=False")
    s = Statement.start(instance.name, policy.rows, _NEEDED)
    s.variables("share", _labels(instance, columns), upper=1.0)
    stated = base.program.constraint_blocks
    for name, block in stated.items():  # same columns, same order
        level = {"gpus": "gpu_type", "most": "limit", "least": "limit"}.get(name, "job")
        index = Index.of(**{level: block_labels(block.count, block.labels)})
        s.constrain(name, block.expression, block.relation, block.rhs, index)
    _runs(s, instance, columns)
    if policy.policy == "max_throughput":
        return s.with_stages(Stage("objective", base.throughput.sum(), maximize=True))
    if policy.policy == "min_cost":
        return s.with_stages(Stage("objective", policy.cost(base)))
    pace = policy.pace(np.zeros(len(instance.jobs), bool))
    highest = np.ones(len(pace)) if policy.unit is None else policy.best * policy.unit
    above_all = 2 * float((highest / pace).max())  # never binding
    rise = s.variables("rise", Index({}, {}, 1), upper=above_all)
    jobs = Index.of(job=[job.name for job in instance.jobs])
    s.constrain("level", policy.gain(base) - rise.repeated(len(pace)) * pace, ">=", 0.0, jobs)
    return s.with_stages(Stage("objective", rise.sum(), maximize=True))


def _labels(instance: AllocationInstance, columns: Columns) -> Index:
    jobs = tuple(job.name for job in instance.jobs)
    pair = columns.paired
    first = np.where(pair, np.minimum(columns.first, columns.second), columns.first)
    second = np.where(pair, np.maximum(columns.first, columns.second), -1)
    entities = ("", *(entity.name for entity in instance.entities))
    return Index.coded(
        job=(jobs, first),
        partner=(("", *jobs), second + 1),
        gpu_type=(tuple(t.name for t in instance.gpu_types), columns.gpu),
        entity=(entities, instance.arrays.entity[first] + 1),
    ).named_by("job", "partner", "gpu_type")


def _runs(s: Statement, instance: AllocationInstance, columns: Columns) -> None:
    """Add the variables ``runs`` and link them to the shares of a job on a type."""
    types, pair = len(instance.gpu_types), columns.paired
    alone, beside = columns.first * types + columns.gpu, columns.second[pair] * types + columns.gpu[pair]
    used = np.unique(np.concatenate([alone, beside]))
    job, gpu = used // types, used % types
    entities = ("", *(entity.name for entity in instance.entities))
    index = Index.coded(
        job=(tuple(job.name for job in instance.jobs), job),
        gpu_type=(tuple(t.name for t in instance.gpu_types), gpu),
        entity=(entities, instance.arrays.entity[job] + 1),
    ).named_by("job", "gpu_type")
    runs = s.variables("runs", index, upper=1.0)
    share = s.program.variable("share")
    shares = share.sum_by(np.searchsorted(used, alone), len(used))
    shares = shares + share[pair].sum_by(np.searchsorted(used, beside), len(used))
    s.constrain("runs", shares - runs, "==", 0.0, index)
