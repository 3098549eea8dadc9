"""The commands beside training: plan, predict and export."""
