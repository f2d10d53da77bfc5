"""A run of the network as a log of events, and all metrics computed from the log.

Events: ``coflow`` (a job, when its last computation is done; with the times of its transfers), ``copy`` (a background
copy has arrived), ``unfinished`` (the horizon came first), ``ports`` (what every port carried, by bin of time).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.network.simulator import NetworkRun
from flowlex.systems.simulation.network.traffic_arrays import Floats

if TYPE_CHECKING:
    import pandas as pd

#: Tolerance within which a transfer after its deadline is still in time.
LATE_S = 1e-6
#: Decimal digits to which times (s) and loads (MB) are rounded in a file.
DIGITS = 9


def to_log(run: NetworkRun, header: Mapping[str, Any]) -> RunLog:
    """Return the log of a run; ``header`` describes the run (policy, seed, instance)."""
    traffic = run.traffic
    ports = {
        "machines": list(traffic.machines),
        "out_mb_per_s": traffic.out_rate.tolist(),
        "in_mb_per_s": traffic.in_rate.tolist(),
    }
    log = RunLog({"simulator": "network", **header, **ports, "digits": DIGITS})
    order = np.argsort(traffic.coflow, kind="stable")
    members = np.split(order, np.searchsorted(traffic.coflow[order], np.arange(1, len(traffic.coflow_names))))
    computed = np.argsort(traffic.job, kind="stable")
    steps = np.split(computed, np.searchsorted(traffic.job[computed], np.arange(1, max(traffic.jobs, 1))))
    records = []
    for c, transfers in enumerate(members):
        own = steps[c] if c < traffic.jobs else np.zeros(0, np.int64)
        records.append(_coflow(run, c, transfers, own))
    for at_s, event, fields in sorted(records, key=lambda record: record[0]):
        log.add(at_s, event, **fields)
    log.add(
        round(run.now_s, DIGITS),
        "ports",
        bin_s=run.bin_s,
        jobs_mb=np.round(run.sent_mb[:, 0], DIGITS).tolist(),
        copies_mb=np.round(run.sent_mb[:, 1], DIGITS).tolist(),
        events=run.events,
        questions=run.questions,
    )
    return log


def _coflow(run: NetworkRun, c: int, transfers: Any, own: Any) -> tuple[float, str, dict[str, Any]]:
    """Return the time, event and fields of one record."""
    traffic = run.traffic
    feeds = traffic.feeds[transfers]
    use = np.where(feeds >= 0, run.start_s[feeds] if len(run.start_s) else np.nan, np.nan)
    sent = run.end_s[transfers].max(initial=traffic.coflow_arrival_s[c])
    done = max(sent, run.done_s[own].max(initial=0.0)) if sent == sent else sent
    finished = bool(done == done)
    event = "unfinished" if not finished else ("copy" if c >= traffic.jobs else "coflow")
    fields = {
        "name": traffic.coflow_names[c],
        "arrival_s": float(traffic.coflow_arrival_s[c]),
        "sent_s": _time(float(sent)),
        "alone_s": float(traffic.alone_s[c]),
        "mb": float(traffic.size_mb[transfers].sum()),
        "transfers": [traffic.transfer_names[f].rpartition("/")[2] for f in transfers.tolist()],
        "size_mb": traffic.size_mb[transfers].tolist(),
        "begin_s": [_time(t) for t in run.begin_s[transfers].tolist()],
        "end_s": [_time(t) for t in run.end_s[transfers].tolist()],
        "use_s": [_time(t) for t in use.tolist()],
    }
    due = traffic.due_s[transfers]
    if (due == due).any():
        late = ~(run.end_s[transfers] <= due + LATE_S) & (due == due)
        fields["in_time"] = not late.any()
    return round(float(done if finished else run.now_s), DIGITS), event, fields


def _time(value: float) -> float | None:
    return round(value, DIGITS) if value == value else None


def coflow_frame(log: RunLog) -> pd.DataFrame:
    """One row per coflow: kind, MB, width, arrival, ``cct_s`` (to the last byte), ``jct_s`` (to the last computation).

    ``slowdown`` is the completion time over what the coflow needs alone on its busiest port; NaN without transfers.
    """
    import pandas as pd

    rows = [
        {
            "name": r["name"],
            "kind": r["event"],
            "mb": r["mb"],
            "transfers": len(r["transfers"]),
            "arrival_s": r["arrival_s"],
            "alone_s": r["alone_s"],
            "cct_s": (np.nan if r["sent_s"] is None else r["sent_s"]) - r["arrival_s"],
            "jct_s": np.nan if r["event"] == "unfinished" else r["at_s"] - r["arrival_s"],
        }
        for r in log.of("coflow", "copy", "unfinished")
    ]
    frame = pd.DataFrame(rows, columns=["name", "kind", "mb", "transfers", "arrival_s", "alone_s", "cct_s", "jct_s"])
    frame["slowdown"] = frame["cct_s"] / frame["alone_s"].where(frame["alone_s"] > 0)
    return frame


def transfer_frame(log: RunLog) -> pd.DataFrame:
    """One row per transfer: coflow, sizes and times; ``wait_s`` from its arrival to the use of its data."""
    import pandas as pd

    columns = ("transfers", "size_mb", "begin_s", "end_s", "use_s")
    parts = [
        pd.DataFrame({"coflow": r["name"], "kind": r["event"]} | {name: r[name] for name in columns})
        for r in log.of("coflow", "copy", "unfinished")
        if r["transfers"]
    ]
    empty = pd.DataFrame(columns=["coflow", "kind", *columns])
    frame = pd.concat(parts, ignore_index=True) if parts else empty
    frame = frame.astype({name: float for name in columns[1:]}).rename(columns={"transfers": "transfer"})
    frame["wait_s"] = frame["use_s"] - frame["end_s"]
    return frame


def port_loads(log: RunLog, what: str = "all") -> tuple[Floats, Floats]:
    """Return the start of every bin of time, and (bins, 2M) the used share of every port's rate, sending ports first.

    ``what``: ``jobs``, ``copies`` or ``all``.
    """
    record = next(log.of("ports"))
    rates = np.concatenate([log.header["out_mb_per_s"], log.header["in_mb_per_s"]])
    kinds = ("jobs", "copies") if what == "all" else (what,)
    mb = np.sum([np.array(record[f"{kind}_mb"]).reshape(-1, len(rates)) for kind in kinds], axis=0)
    return np.arange(len(mb)) * record["bin_s"], np.asarray(mb / (record["bin_s"] * rates))


def remaining_egress(log: RunLog) -> Floats:
    """(bins,) share of the cluster's sending rate that jobs leave, copies not counted, until the last job is sent.

    The paper's equation (18): one ratio for each moment, of all machines together.
    """
    start, used = port_loads(log, "jobs")
    last = max((r["sent_s"] or 0.0 for r in log.of("coflow")), default=0.0)
    rates = np.array(log.header["out_mb_per_s"])
    return np.asarray(1 - used[start < last, : len(rates)] @ rates / rates.sum())


def figures(log: RunLog) -> dict[str, float]:
    """Return the metrics of the tables: completion times, slow-downs, waits, remaining egress, unfinished coflows.

    ``deadlines_met`` is the share of coflows with deadlines whose transfers were all in time; ``empty_coflows`` have
    nothing to send and count as 0 s; ``port_mb_per_s`` is the rate of the slowest port.
    """
    frame, transfers = coflow_frame(log), transfer_frame(log)
    jobs, copies = frame[frame.kind == "coflow"], frame[frame.kind == "copy"]
    found: dict[str, float] = {
        "unfinished": float((frame.kind == "unfinished").sum()),
        "empty_coflows": float((frame.transfers == 0).sum()),
        "port_mb_per_s": float(min(log.header["out_mb_per_s"] + log.header["in_mb_per_s"])),
    }
    in_time = [r["in_time"] for r in log.of("coflow", "unfinished") if "in_time" in r]
    if in_time:
        found["deadlines_met"] = float(np.mean(in_time))
    if len(jobs):
        found |= {
            "mean_jct_s": float(jobs.jct_s.mean()),
            "mean_cct_s": float(jobs.cct_s.mean()),
            "median_cct_s": float(jobs.cct_s.median()),
            "p95_cct_s": float(jobs.cct_s.quantile(0.95)),
            "p99_cct_s": float(jobs.cct_s.quantile(0.99)),
            "makespan_s": float(log.records[-1]["at_s"]),
        }
        slow = jobs.slowdown.dropna()
        left = remaining_egress(log)
        if len(slow):
            found["mean_slowdown"] = float(slow.mean())
        if transfers.wait_s.notna().any():
            found["mean_wait_s"] = float(transfers.wait_s.mean())
        if left.size:
            found |= {"remaining_min": float(left.min()), "remaining_median": float(np.median(left))}
    if len(copies):
        found["copies_slowdown"] = float(copies.slowdown.mean())
    return found
