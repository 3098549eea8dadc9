"""AKS's pools of GPU nodes. Asking for one succeeds at once; whether there is capacity shows later."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import all_needed, is_ours, name_of, needed
from cloudrec.cloud.offers import ON_DEMAND, SPOT
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.azure import aks, ids, network
from cloudrec.providers.azure.aks import agrees
from cloudrec.providers.azure.cluster import CLUSTER
from cloudrec.providers.azure.placement import PLACEMENT
from cloudrec.providers.azure.rows import group_name, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Difference, Resource

GPU = "gpu-nodes"
_OURS = "kubernetes.azure.com/"  # what labels begin with that AKS gives by itself
_USER = "User"


class GpuNodesDriver(aks.AksDriver):
    """Handles the pools that train."""

    kind = GPU
    changeable = frozenset({"nodes", "labels", "version"})
    deadline_s = 3600.0

    @property
    def pools(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """AKS's calls about pools."""
        return self.aks.agent_pools

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the pools of our clusters."""
        return [
            self._observe(row, location)
            for name, location in self._clusters(cluster)
            for row in self.azure.rows(self.pools.list, name, name)
            if row.mode == _USER and is_ours(row.tags or {}, cluster)
        ]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look the name up."""
        name = group_name(resource.tags[TAG_CLUSTER])
        row = self.azure.get(self.pools.get, name, name, resource.properties["pool"])
        return self._observe(row, self.azure.region) if row is not None else None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it."""
        return aks.told_by(self.row(identity))

    def row(self, identity: str) -> Any:  # noqa: ANN401 - the SDK's model
        """Describe a pool; Azure's own error where it is not there."""
        return self.azure.read(self.pools.get, ids.group_of(identity), *ids.names(identity))

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Ask for the pool, once what is left of those that could not be had is gone.

        Raises:
            BusyError: it is going.
        """
        del token
        cluster, pool = needed(resource, identities, CLUSTER), resource.properties["pool"]
        group, (name, *_) = ids.group_of(cluster), ids.names(cluster)
        self._clear(group, name, pool)
        identity = ids.resource(self.azure.subscription, group, aks.POOL_TYPE, name, pool)
        create = self.pools.begin_create_or_update
        return self.begin(identity, create, group, name, pool, self._body(resource, identities))

    def _clear(self, group: str, name: str, pool: str) -> None:
        """Let other pools go that failed: what they have counts against the quota, and costs."""
        for row in self.azure.rows(self.pools.list, group, name):
            seen = self._observe(row, self.azure.region)
            if row.mode != _USER or row.name == pool or not seen.cluster:
                continue
            if seen.condition in {Condition.FAILED, Condition.UNAVAILABLE}:
                self.delete(seen)
            elif seen.condition is not Condition.DELETING:
                continue
            raise aks.BusyError(seen.identity)

    def _body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        models, asked = self.azure.models(aks.SERVICE), resource.properties
        groups, is_spot = all_needed(resource, identities, PLACEMENT), asked["market"] == SPOT
        return models.AgentPool(
            mode=_USER,
            type_properties_type="VirtualMachineScaleSets",
            count=asked["nodes"],
            vm_size=asked["instance_type"],
            os_type="Linux",
            os_sku="Ubuntu",
            os_disk_size_gb=asked["disk_gib"],
            orchestrator_version=asked.get("version"),
            vnet_subnet_id=needed(resource, identities, network.SUBNET),
            availability_zones=[asked["zone"]] if asked["zone"] else None,
            proximity_placement_group_id=groups[0] if groups else None,
            capacity_reservation_group_id=asked["reservation"] or None,
            scale_set_priority="Spot" if is_spot else None,
            # What is evicted and only deallocated would go on counting against the quota.
            scale_set_eviction_policy="Delete" if is_spot else None,
            spot_max_price=asked["max_price"] if is_spot else None,
            gpu_profile=models.GPUProfile(driver="Install"),
            # By itself AKS adds a machine for the time of an upgrade, where there may be none to be had.
            upgrade_settings=None
            if is_spot
            else models.AgentPoolUpgradeSettings(max_surge="0", max_unavailable="1"),
            node_labels=dict(asked["labels"]),
            node_taints=list(asked["taints"]),
            tags=dict(resource.tags),
        )

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Compare; a wanted version may leave the patch to Azure."""
        wanted, there = resource.properties.get("version"), observed.properties
        if wanted and agrees(there["version"], wanted):
            observed = replace(observed, properties={**there, "version": wanted})
        return super().difference(resource, observed)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Make one change after the other: AKS makes one at a time."""
        del identities
        identity, asked = observed.identity, resource.properties
        self.await_end(identity)
        row = self.row(identity)
        names = (ids.group_of(identity), *ids.names(identity))
        put = partial(self.write, identity, self.pools.begin_create_or_update, *names, row=row)
        there = _properties(row)
        if asked["nodes"] != there["nodes"] or asked["labels"] != there["labels"]:
            row.count = asked["nodes"]
            row.node_labels = {**_automatic(row.node_labels), **asked["labels"]}
            put()
        if "version" in asked and not agrees(there["version"], asked["version"]):
            row.orchestrator_version = asked["version"]
            put()

    def remove(self, observed: Observed) -> None:
        """Delete it, whatever runs there."""
        identity = observed.identity
        names = (ids.group_of(identity), *ids.names(identity))
        self.stop(identity, self.row(identity), self.pools.begin_abort_latest_operation, *names)
        delete = self.pools.begin_delete
        self.begin(identity, delete, *names, is_removal=True, ignore_pod_disruption_budget=True)

    def _clusters(self, cluster: str | None) -> Sequence[tuple[str, str]]:
        """Return name and region of this cluster of ours, or of all."""
        calls = self.aks.managed_clusters
        if cluster is not None:
            name = group_name(cluster)
            rows = [row] if (row := self.azure.get(calls.get, name, name)) is not None else []
        else:
            rows = self.azure.rows(calls.list)
        return [(row.name, place(row.location)) for row in rows if is_ours(row.tags or {}, cluster)]

    def _observe(self, row: Any, location: str) -> Observed:  # noqa: ANN401 - the SDK's model
        tags = row.tags or {}
        condition, reason = aks.told_by(row)
        return Observed(
            kind=GPU,
            name=name_of(tags, row.name),
            identity=ids.resource(
                self.azure.subscription, ids.group_of(row.id), aks.POOL_TYPE, *ids.names(row.id)
            ),
            condition=condition,
            properties=_properties(row),
            tags=tags,
            hourly_usd=self.azure.prices.nodes(row.vm_size, row.count or 0),
            reason=reason,
            location=location,
        )


def _properties(row: Any) -> dict[str, Any]:  # noqa: ANN401 - the SDK's model
    is_spot = row.scale_set_priority == "Spot"
    labels = row.node_labels or {}
    return {
        "pool": row.name,
        "instance_type": row.vm_size,
        "zone": "".join(row.availability_zones or ()),
        "market": SPOT if is_spot else ON_DEMAND,
        "nodes": row.count,
        "labels": {name: value for name, value in labels.items() if not name.startswith(_OURS)},
        "reservation": (row.capacity_reservation_group_id or "").lower(),
        "version": str(row.current_orchestrator_version or row.orchestrator_version or ""),
        **({"max_price": row.spot_max_price} if is_spot else {}),
    }


def _automatic(labels: Mapping[str, str] | None) -> dict[str, str]:
    return {name: value for name, value in (labels or {}).items() if name.startswith(_OURS)}
