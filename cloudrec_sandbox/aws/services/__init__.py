"""What moto lacks or allows too easily, a module or a package for each service; all modules are loaded."""
