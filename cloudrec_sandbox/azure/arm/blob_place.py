"""What a request to Blob Storage is for: account, container, blob, and the operation by its name."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

PREFIX = "/blob/"

# By method, whether the path has a blob's name, restype and comp.
_OPERATIONS = {
    ("GET", False, "", "list"): "List Containers",
    ("GET", False, "container", ""): "Get Container Properties",
    ("HEAD", False, "container", ""): "Get Container Properties",
    ("GET", False, "container", "list"): "List Blobs",
    ("GET", True, "", ""): "Get Blob",
    ("HEAD", True, "", ""): "Get Blob Properties",
    ("GET", True, "", "metadata"): "Get Blob Metadata",
    ("HEAD", True, "", "metadata"): "Get Blob Metadata",
    ("GET", True, "", "blocklist"): "Get Block List",
    ("PUT", True, "", ""): "Put Blob",
    ("PUT", True, "", "block"): "Put Block",
    ("PUT", True, "", "blocklist"): "Put Block List",
    ("PUT", True, "", "metadata"): "Set Blob Metadata",
    ("DELETE", True, "", ""): "Delete Blob",
}

_CONTAINERS = "Microsoft.Storage/storageAccounts/blobServices/containers"
_READ, _WRITE = (f"{_CONTAINERS}/blobs/{verb}" for verb in ("read", "write"))
# Each operation's permission, and whether it is one on data ("Authorize with Microsoft Entra ID").
PERMISSIONS = {
    "List Containers": (f"{_CONTAINERS}/read", False),
    "Get Container Properties": (f"{_CONTAINERS}/read", False),
    "List Blobs": (_READ, True),
    "Get Blob": (_READ, True),
    "Get Blob Properties": (_READ, True),
    "Get Blob Metadata": (_READ, True),
    "Get Block List": (_READ, True),
    "Put Blob": (_WRITE, True),
    "Put Block": (_WRITE, True),
    "Put Block List": (_WRITE, True),
    "Set Blob Metadata": (_WRITE, True),
    "Delete Blob": (f"{_CONTAINERS}/blobs/delete", True),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a request's path leads; `container` and `name` are empty for the account and the container."""

    account: str
    container: str
    name: str


def place_of(path: str) -> Place:
    """Return the place of a path that begins with PREFIX."""
    account, _, rest = path.removeprefix(PREFIX).partition("/")
    container, _, name = rest.partition("/")
    return Place(account=account, container=unquote(container), name=unquote(name))


def operation(method: str, place: Place, query: dict[str, str]) -> str:
    """Return an operation's name; one that this stand-in does not have is named by its parts."""
    restype, comp = query.get("restype", "").lower(), query.get("comp", "").lower()
    known = _OPERATIONS.get((method, bool(place.name), restype, comp))
    # Versions and snapshots have operations of the same names.
    if known and not {"snapshot", "versionid"} & query.keys():
        return known
    return " ".join(filter(None, (method, "blob" if place.name else restype or "account", comp)))
