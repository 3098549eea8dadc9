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
    found = [engine for name in _modules() if (engine := _launcher_in(name)) is not None]
    return {engine.name: engine for engine in sorted(found, key=lambda engine: str(engine.name))}


def launcher(name: str) -> Launcher:
    """Return the launcher of this name; UsageError names those there are.

    Its own module is looked at first: who asks about a run has no use for what other engines import.
    """
    engine = _launcher_in(name) if name in _modules() else None
    if engine is not None and engine.name == name:
        return engine
    found = launchers()
    if name not in found:
        raise UsageError(
            f"there is no launcher {name!r}", remedy=f"choose one of: {', '.join(sorted(found))}"
        )
    return found[name]


def _modules() -> list[str]:
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in names if not name.startswith("_")]


def _launcher_in(module: str) -> Launcher | None:
    found: Launcher | None = getattr(importlib.import_module(f"{__name__}.{module}"), "LAUNCHER", None)
    return found
