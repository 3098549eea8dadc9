"""Microsoft.Authorization: roles, who has them where, and from when on that counts."""
