"""What exists, for /_control/state, and what a cluster's controllers leave behind."""
