"""Metrics for Prometheus: the text format, the endpoint, and the metrics of a run."""
