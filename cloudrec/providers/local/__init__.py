"""The local provider: this machine as a cluster of one node, free of charge, with the same commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.base.protocol import Needs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.home import Home
    from cloudrec.providers.base.protocol import Provider

__all__ = ["NEEDS", "create"]

NEEDS = Needs(extra="trainer")  # only `train` needs the packages, and checks for them itself; `up` does not


def create(home: Home, environment: Mapping[str, str]) -> Provider:
    """Return the provider; `environment` matters only to providers with credentials."""
    from cloudrec.providers.local.cluster import LocalProvider  # noqa: PLC0415 - as for the others

    del environment
    return LocalProvider(home)
