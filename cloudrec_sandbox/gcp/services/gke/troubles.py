"""Clusters and pools that fail by themselves.

`gke_error` of /_control: {"cluster": NAME, "pool": NAME, "message": TEXT} gives a pool of a cluster the
status RUNNING_WITH_ERROR from now on; without a pool, the cluster itself gets ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.cloud.container_v1.types import Cluster, NodePool, StatusCondition

from cloudrec_sandbox.gcp.api.registry import setting
from cloudrec_sandbox.gcp.services.gke.state import Gke

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.world import World


def _write(world: World, value: Any) -> None:  # noqa: ANN401 - JSON
    if not isinstance(value, dict) or not {"cluster"} <= value.keys() <= {"cluster", "pool", "message"}:
        raise ValueError('gke_error takes {"cluster": NAME} and perhaps "pool" and "message"')
    found = [each for each in world.state(Gke).clusters.values() if each.name == value["cluster"]]
    if not found or value.get("pool", "cpu") not in {*found[0].pools, "cpu"}:
        raise ValueError(f"there is no {value['cluster']} {value.get('pool', '')}".rstrip())
    message = str(value.get("message") or "its service account is gone")
    code = StatusCondition.Code.GKE_SERVICE_ACCOUNT_DELETED
    pool = value.get("pool")
    broken = found[0].pools[pool].message if pool else found[0].message
    broken.conditions = [StatusCondition(code=code, message=message)]
    broken.status = NodePool.Status.RUNNING_WITH_ERROR if pool else Cluster.Status.ERROR


setting("gke_error", read=lambda _world: None, write=_write)
