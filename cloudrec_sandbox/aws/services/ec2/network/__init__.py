"""VPCs: subnets, gateways, routes, security groups, interfaces, endpoints."""
