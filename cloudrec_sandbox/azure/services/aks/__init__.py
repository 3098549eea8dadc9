"""AKS: clusters, their node pools, and the resources in a cluster's own resource group."""
