"""Microsoft.Network: networks with subnets, security groups, NAT gateways, addresses, and interfaces."""
