"""Metrics of a served scheduler in the Prometheus text format."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from flowlex.systems.telemetry.prometheus_metrics import HttpMetrics


class Metrics(HttpMetrics):
    """Metrics of one process; names begin with ``flowlex_scheduler_``."""

    def __init__(self) -> None:
        super().__init__("flowlex_scheduler")
        self.records: Counter = self.counter("records", "Records committed, by kind", "kind")
        self.commit: Histogram = self.histogram("commit_seconds", "Time of a transaction")
        self.decision: Histogram = self.histogram("decision_seconds", "Time of a decision, its proof included")
        self.waiting: Gauge = self.gauge("waiting_requests", "Requests that wait for the scheduler")
        self.leads: Gauge = self.gauge("leads", "1 while this process leads")
        self.state: Gauge = self.gauge("state", "What the scheduler holds", "what")
