"""Microsoft Entra ID: tokens, and the login of a container registry."""
