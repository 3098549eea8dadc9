"""AKS's pools of GPU nodes. Asking for one succeeds at once; whether there is capacity shows later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from azure.core import MatchConditions

from cloudrec.cloud.driver import all_needed, is_ours, name_of, needed
from cloudrec.cloud.offers import SPOT
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.azure import aks
from cloudrec.providers.azure.aks import agrees, condition_of
from cloudrec.providers.azure.cluster import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Difference, Resource

GPU = "gpu-nodes"
PLACEMENT = "proximity-placement-group"
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
            self._observe(row)
            for name in self._clusters(cluster)
            for row in self.azure.rows(self.pools.list, name, name)
            if row.mode == _USER and is_ours(row.tags or {}, cluster)
        ]

    def find(self, resource: Resource) -> Observed | None:
        """Look the name up."""
        name = f"{aks.PREFIX}{resource.tags[TAG_CLUSTER]}"
        row = self.azure.get(self.pools.get, name, name, resource.properties["pool"])
        return self._observe(row) if row is not None else None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it."""
        return condition_of(self.azure.read(self.pools.get, *_names(identity)))

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Ask for the pool."""
        del token
        asked, cluster = resource.properties, needed(resource, identities, CLUSTER)
        identity = f"{cluster}/agentPools/{asked['pool']}"
        models = self.azure.models("containerservice")
        placement = all_needed(resource, identities, PLACEMENT)
        is_spot = asked["market"] == SPOT
        body = models.AgentPool(
            mode=_USER,
            type_properties_type="VirtualMachineScaleSets",
            count=asked["nodes"],
            vm_size=asked["instance_type"],
            os_type="Linux",
            os_sku="Ubuntu",
            os_disk_size_gb=asked["disk_gib"],
            orchestrator_version=asked.get("version"),
            vnet_subnet_id=needed(resource, identities, "subnet"),
            availability_zones=[asked["zone"]] if asked["zone"] else None,
            proximity_placement_group_id=placement[0] if placement else None,
            capacity_reservation_group_id=asked["reservation"] or None,
            scale_set_priority="Spot" if is_spot else None,
            # What is evicted and only deallocated would go on counting against the quota.
            scale_set_eviction_policy="Delete" if is_spot else None,
            spot_max_price=asked["max_price"] if is_spot else None,
            gpu_profile=models.GPUProfile(driver="Install"),
            node_labels=dict(asked["labels"]),
            node_taints=list(asked["taints"]),
            tags=dict(resource.tags),
        )
        self.begin(identity, self.pools.begin_create_or_update, *_names(identity), body)
        return identity

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
        row = self.azure.read(self.pools.get, *_names(identity))
        self.await_end(identity, row)
        there = _properties(row)
        changes = False
        if asked["nodes"] != there["nodes"] or asked["labels"] != there["labels"]:
            row.count = asked["nodes"]
            row.node_labels = {**_automatic(row.node_labels), **asked["labels"]}
            changes = True
        elif "version" in asked and not agrees(there["version"], asked["version"]):
            row.orchestrator_version = asked["version"]
            changes = True
        if changes:
            self.changed(
                identity,
                self.pools.begin_create_or_update,
                *_names(identity),
                row,
                etag=row.e_tag,
                match_condition=MatchConditions.IfNotModified if row.e_tag else None,
            )

    def remove(self, observed: Observed) -> None:
        """Delete it, whatever runs there."""
        identity, names = observed.identity, _names(observed.identity)
        row = self.azure.read(self.pools.get, *names)
        self.end(identity, row, self.pools.begin_abort_latest_operation, *names)
        self.begin(identity, self.pools.begin_delete, *names, ignore_pod_disruption_budget=True)

    def _clusters(self, cluster: str | None) -> Sequence[str]:
        """Return Azure's names of this cluster of ours, or of all."""
        if cluster is not None:
            return [f"{aks.PREFIX}{cluster}"]
        rows = self.azure.rows(self.aks.managed_clusters.list)
        return [row.name for row in rows if is_ours(row.tags or {}, None) and row.location == self.azure.region]

    def _observe(self, row: Any) -> Observed:  # noqa: ANN401 - the SDK's model
        condition, reason = self.told(row.id, *condition_of(row))
        tags = row.tags or {}
        return Observed(
            kind=GPU,
            name=name_of(tags, row.name),
            identity=row.id,
            condition=condition,
            properties=_properties(row),
            tags=tags,
            hourly_usd=self.azure.prices.nodes(row.vm_size, row.count or 0),
            reason=reason,
            location=self.azure.region,
        )


def _names(identity: str) -> tuple[str, str, str]:
    """Return resource group, cluster and pool that an id names."""
    parts = identity.split("/")
    return parts[4], parts[-3], parts[-1]


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
