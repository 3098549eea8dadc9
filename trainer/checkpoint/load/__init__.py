"""Loading: find a committed checkpoint, read it and verify it."""
