"""The whole account saved under a name, and taken up again: moto's state and ours, with the moment of both.

What the clients did meanwhile stays in the list of calls; faults and deaths in force stay in force.
"""

from __future__ import annotations

import copyreg
import threading
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moto.core.base_backend import BackendDict
from moto.ssm.models import ParameterDict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.sandbox.aws.world import World

_S3 = "s3"


@dataclass(frozen=True)
class Snapshot:
    """moto's backends by service, account and region; whose the buckets are; what the world knows."""

    backends: dict[str, dict[str, dict[str, Any]]]
    owners: dict[str, Any]
    world: dict[str, Any]
    moment: float


@dataclass
class Snapshots:
    """What has been saved, by name."""

    saved: dict[str, Snapshot] = field(default_factory=dict)

    def save(self, name: str, world: World) -> None:
        """Keep a copy of everything."""
        world.settle()
        backends = {
            service.service_name: {account: dict(regions) for account, regions in service.items()}
            for service in _services()
        }
        owners: dict[str, Any] = next(
            (service.bucket_accounts for service in _services() if service.service_name == _S3), {}
        )
        self.saved[name] = _copied(Snapshot(backends, owners, world.export(), world.now()))

    def restore(self, name: str, world: World) -> None:
        """Make everything as it was; ValueError for a name that was never saved."""
        if name not in self.saved:
            raise ValueError(
                f"nothing was saved as {name!r}; there are: {', '.join(sorted(self.saved)) or 'none'}"
            )
        snapshot = _copied(self.saved[name])
        for service in _services():
            service_backends = snapshot.backends.get(service.service_name, {})
            service.clear()
            for account, regions in service_backends.items():
                for region, backend in regions.items():
                    dict.__setitem__(service[account], region, backend)
            if service.service_name == _S3:
                service.bucket_accounts = snapshot.owners
        world.take_up(snapshot.world, snapshot.moment)


def _services() -> Iterator[Any]:
    used: Any = BackendDict
    yield from list(used._instances)  # noqa: SLF001 - moto's only list of the services in use


def _copied(snapshot: Snapshot) -> Snapshot:
    """A deep copy in one go, so that what refers to each other still does."""
    return deepcopy(snapshot, {id(service): service for service in _services()})


def _new_lock(_lock: object) -> tuple[Any, tuple[()]]:
    return threading.RLock, ()


def _parameters(parameters: ParameterDict) -> tuple[Any, ...]:
    state: Any = parameters
    return ParameterDict, (state.account_id, state.region_name), vars(state), None, iter(dict(state).items())


copyreg.pickle(type(threading.RLock()), _new_lock)  # the copies have locks of their own
copyreg.pickle(ParameterDict, _parameters)  # a dict whose maker wants arguments
