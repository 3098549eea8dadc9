"""Retrieval: the items of a dataset, and how many of the right ones a model finds."""
