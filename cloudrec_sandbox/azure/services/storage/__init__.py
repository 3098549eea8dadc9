"""Microsoft.Storage: accounts, their blob service, its containers."""
