"""Losses of a whole step."""
