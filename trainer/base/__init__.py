"""The lowest layer of the trainer: configuration, errors, intervals. It imports no other trainer package."""
