"""AKS's pools of GPU nodes. AKS accepts a pool at once, and reports a lack of capacity only later."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import HttpResponseError

from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed, PoolMachines, Properties
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.api import aks, ids, models
from cloudrec.providers.azure.api.aks import agrees
from cloudrec.providers.azure.api.rows import group_name, node_group_name, place
from cloudrec.providers.azure.api.tracked import our_groups
from cloudrec.providers.azure.cluster.cluster import CLUSTER
from cloudrec.providers.azure.network import network
from cloudrec.providers.azure.network.placement import PLACEMENT
from cloudrec.providers.base.driver import all_needed, is_ours, name_of, needed, with_nodes
from cloudrec.providers.base.offers import ON_DEMAND, SPOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from azure.mgmt.containerservice.operations import AgentPoolsOperations

    from cloudrec.engine.graph import Difference, Resource

GPU = "gpu-nodes"
_AKS_LABEL = "kubernetes.azure.com/"  # prefix of the labels that AKS sets itself
_USER = "User"
_OF_POOL = "aks-managed-poolName"  # a tag of each scale set that AKS makes
_EVICTED = "Azure brings no evicted spot node back, until the pool's count is set again"


@dataclass(frozen=True, kw_only=True)
class AzureGpuNodesProperties(Properties):
    """The requested properties of a pool of GPU nodes.

    Attributes:
        pool: its name in AKS.
        instance_type: VM size of its nodes.
        zone: the nodes' zone; empty in a region without zones, or if no zone has the size.
        capacity: SPOT or ON_DEMAND.
        nodes: number of nodes.
        disk_gib: size of each node's OS disk, in GiB.
        labels: the nodes' labels, without those that AKS sets itself.
        taints: the nodes' taints, without those that AKS sets itself.
        reservation: id of a capacity reservation group, in lower case; empty if none is used.
        max_price: of a spot node, in USD an hour; -1 for up to the on-demand price, None if not spot.
        version: of Kubernetes, such as 1.34 or 1.34.2; None for the cluster's at creation.
    """

    pool: str
    instance_type: str
    zone: str
    capacity: str
    nodes: int
    disk_gib: int
    labels: dict[str, str]
    taints: list[str]
    reservation: str
    max_price: float | None = None
    version: str | None = None


class AzureGpuNodesDriver(aks.AksDriver[AzureGpuNodesProperties]):
    """Handles pools of GPU nodes."""

    kind = GPU
    changeable = frozenset({"nodes", "labels", "version"})
    deadline_s = 3600.0

    @property
    def pools(self) -> AgentPoolsOperations:
        """The SDK's methods for pools."""
        return self.azure.containerservice.agent_pools

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return the GPU pools of the clusters."""
        return [
            self._observe(row, location)
            for name, location in self._clusters(cluster)
            for row in self.azure.rows(self.pools.list, name, name)
            if row.mode == _USER and is_ours(row.tags or {}, cluster)
        ]

    def fetch(self, resource: Resource[AzureGpuNodesProperties]) -> Observed | None:
        """Return the pool of this name; None if there is none."""
        name = group_name(resource.tags[TAG_CLUSTER])
        row = self.azure.get(self.pools.get, name, name, resource.properties.pool)
        if row is None:
            return None
        seen = self._observe(row, self.azure.region)
        machines = seen.machines
        # A pool that could not grow has nodes that may be in use: it is never replaced.
        if seen.condition is Condition.UNAVAILABLE and machines is not None and machines.running:
            return replace(seen, condition=Condition.READY)
        return seen

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the condition of a pool, and why it failed."""
        return aks.condition_of(self.row(identity))

    def row(self, identity: str) -> models.containerservice.AgentPool:
        """Return the SDK's model of a pool; raises Azure's error if there is none."""
        name, pool = ids.names(identity)
        return self.azure.read(self.pools.get, ids.group_of(identity), name, pool)

    def make(
        self, resource: Resource[AzureGpuNodesProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the pool, after the failed pools of other candidates are deleted.

        Raises:
            AksBusyError: such a pool is being deleted.
        """
        del token
        cluster, pool = needed(resource, identities, CLUSTER), resource.properties.pool
        group, (name, *_) = ids.group_of(cluster), ids.names(cluster)
        self._clear(group, name, pool)
        identity = ids.resource(self.azure.subscription, group, aks.POOL_TYPE, name, pool)
        create = self.pools.begin_create_or_update
        return self.start(identity, create, group, name, pool, self._body(resource, identities))

    def _clear(self, group: str, name: str, pool: str) -> None:
        """Delete other pools that failed, whose nodes count against the quota and cost money.

        Raises:
            AksBusyError: such a pool exists or is being deleted.
        """
        for row in self.azure.rows(self.pools.list, group, name):
            seen = self._observe(row, self.azure.region)
            if row.mode != _USER or row.name == pool or not seen.cluster:
                continue
            if seen.condition in {Condition.FAILED, Condition.UNAVAILABLE}:
                self.delete(seen)
            elif seen.condition is not Condition.DELETING:
                continue
            raise aks.AksBusyError(seen.identity)

    def _body(
        self, resource: Resource[AzureGpuNodesProperties], identities: Mapping[str, str]
    ) -> models.containerservice.AgentPool:
        of, requested = models.containerservice, resource.properties
        groups, is_spot = all_needed(resource, identities, PLACEMENT), requested.capacity == SPOT
        wanted = of.AgentPoolManagedClusterAgentPoolProfileProperties(
            mode=_USER,
            type_properties_type="VirtualMachineScaleSets",
            count=requested.nodes,
            vm_size=requested.instance_type,
            os_type="Linux",
            os_sku="Ubuntu",
            os_disk_size_gb=requested.disk_gib,
            orchestrator_version=requested.version,
            vnet_subnet_id=needed(resource, identities, network.SUBNET),
            availability_zones=[requested.zone] if requested.zone else None,
            proximity_placement_group_id=groups[0] if groups else None,
            capacity_reservation_group_id=requested.reservation or None,
            scale_set_priority="Spot" if is_spot else None,
            # An evicted node that is only deallocated would still count against the quota.
            scale_set_eviction_policy="Delete" if is_spot else None,
            spot_max_price=requested.max_price if is_spot else None,
            # AKS installs the driver alone; the device plugin is an add-on.
            gpu_profile=of.GPUProfile(driver="Install"),
            # By default AKS adds a machine during an upgrade, for which there may be no capacity. It refuses
            # the setting on spot pools.
            upgrade_settings=None
            if is_spot
            else of.AgentPoolUpgradeSettings(max_surge="0", max_unavailable="1"),
            node_labels=dict(requested.labels),
            node_taints=list(requested.taints),
            tags=dict(resource.tags),
        )
        return of.AgentPool(properties=wanted)

    def difference(
        self, resource: Resource[AzureGpuNodesProperties], observed: Observed
    ) -> Difference | None:
        """Compare the properties; a requested version 1.34 matches every 1.34.x."""
        wanted, there = resource.properties.version, observed.properties
        if wanted and agrees(there["version"], wanted):
            observed = replace(observed, properties={**there, "version": wanted})
        found, machines = super().difference(resource, observed), observed.machines
        is_short = machines is not None and machines.running < resource.properties.nodes
        if found is None or machines is None or not is_short or not machines.reason:
            return found
        reason = (
            f"{found.reason} ({machines.reason})" if machines.reason not in found.reason else found.reason
        )
        return replace(found, reason=reason)

    def change(
        self,
        resource: Resource[AzureGpuNodesProperties],
        observed: Observed,
        *,
        identities: Mapping[str, str],
    ) -> None:
        """Begin the first change that is needed, and raise AksBusyError; called again, begin the next one."""
        del identities
        identity, requested = observed.identity, resource.properties
        self.await_end(identity)
        row = self.row(identity)
        names = (ids.group_of(identity), *ids.names(identity))
        put = partial(self.write, identity, self.pools.begin_create_or_update, *names, row=row)
        there = _properties(row)
        of = row.properties = (
            row.properties or models.containerservice.AgentPoolManagedClusterAgentPoolProfileProperties()
        )
        machines = self._machines(row)
        # AKS may show the requested count although machines were evicted: the same count brings them back.
        lacks = machines is not None and machines.running < requested.nodes
        # A pool that could not grow is Failed until another write succeeds.
        is_failed = aks.condition_of(row)[0] in {Condition.FAILED, Condition.UNAVAILABLE}
        if requested.nodes != there["nodes"] or lacks or is_failed or requested.labels != there["labels"]:
            of.count = requested.nodes
            # A put replaces all labels, so that AKS's own must be in it.
            of.node_labels = {**_automatic(row.node_labels), **requested.labels}
            put()
        if requested.version and not agrees(there["version"], requested.version):
            of.orchestrator_version = requested.version
            put()

    def remove(self, observed: Observed) -> None:
        """Delete the pool, even if pod disruption budgets protect its pods."""
        identity = observed.identity
        names = (ids.group_of(identity), *ids.names(identity))
        self.stop(identity, self.row(identity), self.pools.begin_abort_latest_operation, *names)
        # A disruption budget could otherwise block the deletion, while the nodes cost money.
        delete = self.pools.begin_delete
        self.start(identity, delete, *names, is_removal=True, ignore_pod_disruption_budget=True)

    def as_before(
        self, resource: Resource[AzureGpuNodesProperties], observed: Observed
    ) -> Resource[AzureGpuNodesProperties] | None:
        """Return the pool with the size that it had; None if it had no nodes."""
        machines = observed.machines
        return with_nodes(resource, machines.running if machines else observed.properties.get("nodes"))

    def _clusters(self, cluster: str | None) -> Sequence[tuple[str, str]]:
        """Return the name and the region of a cluster, or for None of all clusters that cloudrec created."""
        calls = self.azure.containerservice.managed_clusters
        # By group: a deployer's role may hold in the groups of its clusters only.
        names = (
            [group_name(cluster)]
            if cluster is not None
            else [group.name or "" for group in our_groups(self.azure)]
        )
        rows = [row for name in names if (row := self.azure.get(calls.get, name, name)) is not None]
        return [(row.name or "", place(row.location)) for row in rows if is_ours(row.tags or {}, cluster)]

    def _observe(self, row: models.containerservice.AgentPool, location: str) -> Observed:
        tags = row.tags or {}
        condition, reason = aks.condition_of(row)
        machines = self._machines(row) if condition is not Condition.PENDING else None
        running = machines.running if machines is not None else row.count or 0
        return Observed(
            kind=GPU,
            name=name_of(tags, row.name or ""),
            identity=ids.resource(
                self.azure.subscription, ids.group_of(row.id), aks.POOL_TYPE, *ids.names(row.id)
            ),
            condition=condition,
            properties=_properties(row),
            tags=tags,
            hourly_usd=self.azure.prices_at(location).nodes(
                row.vm_size or "", running, SPOT if row.scale_set_priority == "Spot" else ON_DEMAND
            ),
            reason=reason,
            location=location,
            machines=machines,
        )

    def _machines(self, row: models.containerservice.AgentPool) -> PoolMachines | None:
        """Return the machines of a pool's scale set; None if there is none, or if it may not be read.

        AKS shows the count that was set until it notices that machines are gone, in the state Succeeded.
        """
        group = node_group_name(ids.group_of(row.id))
        try:
            sets = self.azure.rows(self.azure.compute.virtual_machine_scale_sets.list, group)
        except HttpResponseError as error:
            if errors.is_denied(error) or errors.is_absent(error):
                return None
            raise
        mine = [each for each in sets if (each.tags or {}).get(_OF_POOL) == row.name]
        if not mine:
            return None
        running = sum(int((each.sku and each.sku.capacity) or 0) for each in mine)
        reason = _EVICTED if row.scale_set_priority == "Spot" else ""
        return PoolMachines(running=running, wanted=row.count or 0, reason=reason, is_retried=False)


def _properties(row: models.containerservice.AgentPool) -> dict[str, Any]:
    is_spot = row.scale_set_priority == "Spot"
    labels = row.node_labels or {}
    return {
        "pool": row.name,
        "instance_type": row.vm_size,
        "zone": "".join(row.availability_zones or ()),
        "capacity": SPOT if is_spot else ON_DEMAND,
        "nodes": row.count,
        "labels": {name: value for name, value in labels.items() if not name.startswith(_AKS_LABEL)},
        "reservation": (row.capacity_reservation_group_id or "").lower(),
        "version": str(row.current_orchestrator_version or row.orchestrator_version or ""),
        **({"max_price": row.spot_max_price} if is_spot else {}),
    }


def _automatic(labels: Mapping[str, str] | None) -> dict[str, str]:
    return {name: value for name, value in (labels or {}).items() if name.startswith(_AKS_LABEL)}
