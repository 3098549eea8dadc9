"""Health: why a pod does not run or has ended, and what GPU nodes can allocate."""
