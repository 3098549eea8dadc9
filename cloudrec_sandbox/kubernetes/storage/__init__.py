"""The store: objects under their rules, and the views that controllers use."""
