"""The resource engine: what should exist, what does, and the safest fastest way from one to the other."""
