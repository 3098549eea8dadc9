"""S3, and services with S3's API."""

from __future__ import annotations

from cloudrec_contract.objectstore.kind import StoreKind

KIND = StoreKind(schemes=("s3",), example="s3://BUCKET/FOLDER", extra="aws", needs=("fsspec", "s3fs"))
