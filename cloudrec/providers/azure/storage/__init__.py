"""Storage on Azure: the bucket, file systems, and how pods mount them."""
