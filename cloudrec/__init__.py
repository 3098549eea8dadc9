"""cloudrec creates GPU clusters on AWS, Google Cloud and Azure, and trains recommender models on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.version import __version__
from cloudrec_contract.user_log import log

if TYPE_CHECKING:
    from cloudrec.client import Client

__all__ = ["Client", "__version__", "log"]


def __getattr__(name: str) -> object:
    """Import the client when it is first used: a script that only logs needs none of it."""
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cloudrec.client import Client  # noqa: PLC0415

    return Client
