"""Checks of a node: its hardware, NCCL, its storage, and a smoke test of all ranks."""
