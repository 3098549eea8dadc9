"""Whether this machine can reach what a command is about to create."""
