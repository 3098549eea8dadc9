"""What the launcher `ray` is made of."""
