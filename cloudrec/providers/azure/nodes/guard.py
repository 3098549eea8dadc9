"""The guard's role on the pool of GPU nodes, whose id is known only when a candidate has been created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.providers.azure.api.rows import group_name
from cloudrec.providers.azure.identity import identity
from cloudrec.providers.azure.nodes.node_pools import GPU
from cloudrec.providers.azure.nodes.nodes import candidate_key, places, pool_name
from cloudrec.providers.base.driver import all_needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.api.driver import AzureDriver
    from cloudrec.providers.azure.layout import AzureLayout
    from cloudrec.providers.base.offers import Placement

SCALER = "guard-role"
KINDS: Mapping[str, AbstractSet[str]] = {SCALER: frozenset({identity.IDENTITY, GPU})}


@dataclass(frozen=True, kw_only=True)
class AzurePoolRoleProperties(identity.AzureRoleProperties):
    """The requested properties of the role assignment on the pool of GPU nodes.

    Attributes:
        pools: the names of the pools of the candidates, the best first.
    """

    pools: tuple[str, ...]


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the role assignment on the pool; on each pool of a managed cluster, which has all of them."""
    found = places(layout)
    if layout.cluster.managed:
        return [_scaler(layout, [place], pool_name(place), candidate_key(layout, place)) for place in found]
    return [_scaler(layout, found, "", layout.key(GPU))]


def _scaler(layout: AzureLayout, on: Sequence[Placement], suffix: str, pool: str) -> Resource:
    """Return the role assignment on the one of these pools that exists."""
    return layout.resource(
        SCALER,
        suffix,
        needs=(layout.key(identity.IDENTITY, identity.GUARD), pool),
        properties=AzurePoolRoleProperties(
            role="Azure Kubernetes Service Contributor Role",
            principal="",
            identity=f"{layout.name}-{identity.GUARD}",
            principal_type="ServicePrincipal",
            pools=tuple(pool_name(place) for place in on),
        ),
        hourly_usd=FREE,
    )


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the driver, by kind."""
    return {SCALER: ScalerDriver(azure)}


class ScalerDriver(identity.RoleDriver[AzurePoolRoleProperties]):
    """Handles the role assignment on a pool; its scope is the candidate that was created."""

    kind = SCALER

    def make(
        self, resource: Resource[AzurePoolRoleProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Assign the role, and remove those on pools of an earlier request, which Azure keeps after them.

        Such a pool is removed by the same `up`; if that is interrupted, the workflow of the cluster's end
        still deletes the pool.
        """
        identity = super().make(resource, token=token, identities=identities)
        for seen in self.search(resource.tags[TAG_CLUSTER]):
            pool = seen.identity.partition("/providers/microsoft.authorization/")[0].rpartition("/")[2]
            if seen.key == resource.key and pool not in resource.properties.pools:
                self.calls.delete_by_id(seen.identity)
        return identity

    def scope(self, resource: Resource[AzurePoolRoleProperties], identities: Mapping[str, str] | None) -> str:
        """Return the pool's id; empty if no candidate has one."""
        if identities is not None:
            return all_needed(resource, identities, GPU)[0]
        name = group_name(resource.tags[TAG_CLUSTER])
        # `find` has no identities. The pool of an earlier request, such as for spot nodes, is no candidate:
        # it is removed, and the role is assigned on the pool that takes its place.
        rows = self.azure.rows(self.azure.containerservice.agent_pools.list, name, name)
        there = {row.name: row.id for row in rows}
        return next((str(there[pool]) for pool in resource.properties.pools if pool in there), "")
