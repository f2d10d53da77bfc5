"""Metrics of the service itself, in the Prometheus text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class HttpMetrics:
    """Metrics common to all services; their names begin with ``prefix``."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.registry: CollectorRegistry = CollectorRegistry()
        self.refused: Counter = self.counter("refused", "Requests sent away, by reason", "reason")
        self.requests: Counter = self.counter(
            "requests", "Requests answered, by route, method and status", "route", "method", "status"
        )
        self.latency: Histogram = self.histogram("request_seconds", "Time to the first byte of an answer", "route")

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Create a counter."""
        return Counter(f"{self.prefix}_{name}", text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Create a gauge."""
        return Gauge(f"{self.prefix}_{name}", text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, *labels: str) -> Histogram:
        """Create a histogram of seconds."""
        return Histogram(f"{self.prefix}_{name}", text, labels, registry=self.registry, buckets=_SECONDS)


class Metrics(HttpMetrics):
    """Metrics of the telemetry service; names begin with ``flowlex_telemetry_``."""

    def __init__(self) -> None:
        super().__init__("flowlex_telemetry")
        self.samples: Counter = self.counter("samples", "Samples acknowledged, by whether they were new", "outcome")
        self.commit: Histogram = self.histogram("commit_seconds", "Time of one transaction of the writer")
        self.waiting: Gauge = self.gauge("waiting_writes", "Writes that wait for the writer")
        self.nodes: Gauge = self.gauge("nodes", "Nodes, by whether they are alive", "state")
        self.clock: Gauge = self.gauge(
            "clock_ahead_seconds", "Lead of the service's clock over the database's wall clock"
        )
        self.removed: Counter = self.counter("removed", "Samples and aggregates that retention dropped", "kind")
