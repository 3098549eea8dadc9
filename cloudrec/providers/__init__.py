"""Providers are found, not listed: every folder here is one, and exports `create(home, environment)`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from cloudrec.errors import MissingExtraError, SpecError
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.home import Home
    from cloudrec.provider import Provider


def names() -> Sequence[str]:
    """Return the names of all providers, without importing any."""
    return sorted(module.name for module in iter_modules(__path__) if module.ispkg)


def load(name: str, *, home: Home, environment: Mapping[str, str]) -> Provider:
    """Return the provider of this name; SpecError offers the nearest, MissingExtraError what to install."""
    if name not in names():
        raise SpecError(f"there is no provider {name!r}", remedy=did_you_mean(name, names()))
    try:
        module = import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("cloudrec"):
            raise
        raise MissingExtraError(name, module=error.name) from error
    provider: Provider = module.create(home, environment)
    return provider
