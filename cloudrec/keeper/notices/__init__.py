"""What the keeper notifies: notifications of what happened, and metrics of what is."""
