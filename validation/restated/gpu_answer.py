"""Verify solution files of GPU assignment: the problem restated from the instance, and the one proof of its objectives.

`flowlex.validation.restated.gpu_program` states the problem. Here are what the answer means in its columns, and the
figures and tables beside it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.instances.exact_rationals import rational
from flowlex.instances.model_changes import Changes
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.exact_numbers import agrees
from flowlex.validation.certificates.verifier_interface import (
    Claimed,
    Completion,
    Document,
    Finding,
    Strict,
    Verifier,
    same_values,
)
from flowlex.validation.proofs.changed_program import changed_program
from flowlex.validation.proofs.exact_program import Exact, ExactProgram, Positions, common_unit, labelled, scaled
from flowlex.validation.proofs.proof import Leaf, Proof, ProofError
from flowlex.validation.restated.gpu import GpuColumns
from flowlex.validation.restated.gpu_program import GpuOptions, GpuRound, GpuSelections
from flowlex.validation.restated.program_finding import program_finding

__all__ = ["VERIFIER"]

_LEVELS = ("node", "rack", "between")
#: Pairs of tasks and GPUs up to which all columns are written out.
_WRITTEN_OUT = 20_000


class GpuAnswer(Strict):
    """GPU of each running task, reason of every other task, the table of jobs, and the unit of costs."""

    placements: dict[str, str]
    preempted: dict[str, str]
    waiting: dict[str, str]
    jobs: list[dict[str, Any]]
    cost_unit_s: str


class Cluster:
    """The numbers of what the instance names, and (T,) the GPU of each task in the answer, -1 without one."""

    def __init__(self, view: GpuColumns, placements: dict[str, str]) -> None:
        self.view, self.own, self.names = view, view.task_running_gpu, view.task_names
        self.gpu, self.task, self.job = (
            {name: k for k, name in enumerate(names)} for names in (view.gpu_names, view.task_names, view.job_names)
        )
        self.at: NDArray[np.int64] = np.full(len(self.task), -1)
        self.strange = [f"{t} on {g}" for t, g in placements.items() if t not in self.task or g not in self.gpu]
        if not self.strange:
            self.at[[self.task[t] for t in placements]] = [self.gpu[g] for g in placements.values()]

    def counts(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(self.view.task_job[chosen], minlength=len(self.job))


def _judge(claimed: Claimed) -> Finding:
    document, round_ = claimed.document, GpuRound.of(claimed.instance, claimed.document.options)
    cluster = Cluster(round_.view, claimed.answer.placements)
    if cluster.strange:
        return Finding("feasible", (Check.none("tasks and GPUs of this instance", cluster.strange),))
    runs = np.flatnonzero(cluster.at >= 0)
    pairs, whole = (runs, cluster.at[runs]), _written_out(round_)
    odd = [cluster.names[t] for t in runs[~round_.may(*pairs)].tolist()]
    checks, metrics = _figures(round_, cluster, claimed.answer)
    checks = Check.none("every task may run on its GPU", odd), *checks
    if odd:
        return Finding("feasible", checks)
    pairs = round_.all_pairs() if whole else round_.pairs_at([*_gpu_prices(document.proof, cluster)], pairs)
    program = round_.program(*pairs)
    found = program_finding(
        program,
        _values(program, round_, pairs, cluster.at),
        document.proof,
        document.status,
        claimed.budget,
        main="transfer",
        metrics=metrics,
        complete=None if whole else partial(_over_all_pairs, program, round_.held[pairs[0]]),
    )
    stages = {name: value for name, value in found.stages.items() if name in ("transfer", "stops", "waiting")}
    return replace(found, checks=(*checks, *found.checks), stages=stages if len(stages) > 1 else {})


def _figures(round_: GpuRound, cluster: Cluster, answer: GpuAnswer) -> tuple[tuple[Check, ...], dict[str, Any]]:
    """Whether names, tables and unit are those of the answer; its metrics."""
    costs, unit = round_.costs, rational(answer.cost_unit_s)
    read = costs.levels((cluster.at >= 0) & ~round_.held, round_.view.gpu_node[cluster.at])
    whole = unit > 0 and (costs.unit_s / unit).denominator == 1
    checks = (
        *_named(cluster, answer),
        *_tables(cluster, answer, costs.by_task(read)),
        _fair_shares(round_, answer),
        Check("all costs are whole multiples of the unit", whole, detail=answer.cost_unit_s),
    )
    return checks, _metrics(cluster, costs.read_mb(read), costs.seconds(read))


def _written_out(round_: GpuRound) -> bool:
    """Whether all columns are written out: of small rounds, and of those whose rows are others than of networks."""
    return round_.options.published or not round_.options.policy.network or round_.pair_count <= _WRITTEN_OUT


def _gpu_prices(document: Mapping[str, Any], cluster: Cluster) -> Iterator[NDArray[Any]]:
    """(G,) each set of multipliers of ``gpu_out`` that leaves use; without order among equals."""
    none: NDArray[Any] = np.zeros(len(cluster.gpu), np.int64)
    yield none

    def prices(rows: Mapping[str, Any]) -> NDArray[Any]:
        given = rows.get("gpu_out", {})
        values = _whole_or_exact([given.get("default", 0), *given.get("at", {}).values()])
        price = np.full(len(cluster.gpu), values[0], values.dtype)
        price[[cluster.gpu[name] for name in given.get("at", {})]] = values[1:]
        return -price

    known = {name: prices(rows) for name, rows in document.get("shared", {}).items()}
    yield from known.values()
    stages = [leaves for leaves in document.get("stages", {}).values() if not isinstance(leaves, str)]
    derived = [row["cases"] for row in document.get("derived", [])]
    for leaf in chain.from_iterable([*stages, *derived, document.get("empty", [])]):
        if "gpu_out" in leaf.get("rows", {}):
            yield prices(leaf["rows"]) + known.get(leaf.get("shared", ""), none)


def _whole_or_exact(values: list[Any]) -> NDArray[Any]:
    """Numbers of a document as 64-bit integers if they are, else as fractions."""
    if all(type(v) is int and abs(v) < 2**62 for v in values):
        return np.array(values, np.int64)
    return np.array([rational(v) for v in values], object)


def _over_all_pairs(program: ExactProgram, running: NDArray[np.bool_], proof: Proof) -> Proof:
    """The proof, if it holds for the columns that are not written out too.

    These are of waiting tasks, and no cheaper than others of their task at the prices of GPUs of any leaf. So branches,
    derived and completed rows are about running tasks (``running``, of the first columns), but for those of ``task``,
    which are completed.
    """

    def about_running(columns: Positions) -> None:
        waits = columns[columns < len(running)]
        if len(waits := waits[~running[waits]]):
            name = labelled(*program.column_text(int(waits[0])))
            raise ProofError(f"in a round of many pairs, {name}, which waits, has no branches or completed rows"[:160])

    def all_of(leaves: tuple[Leaf, ...]) -> tuple[Leaf, ...]:
        for leaf in leaves:
            completed = (program.rows[name].column for name in leaf.complete if name != "task")
            for columns in (*(branch.column for branch in leaf.branches), *completed):
                about_running(columns)
        return tuple(
            leaf if "task" in leaf.complete else replace(leaf, complete=(*leaf.complete, "task")) for leaf in leaves
        )

    for row in proof.derived:
        about_running(row.column)
    once = {
        id(leaves): all_of(leaves) for leaves in proof.stages.values()
    }  # stages with the same leaves are judged once
    return replace(
        proof,
        stages={name: once[id(leaves)] for name, leaves in proof.stages.items()},
        derived=tuple(replace(row, cases=all_of(row.cases)) for row in proof.derived),
        empty=all_of(proof.empty),
    )


def _restricted(instance: Any, document: Document, changes: Changes) -> tuple[ExactProgram, Completion] | None:
    """A changed round of many pairs over the columns that can be the cheapest; None: all are written out.

    GPUs that the changes treat alike for a task differ in price and transfer only.
    """
    round_ = GpuRound.of(instance, document.options)
    if _written_out(round_):
        return None
    cluster = Cluster(round_.view, {})
    named = [name for name in csv.reader((document.values or {}).get("x", {})) if len(name) == 2]
    known = [(cluster.task[t], cluster.gpu[g]) for t, g in named if t in cluster.task and g in cluster.gpu]
    chosen = np.array(known, np.int64).reshape(-1, 2).T
    told = GpuSelections(instance, round_, changes)
    also = np.append(chosen[:, round_.may(*chosen)], told.bounded, axis=1)
    pairs = round_.pairs_at([*_gpu_prices(document.proof, cluster)], (also[0], also[1]), told.apart)
    program = changed_program(round_.program(*pairs), changes, VERIFIER.needed)
    transfer = next(each for each in program.objectives if each.name == "transfer")
    unit = common_unit([transfer.unit, round_.costs.unit_s])  # of columns that are left out too
    finer = int(transfer.unit / unit)
    fine = replace(transfer, value=scaled(transfer.value, finer), constant=transfer.constant * finer, unit=unit, step=1)
    objectives = [fine if each is transfer else each for each in program.objectives]
    # Columns that are 0 do not count where multipliers of ``task`` are completed.
    low, high, once = program.lower.at.numbers, program.upper.at.numbers, program.rows["task"]
    open_ = ((low != 0) | (high != 0))[once.column]
    once = replace(once, row=once.row[open_], column=once.column[open_], value=once.value[open_])
    changed = replace(program, objectives=objectives, rows={**program.rows, "task": once})
    return changed, partial(_over_all_pairs, changed, round_.held[pairs[0]])


def _values(program: ExactProgram, round_: GpuRound, pairs: Any, at: NDArray[np.int64]) -> Exact:
    """Values of all columns: pairs, and steps or odd tasks of jobs."""
    x, counts = np.zeros(program.count, np.int64), round_.counts(at >= 0)
    x[: len(pairs[0])] = at[pairs[0]] == pairs[1]
    for block in program.columns[1:]:
        more = slice(block.start, block.start + block.count)
        if block.name == "share_step":
            most = np.minimum(round_.counts(at >= -1), len(round_.view.gpu_names))
            first = np.repeat(np.cumsum(most) - most, most)
            x[more] = np.arange(block.count) - first < np.repeat(counts, most)
        else:
            level, group = round_.limits
            x[more] = [counts[j] > level[j] for j, g in enumerate(group) if g >= 0]
    return Exact(x)


def _named(cluster: Cluster, answer: GpuAnswer) -> Iterator[Check]:
    """The tasks that stop and that wait are those named."""
    off, held = cluster.at < 0, cluster.own >= 0
    for state, chosen, said in (("stopped", off & held, answer.preempted), ("waiting", off & ~held, answer.waiting)):
        true = {cluster.names[t] for t in np.flatnonzero(chosen).tolist()}
        yield Check.none(f"{state} tasks are those named", sorted(true ^ set(said)))


def _tables(cluster: Cluster, answer: GpuAnswer, seconds: NDArray[np.float64]) -> Iterator[Check]:
    at, own = cluster.at, cluster.own
    true = {
        "tasks": cluster.counts(at >= -1),
        "running": cluster.counts(at >= 0),
        "started": cluster.counts((at >= 0) & (own < 0)),
        "preempted": cluster.counts((at < 0) & (own >= 0)),
        "waiting": cluster.counts((at < 0) & (own < 0)),
        "transfer_s": np.bincount(cluster.view.task_job, weights=seconds, minlength=len(cluster.job)),
    }
    wrong = [str(row.get("job")) for row in answer.jobs if row.get("job") not in cluster.job]
    wrong += list(cluster.job.keys() - {row.get("job") for row in answer.jobs})
    wrong += ["a job twice"] if len(answer.jobs) > len(cluster.job) else []
    wrong += [f"columns of {row['job']}" for row in answer.jobs if row.keys() != {"job", "fair_share", *true}]
    columns = {name: values.tolist() for name, values in true.items()}
    for row in answer.jobs if not wrong else ():
        j = cluster.job[row["job"]]
        for name, values in columns.items():
            if row[name] != values[j] and abs(row[name] - values[j]) > 1e-9 * (1 + abs(values[j])):
                wrong.append(f"{name} of {row['job']} is {values[j]:g} (stated {row[name]})")
    yield Check.none("the table of jobs", wrong)


def _fair_shares(round_: GpuRound, answer: GpuAnswer) -> Check:
    """The table states the fair share of each job, and none without fairness."""
    name, jobs = "fair shares of the table", round_.view.job_names
    stated: dict[str, Any] = {str(row.get("job")): row.get("fair_share") for row in answer.jobs}
    if not round_.options.policy.fair:
        return Check.none("no job has a fair share", [job for job, share in stated.items() if share is not None])
    if strange := [job for job in jobs if not isinstance(stated.get(job), (int, float, str))]:
        return Check.none(name, strange)
    return Check.none(name, [job for job, x in zip(jobs, round_.levels, strict=True) if not agrees(stated[job], x)])


def _metrics(cluster: Cluster, megabytes: list[Fraction], transfer: Fraction) -> dict[str, Any]:
    at, own = cluster.at, cluster.own
    total, running = sum(megabytes), int(np.count_nonzero(at >= 0))
    count = cluster.counts(at >= 0)
    square = int((count**2).sum())
    return {
        "running": running,
        "started": int(np.count_nonzero((at >= 0) & (own < 0))),
        "preempted": int(np.count_nonzero((at < 0) & (own >= 0))),
        "waiting": int(np.count_nonzero((at < 0) & (own < 0))),
        "idle_gpus": len(cluster.gpu) - running,
        "transfer_s": transfer,
        **{f"{name}_gb": amount / 1000 for name, amount in zip(_LEVELS, megabytes, strict=True)},
        **{
            f"{name}_percent": 100 * amount / total if total else 0
            for name, amount in zip(_LEVELS, megabytes, strict=True)
        },
        "jain_index": Fraction(int(count.sum()) ** 2, len(count) * square) if square else 1,
    }


def _changed_figures(claimed: Claimed, values: Mapping[str, Mapping[str, Any]]) -> Finding:
    """The answer of a changed model: places are those of the values, and tables and figures follow from them."""
    round_ = GpuRound.of(claimed.instance, claimed.document.options)
    placements = claimed.answer.placements
    cluster = Cluster(round_.view, placements)
    if cluster.strange:
        return Finding("feasible", (Check.none("tasks and GPUs of this instance", cluster.strange),))
    checks, metrics = _figures(round_, cluster, claimed.answer)
    told = {"x": {label_text(pair): 1 for pair in placements.items()}}
    return Finding("feasible", (same_values(told, values), *checks), metrics=metrics)


def restate_gpu(claimed: Claimed) -> ExactProgram:
    """The problem of an instance, to be changed."""
    round_ = GpuRound.of(claimed.instance, claimed.document.options)
    return round_.program(*round_.all_pairs())


VERIFIER = Verifier(
    "gpu-assignment",
    GpuAnswer,
    None,
    _judge,
    solvable=True,
    options=GpuOptions,
    restated=restate_gpu,
    main="transfer",
    needed=frozenset({"task", "gpu_out", "stay"}),
    restricted=_restricted,
    figures=_changed_figures,
)
