"""Local paths from the URIs that users give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_contract.objectstore.errors import StoreUriError
from cloudrec_contract.objectstore.local.store import path_of
from cloudrec_contract.objectstore.schemes import is_remote, scheme_of

if TYPE_CHECKING:
    from pathlib import Path


def is_local(uri: str) -> bool:
    """Whether a URI is a path or a file:// URI."""
    return not is_remote(uri)


def local_path(uri: str) -> Path:
    """Return the path that a plain path or a file:// URI names.

    Raises:
        ValueError: the URI has another scheme, or is malformed; the message has the remedy.
    """
    if not is_local(uri):
        raise ValueError(
            f"{uri!r}: the scheme {scheme_of(uri)!r} is not supported yet, only paths and file://; "
            "copy or mount it on this machine and give its path"
        )
    try:
        return path_of(uri)
    except StoreUriError as error:
        raise ValueError(f"{uri!r}: {error}") from error
