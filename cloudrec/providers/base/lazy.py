"""Lazy imports: a cloud's SDK takes seconds to import, so it is imported when its first name is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


class Lazy:
    """A stand-in for a module that imports it when one of its names is used.

    For type checkers, a file imports the real module under `if TYPE_CHECKING`, and creates this object under
    `else`.

    Args:
        name: the module's name.
        load: imports a module by name.
    """

    def __init__(self, name: str, load: Callable[[str], ModuleType] = import_module) -> None:
        self._name, self._load = name, load

    def __getattr__(self, name: str) -> object:
        """Return the module's attribute of this name."""
        return getattr(self._load(self._name), name)
