"""Warm start: a new run begins with the tables and layers of an earlier model."""
