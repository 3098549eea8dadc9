"""Microsoft.ManagedIdentity: user-assigned identities and their federated credentials."""
