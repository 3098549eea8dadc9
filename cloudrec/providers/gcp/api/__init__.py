"""How Google Cloud is called: clients, drivers' shared parts, operations."""
