"""The commands whose output is a page in a browser."""
