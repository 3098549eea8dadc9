"""The AKS cluster: its control plane and its system node pool."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import total
from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES, Condition, Difference, Observed
from cloudrec.errors import PreflightError
from cloudrec.providers.azure import groups
from cloudrec.providers.azure.api import aks, ids, models
from cloudrec.providers.azure.api.aks import agrees, minor
from cloudrec.providers.azure.api.rows import group_name, plain
from cloudrec.providers.azure.api.tracked import TrackedCalls, TrackedDriver
from cloudrec.providers.azure.cleanup import leftovers
from cloudrec.providers.azure.cluster import cluster_model
from cloudrec.providers.azure.cluster.cluster_model import AzureClusterProperties
from cloudrec.providers.azure.identity import identity, reservation
from cloudrec.providers.azure.network import network
from cloudrec.providers.base.driver import all_needed, needed
from cloudrec.providers.base.leftovers import LEFTOVERS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from azure.mgmt.containerservice.operations import ManagedClustersOperations

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.api.driver import AzureDriver
    from cloudrec.providers.azure.layout import AzureLayout
    from cloudrec.providers.base.prices import Prices

CLUSTER = "cluster"
KINDS: Mapping[str, AbstractSet[str]] = {
    # It needs the kinds of orphaned resources, so that these are deleted after it.
    CLUSTER: frozenset(
        {
            groups.GROUP,
            groups.REGISTRATION,
            network.SUBNET,
            network.ADDRESS,
            identity.IDENTITY,
            reservation.RESERVATION,
            identity.ROLE,
            *leftovers.KINDS,
        }
    )
}
_NO_EGRESS = "the NAT gateway's address, which does not exist yet"  # shown in a plan
_SUPPORTED = "KubernetesOfficial"
_FAILED = frozenset({Condition.FAILED, Condition.UNAVAILABLE})


def resources(layout: AzureLayout) -> list[Resource[AzureClusterProperties]]:
    """Return the cluster."""
    settings = layout.settings
    tier = "Standard" if settings.uptime_sla else "Free"
    return [
        layout.resource(
            CLUSTER,
            needs=(
                *groups.needs(layout, aks.SERVICE),
                layout.key(network.SUBNET, network.NODES),
                layout.key(network.ADDRESS),
                *layout.keys(identity.IDENTITY, (identity.CONTROL, identity.KUBELET)),
                *identity.of_control(layout),
                *reservation.keys(layout),
                *(layout.keys(groups.REGISTRATION, groups.METRICS) if layout.has_managed_metrics else ()),
                layout.key(LEFTOVERS),
            ),
            properties=AzureClusterProperties(
                location=layout.region,
                node_group=layout.node_group,
                private=not layout.cluster.access_blocks,
                public_access=sorted(layout.cluster.access_blocks),
                tier=tier,
                pod_cidr=settings.pod_cidr,
                service_cidr=settings.service_cidr,
                system_vm_size=settings.system_vm_size,
                system_nodes=settings.system_nodes,
                system_zones=list(layout.system_zones),
                labels=dict(settings.labels),
                expires=layout.tagged_end,
                # It is only ever enabled: others may use the agent, too.
                managed_metrics=True if layout.has_managed_metrics else None,
                version=layout.cluster.kubernetes_version or None,
            ),
            hourly_usd=_price(layout.prices, tier, settings.system_vm_size, settings.system_nodes),
            node_type=settings.system_vm_size,
            pool=cluster_model.SYSTEM,
        )
    ]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the driver, by kind."""
    return {CLUSTER: AzureClusterDriver(azure)}


