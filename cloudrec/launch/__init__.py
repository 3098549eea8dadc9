"""Launchers: how a training run is started, watched and stopped. One file a launcher, found by looking.

A launcher is a module of this package that defines `LAUNCHER`, an object that keeps to the protocol in
`base`. Nothing lists them: a new engine is a new file.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from cloudrec.launch.base import Launcher


def launchers() -> dict[str, Launcher]:
    """Return every launcher that this package holds, by name."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    modules = (importlib.import_module(f"{__name__}.{name}") for name in names if not name.startswith("_"))
    found = [module.LAUNCHER for module in modules if hasattr(module, "LAUNCHER")]
    return {launcher.name: launcher for launcher in sorted(found, key=lambda launcher: str(launcher.name))}


def launcher(name: str) -> Launcher:
    """Return the launcher of this name; UsageError names those there are."""
    found = launchers()
    if name not in found:
        raise UsageError(
            f"there is no launcher {name!r}", remedy=f"choose one of: {', '.join(sorted(found))}"
        )
    return found[name]
