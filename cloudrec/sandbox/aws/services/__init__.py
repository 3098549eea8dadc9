"""What moto lacks or is too kind about, a module or a package a service; found by looking."""
