"""What launchers of runs elsewhere share: their results, their ledger, and how they are watched."""
