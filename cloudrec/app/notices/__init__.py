"""Notifications: who is notified, what was sent, and a test."""
