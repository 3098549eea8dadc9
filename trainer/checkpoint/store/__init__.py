"""Where checkpoints are stored: a folder or an object store, with locks and fencing."""