class AzureClusterDriver(
    aks.AksDriver[AzureClusterProperties],
    TrackedDriver["models.containerservice.ManagedCluster", AzureClusterProperties],
):
    """Handles AKS clusters, each with its system node pool."""

    kind = CLUSTER
    of_type = aks.CLUSTER_TYPE
    changeable = frozenset(
        {"state", "public_access", "tier", "system_nodes", "expires", "managed_metrics", "version"}
    )
    deadline_s = 3600.0  # an upgrade takes longer than the creation

    @property
    def clusters(self) -> ManagedClustersOperations:
        """The SDK's methods for clusters."""
        return self.azure.containerservice.managed_clusters

    @property
    def calls(self) -> TrackedCalls[models.containerservice.ManagedCluster]:
        """The client's methods for this kind."""
        of = self.clusters
        return TrackedCalls(
            list=of.list_by_resource_group, get=of.get, put=of.begin_create_or_update, delete=of.begin_delete
        )

    def find(self, resource: Resource[AzureClusterProperties]) -> Observed | None:
        """Return the cluster; None if there is none.

        A cluster that failed but has a control plane counts as ready with another `state`, so that it is
        repaired in place: replacing it would delete everything that runs there.
        """
        seen = super().find(resource)
        if seen is None or seen.condition not in _FAILED or not seen.properties["endpoint"]:
            return seen
        return replace(
            seen, condition=Condition.READY, properties={**seen.properties, "state": seen.condition.value}
        )

    def state(self, row: models.containerservice.ManagedCluster) -> tuple[Condition, str]:
        """Return the condition of a cluster, and why it failed."""
        return aks.condition_of(row)

    def body(
        self, resource: Resource[AzureClusterProperties], identities: Mapping[str, str]
    ) -> models.containerservice.ManagedCluster:
        """Return the SDK's model of a new cluster."""
        resource = self._with_egress(resource)
        requested = resource.properties
        control, kubelet = all_needed(resource, identities, identity.IDENTITY)
        find = self.azure.managedidentity.user_assigned_identities.get
        return cluster_model.cluster(
            requested,
            name=self.named(resource),
            version=requested.version or self.newest_version(),
            tags=resource.tags,
            subnet=needed(resource, identities, network.SUBNET),
            identity=control,
            kubelet=self.azure.read(find, ids.group_of(kubelet), ids.names(kubelet)[0]),
        )

    def offered_versions(self) -> list[str]:
        """Return the minor versions of Kubernetes in standard support, the newest last."""
        listed = self.azure.read(self.clusters.list_kubernetes_versions, self.azure.region)
        # Versions that have only the plan of long-term support are left out.
        plans = {
            str(row.version): (row.capabilities and row.capabilities.support_plan) or (_SUPPORTED,)
            for row in listed.values_property or ()
            if not row.is_preview
        }
        return sorted((version for version, plan in plans.items() if _SUPPORTED in plan), key=minor)

    def newest_version(self) -> str:
        """Return the newest minor version of Kubernetes in standard support.

        Raises:
            PreflightError: AKS offers none in the region.
        """
        offered = self.offered_versions()
        if not offered:
            raise PreflightError(
                f"AKS offers no version of Kubernetes in {self.azure.region}",
                remedy="choose another --region",
            )
        return offered[-1]

    def difference(self, resource: Resource[AzureClusterProperties], observed: Observed) -> Difference | None:
        """Compare the properties; a requested version 1.34 matches every 1.34.x.

        A newer version is a change in place. AKS cannot downgrade, so that an older one is not.
        """
        resource = self._with_egress(resource)
        wanted, there = resource.properties.version, observed.properties
        if not wanted:
            return super().difference(resource, observed)
        # During an upgrade the control plane and the system nodes have different versions. The first that
        # does not match is compared, so that the upgrade continues until both do.
        both = (there["version"], there["system_version"])
        behind = next((version for version in both if not agrees(version, wanted)), wanted)
        found = super().difference(resource, replace(observed, properties={**there, "version": behind}))
        if found is not None and minor(wanted) < minor(there["version"]):
            return Difference(reason=found.reason, in_place=False)
        return found

    def change(
        self, resource: Resource[AzureClusterProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Begin the first change that is needed, and raise AksBusyError; called again, begin the next one.

        Each call compares the cluster again, so that a change that another process made is not repeated.
        """
        del identities
        it, requested = observed.identity, self._with_egress(resource).properties
        names = (ids.group_of(it), *ids.names(it))
        self.await_end(it)
        row = self.row(it)
        of = row.properties = row.properties or models.containerservice.ManagedClusterProperties()
        there = self.properties(row)
        if requested.expires is not None and requested.expires != there["expires"]:
            tags = {**(row.tags or {}), TAG_EXPIRES: requested.expires}
            self.started(
                it, self.clusters.begin_update_tags, *names, models.containerservice.TagsObject(tags=tags)
            )
        # Each call below raises AksBusyError, since AKS refuses a second change at the same time.
        put = partial(self.write, it, self.clusters.begin_create_or_update, *names, row=row)
        if requested.public_access != there["public_access"]:
            profile = row.api_server_access_profile
            if profile is None:
                profile = of.api_server_access_profile = cluster_model.api_server(requested)
            profile.authorized_ip_ranges = list(requested.public_access)
            put()
        if requested.tier != there["tier"]:
            row.sku = models.containerservice.ManagedClusterSKU(name="Base", tier=requested.tier)
            put()
        if requested.managed_metrics and not there["managed_metrics"]:
            cluster_model.monitor(of)
            put()
        if there["version"] != (following := _following(there["version"], requested.version or "")):
            of.kubernetes_version = following
            put()
        self._change_system(it, requested)
        # AKS repairs a failed cluster when it is put again unchanged.
        if there["state"] != "Succeeded":
            put()

    def _with_egress(self, resource: Resource[AzureClusterProperties]) -> Resource[AzureClusterProperties]:
        """Add the NAT gateway's address to those that reach a public API server.

        The nodes reach the API server through the NAT gateway. AKS adds the address of a load balancer by
        itself, but not that of a NAT gateway (nat-gateway.md and api-server-authorized-ip-ranges.md of
        azure-aks-docs), and without it no node can register.
        """
        requested = resource.properties
        if not requested.public_access:
            return resource
        addresses = self.azure.network.public_ip_addresses
        row = self.azure.get(addresses.get, group_name(resource.tags[TAG_CLUSTER]), self.named(resource))
        egress = f"{row.ip_address}/32" if row is not None and row.ip_address else _NO_EGRESS
        ranges = sorted({*requested.public_access, egress})
        return replace(resource, properties=replace(requested, public_access=ranges))

    def _change_system(self, identity: str, requested: AzureClusterProperties) -> None:
        """Begin to change the system node pool, which is upgraded after the control plane.

        Raises:
            AksBusyError: a change was begun.
        """
        (name,) = ids.names(identity)
        names = (ids.group_of(identity), name, cluster_model.SYSTEM)
        pools, wanted = self.azure.containerservice.agent_pools, requested.version
        pool = self.azure.read(pools.get, *names)
        put = partial(self.write, identity, pools.begin_create_or_update, *names, row=pool)
        of = pool.properties = (
            pool.properties or models.containerservice.AgentPoolManagedClusterAgentPoolProfileProperties()
        )
        if of.count != requested.system_nodes:
            of.count = requested.system_nodes
            put()
        if wanted and not agrees(_version_of(pool), wanted):
            of.orchestrator_version = wanted
            put()

    def drop(self, identity: str) -> None:
        """Delete the cluster with its pools and the nodes' resource group; AKS deletes these too."""
        names = (ids.group_of(identity), *ids.names(identity))
        self.stop(identity, self.row(identity), self.clusters.begin_abort_latest_operation, *names)
        super().drop(identity)

    def properties(self, row: models.containerservice.ManagedCluster) -> Mapping[str, Any]:
        """Return the observed properties; `endpoint` is empty until there is a control plane."""
        access, network, system = row.api_server_access_profile, row.network_profile, _system(row)
        return {
            "state": str(row.provisioning_state),
            "endpoint": row.private_fqdn or row.fqdn or "",
            "private": bool(access and access.enable_private_cluster),
            "public_access": sorted((access and access.authorized_ip_ranges) or ()),
            "tier": plain(row.sku.tier) if row.sku else "Free",
            "pod_cidr": network and network.pod_cidr,
            "service_cidr": network and network.service_cidr,
            "system_vm_size": system.vm_size if system else "",
            "system_nodes": system.count if system else 0,
            "system_version": _version_of(system) if system else "",
            "expires": (row.tags or {}).get(TAG_EXPIRES, ""),
            "managed_metrics": cluster_model.is_monitored(row),
            "version": str(row.current_kubernetes_version or row.kubernetes_version or ""),
        }

    def hourly_usd(self, row: models.containerservice.ManagedCluster) -> float | None:
        """Return the price of the control plane and the system nodes in USD an hour, or None."""
        of, prices = self.properties(row), self.azure.prices_at(row.location)
        return _price(prices, of["tier"], of["system_vm_size"], of["system_nodes"])


def _price(prices: Prices, tier: str, vm_size: str, nodes: int) -> float | None:
    return total(prices.service(f"aks-{tier.lower()}"), prices.nodes(vm_size, nodes))


def _following(version: str, wanted: str) -> str:
    """Return the version to upgrade to next.

    AKS upgrades by one minor version at a time.

    Args:
        version: the current one, which is returned if it matches the requested one.
        wanted: the requested one; empty to keep the current one.
    """
    if not wanted or agrees(version, wanted):
        return version
    major, of_major = minor(version)
    following = f"{major}.{of_major + 1}"
    return following if minor(following) < minor(wanted) else wanted


def _system(
    row: models.containerservice.ManagedCluster,
) -> models.containerservice.ManagedClusterAgentPoolProfile | None:
    pools = row.agent_pool_profiles or ()
    return next((pool for pool in pools if pool.name == cluster_model.SYSTEM), None)


def _version_of(
    pool: models.containerservice.AgentPool | models.containerservice.ManagedClusterAgentPoolProfile,
) -> str:
    return str(pool.current_orchestrator_version or pool.orchestrator_version or "")
