"""Uploads of logs and metrics to the storage, and staging of the dataset from it."""
