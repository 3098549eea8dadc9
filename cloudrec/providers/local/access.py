"""Access to this machine: launchers start processes directly, with all sockets on the loopback interface."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError
from cloudrec.providers.base.access import HostAccess, RayAccess
from cloudrec.providers.local import ray_driver, storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloudrec.engine.graph import Observed

_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def of(cluster_folder: Path, machine: Observed | None) -> HostAccess | RayAccess:
    """Return the access to a registered machine; PreflightError if `up` was not completed for it."""
    name = cluster_folder.name
    folder = storage.pointed_at(cluster_folder)
    if machine is None or folder is None:
        missing = "this machine is not registered" if machine is None else "its storage folder is gone"
        raise PreflightError(
            f"cluster {name!r} is not up: {missing}", remedy=f"cloudrec up local --cluster {name}"
        )
    head = ray_driver.head_of(cluster_folder)
    access: Callable[..., HostAccess | RayAccess] = HostAccess
    if head is not None:
        token_file = str(ray_driver.token_file_of(cluster_folder))
        access = partial(RayAccess, address=head.url, token_file=token_file)
    return access(
        launchers=("local", "ray", "slurm"),
        nodes=1,
        gpus_per_node=len(machine.properties["gpus"]),
        cores_per_node=machine.properties["cores"],
        storage=folder.identity,
        environment={"GLOO_SOCKET_IFNAME": _LOOPBACK, "NCCL_SOCKET_IFNAME": _LOOPBACK},
    )
