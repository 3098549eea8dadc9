"""What can be said without asking anybody: pure functions over data that comes with cloudrec."""
