"""What a training run needs on a machine: memory by part, time of a step by part, and hours."""
