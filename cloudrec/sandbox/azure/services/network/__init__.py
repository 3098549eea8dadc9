"""Microsoft.Network: networks and their subnets, firewalls, gateways, addresses, and what sits in them."""
