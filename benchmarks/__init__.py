"""Measurements, each compared with a named reference; run one with `python -m benchmarks NAME`."""
