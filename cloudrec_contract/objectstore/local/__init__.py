"""A folder of this machine, or of a file system that all machines mount."""

from __future__ import annotations

from cloudrec_contract.objectstore.kind import StoreKind

KIND = StoreKind(schemes=("file",), example="/PATH or file:///PATH", is_shared=False)
