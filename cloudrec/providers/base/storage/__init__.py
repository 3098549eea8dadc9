"""Where the nodes of a cluster can read a dataset: the tiers, and how fast each is."""
