"""The formats of training data."""
