"""The use cases of runs: launch, list, stop, fetch, smoke test."""
