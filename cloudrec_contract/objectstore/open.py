"""Opens the store of a URI."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from cloudrec_contract.objectstore.base import StoreOptions
from cloudrec_contract.objectstore.errors import MissingDriverError
from cloudrec_contract.objectstore.schemes import PACKAGE, folder_of, kinds

if TYPE_CHECKING:
    from types import ModuleType

    from cloudrec_contract.objectstore.base import ObjectStore


def open_store(uri: str, options: StoreOptions | None = None) -> ObjectStore:
    """Return the store that a path or a URI names; makes no request.

    Raises:
        StoreUriError: the scheme is unknown, its extra is not installed, or the URI is incomplete.
    """
    name = folder_of(uri)
    store: ObjectStore = _import(f"{PACKAGE}.{name}.store", name).open_store(uri, options or StoreOptions())
    return store


def require(uri: str) -> None:
    """Import the modules of a URI's store, to find a missing extra here instead of on another machine.

    Raises:
        StoreUriError: the scheme is unknown, or its extra is not installed.
    """
    name = folder_of(uri)
    for module in kinds()[name].needs:
        _import(module, name)


def _import(module: str, kind: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
        if missing == PACKAGE.partition(".")[0]:
            raise  # a bug, not a missing package
        why = "" if isinstance(error, ModuleNotFoundError) else str(error)
        raise MissingDriverError(kinds()[kind].extra, module=missing, why=why) from error
