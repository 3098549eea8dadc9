"""Storage on Google Cloud: the bucket, file systems, and how pods mount them."""
