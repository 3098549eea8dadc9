"""A folder of a login node that is reached by ssh."""

from __future__ import annotations

from cloudrec_contract.objectstore.kind import StoreKind

# Not shared: ssh's configuration and keys are those of a user on one machine.
KIND = StoreKind(schemes=("ssh",), example="ssh://USER@HOST/FOLDER", is_shared=False)
