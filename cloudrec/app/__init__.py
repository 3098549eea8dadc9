"""The use cases behind the command line, and the only place that picks a provider or a launcher.

Each is imported when it is asked for: `status` and `logs` need neither what makes clusters nor what
launches runs. No module here has the name of a use case, which it would hide once it is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudrec.app.addons import examine, install, installed, uninstall, wanted
    from cloudrec.app.choosing import choose
    from cloudrec.app.context import AppContext
    from cloudrec.app.leaking import Leak, leaks, remove_leaks
    from cloudrec.app.running import fetch, run_folder, runs, runs_of, stop_run
    from cloudrec.app.smoke import smoke_run
    from cloudrec.app.training import Launch, resume, train
    from cloudrec.app.upkeep import (
        ClusterView,
        Removal,
        catalog,
        clusters,
        doctor,
        down,
        expired,
        up,
    )

__all__ = [
    "AppContext",
    "ClusterView",
    "Launch",
    "Leak",
    "Removal",
    "catalog",
    "choose",
    "clusters",
    "doctor",
    "down",
    "examine",
    "expired",
    "fetch",
    "install",
    "installed",
    "leaks",
    "remove_leaks",
    "resume",
    "run_folder",
    "runs",
    "runs_of",
    "smoke_run",
    "stop_run",
    "train",
    "uninstall",
    "up",
    "wanted",
]
_PLACES = {
    "addons": "examine install installed uninstall wanted",
    "choosing": "choose",
    "context": "AppContext",
    "leaking": "Leak leaks remove_leaks",
    "running": "fetch run_folder runs runs_of stop_run",
    "smoke": "smoke_run",
    "training": "Launch resume train",
    "upkeep": "ClusterView Removal catalog clusters doctor down expired up",
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import the module of a use case."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
