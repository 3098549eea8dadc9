"""Stand-ins for the clouds' services on this machine. Each is a package with a function `serve`."""

from __future__ import annotations

from pkgutil import iter_modules

_SHARED = "core"  # what the stand-ins share; it is not a stand-in itself


def names() -> list[str]:
    """Return the names of the stand-ins, without importing any."""
    return sorted(module.name for module in iter_modules(__path__) if module.ispkg and module.name != _SHARED)
