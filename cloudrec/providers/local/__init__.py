"""This machine as a cluster of one node: no cloud, no cost, the same commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.local.cluster import LocalProvider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.home import Home
    from cloudrec.provider import Provider


def create(home: Home, environment: Mapping[str, str]) -> Provider:
    """Return the provider; `environment` matters only to providers with credentials."""
    del environment
    return LocalProvider(home)
