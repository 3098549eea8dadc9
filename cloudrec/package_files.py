"""Data files that provider folders carry for the packages below them.

A provider folder may hold tables for `transport` (profiles.yaml) and for `kubernetes` (addons.yaml). Those
packages may not import a provider. They read the files as package data.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROVIDERS = ("cloudrec", "providers")


def provider_tables(name: str) -> Iterator[str]:
    """Yield the text of the file of this name from each provider folder that has one, by folder name."""
    # files("cloudrec.providers") would import that package, which the packages below must not.
    root = files(_PROVIDERS[0]).joinpath(_PROVIDERS[1])
    for folder in sorted(root.iterdir(), key=lambda each: each.name):
        table = folder.joinpath(name) if folder.is_dir() else None
        if table is not None and table.is_file():
            yield table.read_text(encoding="utf-8")
