"""What one NVIDIA GPU gives: its ceilings, the trainer's step, and whole runs beside named references."""
