"""What a snapshot of the account has: moto's state and the stand-in's, with their moment."""

from __future__ import annotations

import copyreg
import threading
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moto.core.base_backend import BackendDict
from moto.ssm.models import ParameterDict

from cloudrec_sandbox.aws.api.world import World
from cloudrec_sandbox.core import snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator

_S3 = "s3"


@dataclass(frozen=True)
class Snapshot:
    """moto's backends by service, account and region; the owners of buckets; the world's state."""

    backends: dict[str, dict[str, dict[str, Any]]]
    owners: dict[str, Any]
    world: dict[str, Any]
    moment: float


class Snapshots(snapshots.Snapshots[World]):
    """What has been saved, by name."""

    def gathered(self, world: World) -> Snapshot:
        """Return moto's state and the stand-in's."""
        backends = {
            service.service_name: {account: dict(regions) for account, regions in service.items()}
            for service in _services()
        }
        owners: dict[str, Any] = next(
            (service.bucket_accounts for service in _services() if service.service_name == _S3), {}
        )
        return Snapshot(backends, owners, world.export(), world.now())

    def put_back(self, everything: Snapshot, world: World) -> None:
        """Restore moto's state and the stand-in's."""
        for service in _services():
            service_backends = everything.backends.get(service.service_name, {})
            service.clear()
            for account, regions in service_backends.items():
                for region, backend in regions.items():
                    dict.__setitem__(service[account], region, backend)
            if service.service_name == _S3:
                service.bucket_accounts = everything.owners
        world.take_up(everything.world, everything.moment)

    def copied(self, everything: Snapshot) -> Snapshot:
        """Return a deep copy that leaves out moto's own lists of its backends."""
        return deepcopy(everything, {id(service): service for service in _services()})


def _services() -> Iterator[Any]:
    used: Any = BackendDict
    yield from list(used._instances)  # noqa: SLF001 - moto's only list of the services in use


def _new_lock(_lock: object) -> tuple[Any, tuple[()]]:
    return threading.RLock, ()


def _parameters(parameters: ParameterDict) -> tuple[Any, ...]:
    state: Any = parameters
    return ParameterDict, (state.account_id, state.region_name), vars(state), None, iter(dict(state).items())


copyreg.pickle(type(threading.RLock()), _new_lock)  # a lock cannot be copied: each copy gets a new one
copyreg.pickle(ParameterDict, _parameters)  # a dict whose constructor needs arguments
