"""Trained models for serving: export and scoring."""
