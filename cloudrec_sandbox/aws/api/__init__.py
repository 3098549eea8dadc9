"""AWS's protocols: calls, errors, the registry of operations, and moto behind it."""
