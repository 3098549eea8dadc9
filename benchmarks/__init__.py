"""Measurements, each beside a named reference; run one with `python -m benchmarks NAME`."""
