"""What the service tells of itself, in the Prometheus text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["Metrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """The figures of one service; names begin with ``flowlex_telemetry_``."""

    def __init__(self) -> None:
        self.registry: CollectorRegistry = CollectorRegistry()
        self.samples: Counter = self._counter("samples", "Samples acknowledged, by whether they were new", "outcome")
        self.refused: Counter = self._counter("refused", "Requests sent away, by reason", "reason")
        self.requests: Counter = self._counter(
            "requests", "Requests answered, by route, method and status", "route", "method", "status"
        )
        self.latency: Histogram = self._histogram("request_seconds", "Time to the first byte of an answer", "route")
        self.commit: Histogram = self._histogram("commit_seconds", "Time of one transaction of the writer")
        self.waiting: Gauge = self._gauge("waiting_writes", "Writes that wait for the writer")
        self.nodes: Gauge = self._gauge("nodes", "Nodes, by whether they are alive", "state")
        self.clock: Gauge = self._gauge("clock_ahead_seconds", "How far the service's clock is ahead of the wall clock")
        self.removed: Counter = self._counter("removed", "Samples and aggregates that retention dropped", "kind")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"flowlex_telemetry_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"flowlex_telemetry_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"flowlex_telemetry_{name}", text, labels, registry=self.registry, buckets=_SECONDS)
