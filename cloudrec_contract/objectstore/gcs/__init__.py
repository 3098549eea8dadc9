"""Google Cloud Storage."""

from __future__ import annotations

from cloudrec_contract.objectstore.kind import StoreKind

KIND = StoreKind(schemes=("gs", "gcs"), example="gs://BUCKET/FOLDER", extra="gcp", needs=("fsspec", "gcsfs"))
