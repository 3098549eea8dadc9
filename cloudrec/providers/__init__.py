"""Providers are found, not listed: every folder here but `base` is one.

It exports `create(home, environment)`, and as NEEDS what must be installed for it. The folder itself imports
without that. Its module `facts` states what shared code needs to know about the cloud.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from cloudrec.errors import MissingExtraError, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

    from cloudrec.home import Home
    from cloudrec.providers.base.facts import CloudFacts
    from cloudrec.providers.base.hardware.machines import MachineRow
    from cloudrec.providers.base.offers import InstanceType
    from cloudrec.providers.base.protocol import Needs, Provider

__all__ = ["facts", "hardware", "load", "names", "needs"]

_SHARED = "base"  # what providers share, which is none itself


def names() -> Sequence[str]:
    """Return the names of all providers, without importing any."""
    return sorted(module.name for module in iter_modules(__path__) if module.ispkg and module.name != _SHARED)


def load(name: str, *, home: Home, environment: Mapping[str, str], complete: bool = False) -> Provider:
    """Return the provider of a name.

    Args:
        name: its folder's.
        home: where cloudrec keeps its state.
        environment: the process's environment variables.
        complete: import all that the provider's commands need first, so that none of them stops half-way
            for a package that is missing.

    Raises:
        SpecError: there is no such provider; the remedy offers the nearest.
        MissingExtraError: a package is not installed, or cannot be imported.
    """
    wanted = needs(name)
    for module in wanted.modules if complete else ():
        with _as_missing(wanted.extra, module):
            import_module(module)
    with _as_missing(wanted.extra, name):
        provider: Provider = _folder(name).create(home, environment)
    return provider


def needs(name: str) -> Needs:
    """Return what must be installed for the provider of a name; SpecError where there is none."""
    found: Needs = _folder(name).NEEDS
    return found


def facts(name: str) -> CloudFacts | None:
    """Return what the provider of a name states about its cloud; None if it states nothing.

    Raises:
        SpecError: there is no such provider.
    """
    from cloudrec.providers.base.facts import facts_of  # noqa: PLC0415  # most commands ask for none

    _folder(name)
    return facts_of(name)


def hardware(name: str) -> Mapping[str, InstanceType]:
    """Return the GPU machine types that the provider of a name knows; none for one without a table.

    Raises:
        SpecError: there is no such provider.
    """
    folder = _folder(name)
    known: Mapping[str, InstanceType] = getattr(import_module(f"{folder.__name__}.offers"), "KNOWN", {})
    return known


def refused(name: str) -> Mapping[str, MachineRow]:
    """Return the machine types that the provider of a name knows and cannot use; none without a table.

    Raises:
        SpecError: there is no such provider.
    """
    folder = _folder(name)
    table: Mapping[str, MachineRow] = getattr(import_module(f"{folder.__name__}.offers"), "TABLE", {})
    return {type_: row for type_, row in table.items() if row.refused}


def _folder(name: str) -> ModuleType:
    if name not in names():
        from cloudrec.spec.suggest import did_you_mean  # noqa: PLC0415  # only after a slip

        raise SpecError(f"there is no provider {name!r}", remedy=did_you_mean(name, names()))
    return import_module(f"{__name__}.{name}")


@contextmanager
def _as_missing(extra: str, module: str) -> Iterator[None]:
    """Raise MissingExtraError for a package that cannot be imported; one of cloudrec's own is a bug."""
    try:
        yield
    except ImportError as error:
        name = error.name or module
        if name.partition(".")[0] == "cloudrec":
            raise
        why = "" if isinstance(error, ModuleNotFoundError) else str(error)
        raise MissingExtraError(extra, module=name, why=why) from error
