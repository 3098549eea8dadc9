"""`data synth`: raw rows drawn from a teacher model with a known best AUC."""
