"""What the stand-in answers for, found by looking: one module or package a service."""
