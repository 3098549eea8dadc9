"""The guard's role on the pool of GPU nodes, whose id is known only when a candidate has been created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY
from cloudrec.providers.azure.api.rows import group_name
from cloudrec.providers.azure.identity import identity
from cloudrec.providers.azure.nodes.node_pools import GPU
from cloudrec.providers.base.driver import all_needed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.api.driver import AzureDriver
    from cloudrec.providers.azure.layout import AzureLayout

SCALER = "guard-role"
KINDS: Mapping[str, AbstractSet[str]] = {SCALER: frozenset({identity.IDENTITY, GPU})}


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the role assignment on the pool."""
    scaler = layout.resource(
        SCALER,
        needs=(layout.key(identity.IDENTITY, identity.GUARD), layout.key(GPU)),
        properties=identity.AzureRoleProperties(
            role="Azure Kubernetes Service Contributor Role",
            principal="",
            identity=f"{layout.name}-{identity.GUARD}",
            principal_type="ServicePrincipal",
        ),
        hourly_usd=FREE,
    )
    return [scaler]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the driver, by kind."""
    return {SCALER: ScalerDriver(azure)}


class ScalerDriver(identity.RoleDriver[identity.AzureRoleProperties]):
    """Handles the role assignment on a pool; its scope is the candidate that was created."""

    kind = SCALER

    def scope(
        self, resource: Resource[identity.AzureRoleProperties], identities: Mapping[str, str] | None
    ) -> str:
        """Return the pool's id; empty if there is no pool."""
        if identities is not None:
            return all_needed(resource, identities, GPU)[0]
        name = group_name(resource.tags[TAG_CLUSTER])
        # `find` has no identities: the pool of the candidate that was created has a tag with its key.
        rows = self.azure.rows(self.azure.containerservice.agent_pools.list, name, name)
        pools = [row.id for row in rows if (row.tags or {}).get(TAG_KEY, "").startswith(f"{GPU}/")]
        return str(pools[0]) if pools else ""
