"""Checks of the bucket that an adopted cluster's runs use: from this machine, and before anything is made.

`look` only lists. `probe` writes a small object and removes it: a bucket in which nothing can be written, or
that ignores conditions, would otherwise fail a run at its first checkpoint. Before each run, a pod reads and
writes there, too.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from cloudrec.errors import MissingExtraError
from cloudrec.findings import Finding
from cloudrec_contract.objectstore import open as stores
from cloudrec_contract.objectstore.base import StoreOptions
from cloudrec_contract.objectstore.errors import (
    AccessDeniedError,
    MissingDriverError,
    NoObjectError,
    ObjectExistsError,
    ObjectStoreError,
    StoreUriError,
    UnauthenticatedError,
)
from cloudrec_contract.objectstore.retries import Patience

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_contract.objectstore.base import ObjectStore

CHECK = "storage"
_PATIENCE = Patience(answer_s=10.0, attempts=2, rounds=1)
_FOLDER = "cloudrec-probe"
_NEEDED = "to list, read, write and delete objects there, from here and from pods"
_ELSEWHERE = "; if only pods reach it: --set cluster.settings.probe_storage=false"


def opened(uri: str, environment: Mapping[str, str]) -> ObjectStore:
    """Return the store that a URI names, without a call to it.

    Raises:
        MissingExtraError: its client is not installed.
    """
    try:
        return stores.open_store(uri, StoreOptions(environment=environment, patience=_PATIENCE))
    except MissingDriverError as error:
        raise MissingExtraError(error.extra, module=error.module, why=error.why) from error


def look(uri: str, environment: Mapping[str, str]) -> Finding:
    """Return whether the bucket exists and this machine may list it."""
    try:
        store = opened(uri, environment)
        store.check()
    except (ObjectStoreError, StoreUriError) as error:
        return _failed(uri, error)
    return Finding(check=CHECK, ok=True, found=f"{uri} can be listed", needed=_NEEDED)


def probe(store: ObjectStore) -> Finding:
    """Write an object, read it, write it again under the condition that it is absent, and remove it."""
    name = f"{_FOLDER}/{secrets.token_hex(8)}"
    first, second = (secrets.token_bytes(16) for _ in range(2))
    try:
        store.create(name, first)
        try:
            found = store.read(name)
            is_conditional = _is_refused(store, name, second)
        finally:
            store.remove([name])
    except ObjectStoreError as error:
        return _failed(store.uri, error)
    if found != first:
        return _unfit(store.uri, "it returns other bytes than were written")
    if not is_conditional:
        return _unfit(
            store.uri,
            "it overwrites an object that a request asked to create (it ignores If-None-Match), so two runs "
            "could overwrite each other's checkpoints",
        )
    return Finding(
        check=CHECK, ok=True, found=f"{store.uri}: an object was created, read and removed", needed=_NEEDED
    )


def _is_refused(store: ObjectStore, name: str, data: bytes) -> bool:
    """Return whether the store refuses to create an object that exists."""
    try:
        store.create(name, data)
    except ObjectExistsError:
        return True
    return False


def _unfit(uri: str, why: str) -> Finding:
    return Finding(
        check=CHECK,
        ok=False,
        found=f"{uri}: {why}",
        needed=_NEEDED,
        remedy="use another store, or a newer version of this one: --set cluster.settings.storage=URI",
    )


def _failed(uri: str, error: ObjectStoreError | StoreUriError) -> Finding:
    words = error.words if isinstance(error, ObjectStoreError) else str(error)
    match error:
        case UnauthenticatedError():
            found, remedy = f"no credentials for {uri} ({words})", f"log in to the store{_ELSEWHERE}"
        case AccessDeniedError():
            found = f"{uri}: refused ({words})"
            remedy = f"ask its owner for the permission {_NEEDED}{_ELSEWHERE}"
        case NoObjectError():
            found = f"{uri}: there is no such bucket ({words})"
            remedy = "create it, or name one that exists: --set cluster.settings.storage=URI"
        case _:
            found = f"{uri}: the store did not complete the request ({words})"
            remedy = f"check its address and this machine's network{_ELSEWHERE}"
    return Finding(check=CHECK, ok=False, found=found, needed=_NEEDED, remedy=remedy)
