"""What moto's EC2 lacks or is too kind about, a module a kind of thing."""
