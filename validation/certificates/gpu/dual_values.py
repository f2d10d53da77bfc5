"""Check the dual values of GPUs and shares at a fixed total that a file states.

The running tasks that continue and stop are fixed. For prices ``p >= 0`` of free GPUs and ``s`` of shares, and for any
``K`` waiting tasks, ``k_j`` of job j, that start on GPUs of enough memory:

    transfer  >=  sum_j s_j k_j  +  the K least of (min over fitting g of (c_tg + p_g) - s_j(t))  -  sum_g p_g

If the right side equals the transfer of the answer, p_g is the most that another GPU like g saves, and s_j the least
cost of one more GPU for job j, taken from other jobs: the right side bounds every answer with one GPU or share changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.instances.exact_rationals import rational
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.exact_numbers import whole
from flowlex.validation.certificates.gpu.cluster_columns import Cluster, none
from flowlex.validation.restated.gpu_program import GpuRound


def check_duals(
    cluster: Cluster, round_: GpuRound, stated: Mapping[str, Mapping[str, Any]], transfer: Fraction
) -> Check:
    """Whether the stated prices prove that the answer's transfer is least for its numbers of starts."""
    costs = round_.costs
    at, own = cluster.at, cluster.own
    free = np.ones(len(cluster.gpu), bool)
    free[own[(own >= 0) & (at >= 0)]] = False
    known = {"gpu_out"} if not round_.options.policy.fair else {"gpu_out", "share"}
    unit = costs.unit_s
    per_gpu, strange = _whole(stated.get("gpu_out", {}), unit)
    share, odd = _whole(stated.get("share", {}), unit)
    labels = cluster.labels() if not per_gpu.keys() & cluster.gpu.keys() else list(cluster.gpu)
    strange += odd + sorted(stated.keys() ^ known) + sorted(per_gpu.keys() - set(labels))
    strange += [labels[g] for g in np.flatnonzero(free).tolist() if labels[g] not in per_gpu]
    strange += sorted(share.keys() - cluster.job.keys())
    strange += [label for label, price in per_gpu.items() if price < 0]
    if strange:
        return none("duals of GPUs and shares", strange)
    price = whole(per_gpu.get(label, 0) for label in labels)[free]
    worth = whole(share.get(name, 0) for name in cluster.job)
    starts = cluster.counts((at >= 0) & (own < 0))
    bound = sum(s * k for s, k in zip(worth.tolist(), starts.tolist(), strict=True)) - sum(price.tolist())
    if starts.any():
        priced = np.full(len(cluster.gpu), int(price.max()), price.dtype)
        priced[free] = price
        usable, none_ = np.flatnonzero(free), np.zeros(0, np.int64)
        task, gpu = round_.pairs_at([np.where(free, priced, priced.max() + 1)], (none_, none_))
        open_ = np.isin(gpu, usable) & (own[task] < 0)
        task, gpu = task[open_], gpu[open_]
        waiting, row = np.unique(task, return_inverse=True)
        way = costs.of_pairs(task, cluster.gpu_node[gpu]) + priced[gpu]
        least = np.full(len(waiting), way.max(initial=0), way.dtype)
        np.minimum.at(least, row, way)
        rest = least.astype(object) - worth[cluster.job_of[waiting]]
        bound += sum(sorted(rest.tolist())[: int(starts.sum())])
    short = int(transfer / unit) - bound
    detail = f"they show {float(bound * unit):.10g} of {float(transfer):.10g} s"
    return Check("duals prove the transfer at a fixed total", short == 0, abs(float(short * unit)), detail)


def _whole(stated: Mapping[str, Any], unit: Fraction) -> tuple[dict[str, int], list[str]]:
    """Prices as integer multiples of the unit, and labels of those that are not."""
    exact = {label: rational(value) / unit for label, value in stated.items()}
    return {label: int(n) for label, n in exact.items()}, [label for label, n in exact.items() if n.denominator > 1]
