"""The training loop: a session, its steps, and what ranks agree on between steps."""
