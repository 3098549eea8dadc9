"""How a run reaches this machine: directly, with every socket on the loopback interface."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError
from cloudrec.provider import Access

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Observed

_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def of(name: str, *, machine: Observed | None, folder: Observed | None, details: Mapping[str, Any]) -> Access:
    """Return the access to a registered machine; PreflightError when it is not (wholly) up."""
    if machine is None or folder is None:
        missing = "this machine is not registered" if machine is None else "its storage folder is gone"
        raise PreflightError(
            f"cluster {name!r} is not up: {missing}", remedy=f"cloudrec up local --cluster {name}"
        )
    return Access(
        launchers=("local", "ray", "slurm"),
        nodes=1,
        gpus_per_node=len(machine.properties["gpus"]),
        cores_per_node=machine.properties["cores"],
        storage=folder.identity,
        details=details,
        environment={"GLOO_SOCKET_IFNAME": _LOOPBACK, "NCCL_SOCKET_IFNAME": _LOOPBACK},
    )
