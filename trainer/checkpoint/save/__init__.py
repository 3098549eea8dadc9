"""Saving: cut a snapshot, write it in the background, commit it."""
