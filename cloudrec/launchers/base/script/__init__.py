"""A user's own torchrun script as the program of a run: packed, delivered, prepared on a node, started."""
