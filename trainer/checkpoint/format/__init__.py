"""The checkpoint format: commits, manifests, layers, and how rows are coded."""
