"""Offline computations that need no account, no cluster and no GPU. Nothing here does input or output."""
