"""The schemes of all kinds of store. Every folder of this package is a kind; there is no other list."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from cloudrec_contract.objectstore.errors import StoreUriError, UnknownSchemeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_contract.objectstore.kind import StoreKind

PACKAGE = __name__.rpartition(".")[0]
_FOLDER = Path(__file__).parent
_PLAIN = "file"  # of a path


@cache
def kinds() -> Mapping[str, StoreKind]:
    """Return every kind of store by the name of its folder; does not import the clients."""
    names = sorted(module.name for module in iter_modules([str(_FOLDER)]) if module.ispkg)
    return {name: import_module(f"{PACKAGE}.{name}").KIND for name in names}


def known_schemes() -> tuple[str, ...]:
    """Return the scheme of every kind, sorted."""
    return tuple(sorted(scheme for kind in kinds().values() for scheme in kind.schemes))


def shared_kinds() -> tuple[StoreKind, ...]:
    """Return the kinds that every machine can reach by a URI."""
    return tuple(kind for kind in kinds().values() if kind.is_shared)


def shared_schemes() -> tuple[str, ...]:
    """Return the schemes of the kinds that every machine can reach by a URI, sorted."""
    return tuple(sorted(scheme for kind in shared_kinds() for scheme in kind.schemes))


def require_shared(uri: str) -> None:
    """Refuse a URI of a store that not every machine can reach; a path is accepted.

    Raises:
        UnknownSchemeError: it is such a URI; the error lists `file` and the shared schemes as known.
    """
    scheme = scheme_of(uri)
    if is_remote(uri) and scheme not in shared_schemes():
        raise UnknownSchemeError(scheme, tuple(sorted((_PLAIN, *shared_schemes()))))


def scheme_of(uri: str) -> str:
    """Return the scheme of a URI in lower case; `file` for a path."""
    scheme, separator, _ = uri.partition("://")
    return scheme.lower() if separator else _PLAIN


def is_remote(uri: str) -> bool:
    """Return whether a URI names a remote store and not a path on this machine."""
    return scheme_of(uri) != _PLAIN


def folder_of(uri: str) -> str:
    """Return the folder of a URI's kind in this package.

    Raises:
        UnknownSchemeError: no kind has the scheme.
    """
    scheme = scheme_of(uri)
    found = next((name for name, kind in kinds().items() if scheme in kind.schemes), None)
    if found is None:
        raise UnknownSchemeError(scheme, known_schemes())
    return found


def path_in_bucket(uri: str) -> str:
    """Return the bucket and the folder that a URI names, as BUCKET/FOLDER.

    Raises:
        StoreUriError: it names no bucket.
    """
    rest = uri.partition("://")[2]
    if not rest.partition("/")[0]:
        kind = kinds()[folder_of(uri)]
        raise StoreUriError(f"names no bucket; it is {kind.example}")
    return rest.rstrip("/")
