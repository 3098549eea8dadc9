"""Stand-ins for the clouds' services on this machine, each found by looking: a package with a `serve`."""
