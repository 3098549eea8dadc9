"""Microsoft.Authorization: roles, role assignments, and when they take effect."""
