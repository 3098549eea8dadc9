"""The storage of an adopted cluster: a bucket that exists, which cloudrec checks and does not create."""
