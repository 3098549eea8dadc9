"""Parts of models that read sequences."""
