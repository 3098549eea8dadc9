"""The cluster itself on Azure."""
