"""Access to the API of an adopted cluster: contexts, clients, labels and the drivers' base class."""
