"""The AKS cluster: a private control plane unless addresses are named, and nodes for what is no training."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import all_needed, needed
from cloudrec.engine.graph import TAG_EXPIRES, Condition, Difference, Observed
from cloudrec.errors import PreflightError
from cloudrec.providers.azure import aks, cluster_model, groups, identity, ids, leftovers, network
from cloudrec.providers.azure.aks import agrees, minor
from cloudrec.providers.azure.rows import plain
from cloudrec.providers.azure.tracked import GroupDriver

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.driver import AzureDriver
    from cloudrec.providers.azure.layout import Layout

CLUSTER = "cluster"
KINDS: Mapping[str, AbstractSet[str]] = {
    # What its controllers left is swept once it is gone.
    CLUSTER: frozenset(
        {
            groups.GROUP,
            groups.REGISTRATION,
            network.SUBNET,
            identity.IDENTITY,
            identity.ROLE,
            *leftovers.KINDS,
        }
    )
}
_SUPPORTED = "KubernetesOfficial"
_FAILED = frozenset({Condition.FAILED, Condition.UNAVAILABLE})


def resources(layout: Layout) -> list[Resource]:
    """Describe the cluster."""
    settings, version = layout.settings, layout.cluster.kubernetes_version
    tier = "Standard" if settings.uptime_sla else "Free"
    return [
        layout.resource(
            CLUSTER,
            needs=(
                *groups.needs(layout, aks.SERVICE),
                layout.key(network.SUBNET, network.NODES),
                *layout.keys(identity.IDENTITY, (identity.CONTROL, identity.KUBELET)),
                *identity.of_control(layout),
                layout.key(leftovers.LEFTOVERS),
            ),
            properties={
                "state": "Succeeded",
                "location": layout.region,
                "node_group": layout.node_group,
                "private": not settings.public_access_cidrs,
                "public_access": sorted(settings.public_access_cidrs),
                "tier": tier,
                "pod_cidr": settings.pod_cidr,
                "service_cidr": settings.service_cidr,
                "system_vm_size": settings.system_vm_size,
                "system_nodes": settings.system_nodes,
                "system_zones": list(layout.system_zones),
                "labels": dict(settings.labels),
                "expires": layout.cluster.expires or "",
                **({"version": version} if version else {}),  # else whatever it was made with
            },
            hourly_usd=layout.prices.service(f"aks-{tier.lower()}")
            + layout.prices.nodes(settings.system_vm_size, settings.system_nodes),
        )
    ]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the driver."""
    return {CLUSTER: ClusterDriver(azure)}


