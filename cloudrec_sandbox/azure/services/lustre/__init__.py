"""Microsoft.StorageCache: file systems of Azure Managed Lustre."""
