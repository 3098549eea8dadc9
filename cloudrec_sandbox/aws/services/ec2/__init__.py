"""What moto's EC2 lacks or allows too easily, a module for each kind of resource."""
