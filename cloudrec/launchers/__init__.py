"""Launchers start, watch and stop training runs.

A launcher is an object that implements the protocol in `base.protocol`. Each package here lists its launchers
in `LAUNCHERS`: the name of each, with the module that defines it. A new launcher is a new package.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.launchers.base.protocol import Launcher


def launchers() -> dict[str, Launcher]:
    """Return every launcher by name, in the order of names."""
    return {name: _load(module) for name, module in sorted(_modules().items())}


def launcher(name: str) -> Launcher:
    """Return the launcher of this name; the other launchers are not imported.

    Raises:
        UsageError: there is no launcher of this name; the remedy lists the names.
    """
    modules = _modules()
    if name not in modules:
        raise UsageError(
            f"there is no launcher {name!r}", remedy=f"choose one of: {', '.join(sorted(modules))}"
        )
    return _load(modules[name])


@cache
def _modules() -> dict[str, str]:
    """Return the full module name of each launcher, by the launcher's name."""
    found: dict[str, str] = {}
    for package in iter_modules(__path__, f"{__name__}."):
        if package.ispkg:
            stated: Mapping[str, str] = getattr(import_module(package.name), "LAUNCHERS", {})
            found |= {name: f"{package.name}.{module}" for name, module in stated.items()}
    return found


def _load(module: str) -> Launcher:
    found: Launcher = import_module(module).LAUNCHER
    return found
