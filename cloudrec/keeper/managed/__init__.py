"""Managed clusters: the keeper gives a run its nodes, moves it when they are taken back, and removes them."""
