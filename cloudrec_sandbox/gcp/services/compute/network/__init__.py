"""Networks, subnetworks, addresses, routers, firewalls, load balancers."""
