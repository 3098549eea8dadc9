"""Google's services, a module or a package each; all are imported at start."""
