"""Storage on AWS: the bucket, file systems, and how pods mount them."""
