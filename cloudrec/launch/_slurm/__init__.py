"""What the launcher `slurm` is made of."""
