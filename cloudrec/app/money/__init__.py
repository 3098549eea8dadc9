"""What clusters cost: their ends, and what was metered."""
