"""The objects that represent an adopted cluster: its namespace and its note."""
