"""Azure Blob Storage."""

from __future__ import annotations

from cloudrec_contract.objectstore.kind import StoreKind

KIND = StoreKind(
    schemes=("abfs", "abfss", "az"),
    example="abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER",
    extra="azure",
    needs=("fsspec", "adlfs"),
)
