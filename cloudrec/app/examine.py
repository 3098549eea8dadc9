"""Examining a cluster that is up: nodes, GPUs, cards, add-ons, and settings that time has overtaken."""
