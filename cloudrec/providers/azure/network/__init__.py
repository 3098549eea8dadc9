"""The virtual network and the placement of nodes on Azure."""
