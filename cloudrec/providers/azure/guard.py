"""What the guard in a cluster may scale: the one pool that trains, whichever of several it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.cloud.driver import all_needed
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY
from cloudrec.providers.azure import identity
from cloudrec.providers.azure.node_pools import GPU
from cloudrec.providers.azure.rows import group_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.driver import AzureDriver
    from cloudrec.providers.azure.layout import Layout

SCALER = "guard-role"
KINDS: Mapping[str, AbstractSet[str]] = {SCALER: frozenset({identity.IDENTITY, GPU})}


def resources(layout: Layout) -> list[Resource]:
    """Describe the role on the pool."""
    scaler = layout.resource(
        SCALER,
        needs=(layout.key(identity.IDENTITY, identity.GUARD), layout.key(GPU)),
        properties={
            "role": "Azure Kubernetes Service Contributor Role",
            "principal": "",
            "identity": f"{layout.name}-{identity.GUARD}",
            "principal_type": "ServicePrincipal",
        },
    )
    return [scaler]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the driver by its kind."""
    return {SCALER: ScalerDriver(azure)}


class ScalerDriver(identity.RoleDriver):
    """Handles the role on a pool, which is told by where the pool is that was had."""

    kind = SCALER

    def scope(self, resource: Resource, identities: Mapping[str, str] | None) -> str:
        """Return the pool's id."""
        if identities is not None:
            return all_needed(resource, identities, GPU)[0]
        name = group_name(resource.tags[TAG_CLUSTER])
        rows = self.azure.rows(self.azure.client("containerservice").agent_pools.list, name, name)
        pools = [row.id for row in rows if (row.tags or {}).get(TAG_KEY, "").startswith(f"{GPU}/")]
        return str(pools[0]) if pools else ""
