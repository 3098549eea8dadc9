"""The parts of one attempt at a run: the fixed ones, the progress, and the end."""
