"""Nodes, the scheduling of pods, and how nodes are lost."""
