"""cloudrec creates GPU clusters on AWS, Google Cloud and Azure, and trains recommender models on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_contract.user_log import log

if TYPE_CHECKING:
    from cloudrec.client import Client
    from cloudrec.version import __version__

__all__ = ["Client", "__version__", "log"]


def __getattr__(name: str) -> object:
    """Import the client or the version when it is first used: a script that only logs needs neither."""
    if name == "Client":
        from cloudrec.client import Client  # noqa: PLC0415

        return Client
    if name == "__version__":
        from cloudrec.version import __version__  # noqa: PLC0415

        return __version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
