"""The typed contexts of the templates, and their rendering."""
