"""Spot capacity: the policy that moves a run between candidates, and a simulator that plays it on traces."""
