"""Pods on a node: containers, volumes, probes, status."""
