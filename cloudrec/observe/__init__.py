"""Runs in progress and ended runs: their logs, metrics and reports. It only reads."""
