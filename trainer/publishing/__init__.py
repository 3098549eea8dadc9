"""Publishing the checkpoints of a run as versions that servers read (trainer.serving.publication)."""