class ClusterDriver(aks.AksDriver, GroupDriver):
    """Handles AKS clusters, each with its pool for what is no training."""

    kind = CLUSTER
    service, collection, of_type = aks.SERVICE, "managed_clusters", aks.CLUSTER_TYPE
    listing = "list_by_resource_group"
    changeable = frozenset({"state", "public_access", "tier", "system_nodes", "expires", "version"})
    deadline_s = 3600.0  # an upgrade takes longer than a creation

    def find(self, resource: Resource) -> Observed | None:
        """Look the name up; what failed and has a control plane is put right in place, never replaced."""
        seen = super().find(resource)
        if seen is None or seen.condition not in _FAILED or not seen.properties["endpoint"]:
            return seen
        return replace(
            seen, condition=Condition.READY, properties={**seen.properties, "state": seen.condition.value}
        )

    def state(self, row: Any) -> tuple[Condition, str]:  # noqa: ANN401 - the SDK's model
        """Tell how far it has come, and why it failed."""
        return aks.told_by(row)

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return what a new cluster is to be."""
        asked = resource.properties
        control, kubelet = all_needed(resource, identities, identity.IDENTITY)
        find = self.azure.client("managedidentity").user_assigned_identities.get
        return cluster_model.cluster(
            self.models,
            asked,
            name=self.named(resource),
            version=asked.get("version") or self.newest_version(),
            tags=resource.tags,
            subnet=needed(resource, identities, network.SUBNET),
            identity=control,
            kubelet=self.azure.read(find, ids.group_of(kubelet), *ids.names(kubelet)),
        )

    def offered_versions(self) -> list[str]:
        """Return the minor versions of Kubernetes that are in standard support, the newest last."""
        listed = self.azure.read(self.calls.list_kubernetes_versions, self.azure.region)
        plans = {
            str(row.version): (row.capabilities and row.capabilities.support_plan) or (_SUPPORTED,)
            for row in listed.values_property or ()
            if not row.is_preview
        }
        return sorted((version for version, plan in plans.items() if _SUPPORTED in plan), key=minor)

    def newest_version(self) -> str:
        """Return the newest minor version of Kubernetes that is in standard support."""
        offered = self.offered_versions()
        if not offered:
            raise PreflightError(
                f"AKS offers no version of Kubernetes in {self.azure.region}", remedy="take another --region"
            )
        return offered[-1]

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Compare; versions go only upwards, and a wanted 1.34 is any 1.34.x."""
        wanted, there = resource.properties.get("version"), observed.properties
        if not wanted:
            return super().difference(resource, observed)
        both = (there["version"], there["system_version"])
        behind = next((version for version in both if not agrees(version, wanted)), wanted)
        found = super().difference(resource, replace(observed, properties={**there, "version": behind}))
        if found is not None and minor(wanted) < minor(there["version"]):
            return Difference(reason=found.reason, in_place=False)
        return found

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Make one change after the other; what is left to do is worked out anew when each has ended."""
        del identities
        it, asked = observed.identity, resource.properties
        names = (ids.group_of(it), *ids.names(it))
        self.await_end(it)
        row = self.row(it)
        there = self.properties(row)
        if asked["expires"] != there["expires"]:
            tags = {**(row.tags or {}), TAG_EXPIRES: asked["expires"]}
            self.started(it, self.calls.begin_update_tags, *names, self.models.TagsObject(tags=tags))
        put = partial(self.write, it, self.calls.begin_create_or_update, *names, row=row)
        if asked["public_access"] != there["public_access"]:
            row.api_server_access_profile.authorized_ip_ranges = list(asked["public_access"])
            put()
        if asked["tier"] != there["tier"]:
            row.sku.tier = asked["tier"]
            put()
        if there["version"] != (following := _following(there["version"], asked.get("version", ""))):
            row.kubernetes_version = following
            put()
        self._change_system(it, asked)
        if there["state"] != "Succeeded":  # asked for once more as it is, AKS puts right what failed
            put()

    def _change_system(self, identity: str, asked: Mapping[str, Any]) -> None:
        """Change the nodes for what is no training, which follow the control plane's version."""
        names = (ids.group_of(identity), *ids.names(identity), cluster_model.SYSTEM)
        pools, wanted = self.aks.agent_pools, asked.get("version", "")
        pool = self.azure.read(pools.get, *names)
        put = partial(self.write, identity, pools.begin_create_or_update, *names, row=pool)
        if pool.count != asked["system_nodes"]:
            pool.count = asked["system_nodes"]
            put()
        if wanted and not agrees(_version_of(pool), wanted):
            pool.orchestrator_version = wanted
            put()

    def drop(self, identity: str) -> None:
        """Delete the cluster, and with it its pools and its nodes' resource group."""
        names = (ids.group_of(identity), *ids.names(identity))
        self.stop(identity, self.row(identity), self.calls.begin_abort_latest_operation, *names)
        super().drop(identity)

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's model
        """Tell what it is like; `endpoint` is empty until there is a control plane."""
        access, network, system = row.api_server_access_profile, row.network_profile, _system(row)
        return {
            "state": str(row.provisioning_state),
            "endpoint": row.private_fqdn or row.fqdn or "",
            "private": bool(access and access.enable_private_cluster),
            "public_access": sorted((access and access.authorized_ip_ranges) or ()),
            "tier": str(plain(row.sku.tier)) if row.sku else "Free",
            "pod_cidr": network and network.pod_cidr,
            "service_cidr": network and network.service_cidr,
            "system_vm_size": system.vm_size if system else "",
            "system_nodes": system.count if system else 0,
            "system_version": _version_of(system) if system else "",
            "expires": (row.tags or {}).get(TAG_EXPIRES, ""),
            "version": str(row.current_kubernetes_version or row.kubernetes_version or ""),
        }

    def hourly_usd(self, row: Any) -> float:  # noqa: ANN401 - the SDK's model
        """Tell what the control plane and the nodes for what is no training cost."""
        of, prices = self.properties(row), self.azure.prices
        nodes: float = prices.nodes(of["system_vm_size"], of["system_nodes"])
        return nodes + float(prices.service(f"aks-{of['tier'].lower()}"))


def _following(version: str, wanted: str) -> str:
    """Return the next version on the way to the wanted one, of which none may be left out; "" wants none."""
    if not wanted or agrees(version, wanted):
        return version
    major, of_major = minor(version)
    following = f"{major}.{of_major + 1}"
    return following if minor(following) < minor(wanted) else wanted


def _system(row: Any) -> Any:  # noqa: ANN401 - the SDK's model
    pools = row.agent_pool_profiles or ()
    return next((pool for pool in pools if pool.name == cluster_model.SYSTEM), None)


def _version_of(pool: Any) -> str:  # noqa: ANN401 - the SDK's model
    return str(pool.current_orchestrator_version or pool.orchestrator_version or "")
