"""Microsoft.ManagedIdentity: user-assigned identities and the workloads that they trust."""
