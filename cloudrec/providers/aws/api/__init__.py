"""How AWS is called: clients, drivers' shared parts, operations."""
