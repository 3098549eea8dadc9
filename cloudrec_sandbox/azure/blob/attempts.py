"""What a request to Blob Storage attempts, as role assignments and their conditions see it.

Sources: "Authorize with Microsoft Entra ID" (REST reference) for the permission of each operation: a blob
that does not exist can be put by the action to add one too. "Actions and attributes for Azure role assignment
conditions for Azure Blob Storage" for suboperations and attributes: a list has a prefix and no path, and the
others have a path; a container's properties are no data, and no condition limits them. The page does not say
that a list with an empty prefix has none, nor that a directory's path has no slash at its end; both are so
here. Blob.Write.WithTagHeaders is every operation that takes tags, with tags or without. It no longer lists
the reads that are Blob.Read.WithTagConditions (deprecated); here those are that return a blob's data,
properties or metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.blob_place import PERMISSIONS
from cloudrec_sandbox.azure.services.authorization.abac import CONTAINERS, Attempt, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.azure.arm.blob_place import Place
    from cloudrec_sandbox.azure.arm.store import Resource

_ADD = f"{CONTAINERS}/blobs/add/action"
_LIST = "List Blobs"
_SUBOPERATIONS = {
    _LIST: "Blob.List",
    "Get Blob": "Blob.Read.WithTagConditions",
    "Get Blob Properties": "Blob.Read.WithTagConditions",
    "Get Blob Metadata": "Blob.Read.WithTagConditions",
    "Put Blob": "Blob.Write.WithTagHeaders",
    "Put Block List": "Blob.Write.WithTagHeaders",
}
_CURRENT = ("Get Blob", "Get Blob Properties", "Get Blob Metadata", "Get Block List", "Delete Blob")


def attempts_of(
    operation: str, place: Place, *, query: Mapping[str, str], account: Resource, is_new: bool
) -> list[Attempt]:
    """Return the attempts of which one must be allowed; `is_new`: there is no blob of the name yet."""
    has_folders = bool(account.properties.get("isHnsEnabled"))
    attributes = named(dict(_attributes(operation, place, query, has_folders=has_folders)))
    suboperations = frozenset({_SUBOPERATIONS[operation]} if operation in _SUBOPERATIONS else ())
    actions = [PERMISSIONS[operation][0]]
    if operation == "Put Blob" and is_new:
        actions.append(_ADD)
    return [Attempt(action=action, suboperations=suboperations, attributes=attributes) for action in actions]


def _attributes(
    operation: str, place: Place, query: Mapping[str, str], *, has_folders: bool
) -> Iterator[tuple[str, str]]:
    yield "@Resource[Microsoft.Storage/storageAccounts:name]", place.account
    yield "@Resource[Microsoft.Storage/storageAccounts:isHnsEnabled]", str(has_folders).lower()
    if place.container:
        yield f"@Resource[{CONTAINERS}:name]", place.container
    if place.name:
        yield f"@Resource[{CONTAINERS}/blobs:path]", place.name.rstrip("/") if has_folders else place.name
    if operation in _CURRENT:
        yield f"@Resource[{CONTAINERS}/blobs:isCurrentVersion]", "true"
    if operation == _LIST and query.get("prefix"):
        yield f"@Request[{CONTAINERS}/blobs:prefix]", query["prefix"]
