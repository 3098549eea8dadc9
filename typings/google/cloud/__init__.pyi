"""Here so that mypy prefers what is below to the SDK, whose packages say that they have types."""
