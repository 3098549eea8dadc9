"""The server's metrics, in Prometheus' text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0, 5.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Metrics:
    """What is counted and measured."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "cloudrec_requests", "Requests, by path and status.", ["path", "status"], registry=self._registry
        )
        self.rows = Counter("cloudrec_rows", "Rows that were scored.", registry=self._registry)
        self.seconds = Histogram(
            "cloudrec_request_seconds",
            "From the first byte of a request to its answer.",
            ["path"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.batches = Histogram(
            "cloudrec_batch_rows", "Rows that were scored together.", buckets=_ROWS, registry=self._registry
        )
        self.replaced = Counter(
            "cloudrec_model_replaced", "Times that a newer version took over.", registry=self._registry
        )
        self.step = Gauge("cloudrec_model_step", "The step of the served model.", registry=self._registry)
        self.refused = Gauge(
            "cloudrec_model_refused", "1 while the newest version cannot be read.", registry=self._registry
        )

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)
