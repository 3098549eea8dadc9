"""Sharding: the plan, the topology, and the model's state under plan-independent names."""
