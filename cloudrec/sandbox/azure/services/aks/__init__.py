"""AKS: clusters, their pools of nodes, what they make in a resource group of their own."""
