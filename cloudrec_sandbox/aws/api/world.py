"""All that the stand-in knows: moto's state and its own."""

from __future__ import annotations

from typing import Any

from moto.backends import get_backend

from cloudrec_sandbox.aws.api.registry import book
from cloudrec_sandbox.core import world

ACCOUNT = "123456789012"  # moto's default account


class World(world.World):
    """One AWS account."""

    def __init__(self) -> None:
        super().__init__(book.default_durations)

    def backend(self, service: str, region: str) -> Any:  # noqa: ANN401 - moto's backends share no useful type
        """Return moto's state of a service (moto's name); a global service is in the region `aws`."""
        backends: Any = get_backend(service)  # type: ignore[call-overload]  # any of moto's names
        return backends[ACCOUNT][region]

    def backends(self, service: str) -> dict[str, Any]:
        """Return moto's states of a service by region, of the regions used so far."""
        backends: Any = get_backend(service)  # type: ignore[call-overload]  # any of moto's names
        return dict(backends[ACCOUNT])
