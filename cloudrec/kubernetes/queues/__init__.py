"""Kueue's queues: the pools of nodes of which they are made, and whether a queue can admit a run."""
