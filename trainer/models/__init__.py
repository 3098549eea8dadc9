"""The models and their dense operations."""
