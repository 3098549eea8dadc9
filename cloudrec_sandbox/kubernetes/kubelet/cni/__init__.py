"""The network of the pods, and their names in DNS."""
