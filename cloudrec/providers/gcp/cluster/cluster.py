"""The GKE cluster: its control plane, and changes of it in place.

Clients reach the control plane at its DNS endpoint with a permission of IAM, or at its IP endpoint from the
authorized networks, if the settings have any.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_EXPIRES, Condition, Difference, Observed
from cloudrec.errors import CloudrecError
from cloudrec.providers.base.driver import name_of, needed
from cloudrec.providers.base.leftovers import LEFTOVERS
from cloudrec.providers.gcp.api import apis, gke, ids, labels, sdk
from cloudrec.providers.gcp.api.driver import moment
from cloudrec.providers.gcp.api.gke import CLUSTER
from cloudrec.providers.gcp.cleanup import leftovers
from cloudrec.providers.gcp.cluster import cluster_model
from cloudrec.providers.gcp.cluster.cluster_model import ClusterProperties
from cloudrec.providers.gcp.identity import identity
from cloudrec.providers.gcp.network import firewall, nat, network
from cloudrec.providers.gcp.nodes import cpu_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.api.driver import GcpDriver
    from cloudrec.providers.gcp.api.gke import Step
    from cloudrec.providers.gcp.layout import GcpLayout

KINDS: Mapping[str, AbstractSet[str]] = {
    # The orphaned resources of its controllers are removed after the cluster.
    CLUSTER: frozenset(
        {
            apis.API,
            network.NETWORK,
            network.SUBNET,
            nat.ROUTER,
            firewall.FIREWALL,
            identity.ACCOUNT,
            identity.BINDING,
            *leftovers.KINDS,
        }
    )
}


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the cluster."""
    settings, version = layout.settings, layout.cluster.kubernetes_version
    return [
        layout.resource(
            CLUSTER,
            needs=(
                layout.key(network.NETWORK),
                layout.key(network.SUBNET),
                layout.key(nat.ROUTER),
                layout.key(firewall.FIREWALL, "internal"),
                *identity.keys(layout),
                layout.key(LEFTOVERS),
            ),
            properties=ClusterProperties(
                state=gke.RUNNING,
                location=layout.location,
                path=layout.cluster_path,
                authorized_networks=sorted(layout.cluster.access_blocks),
                private=layout.cluster.is_private,
                release_channel=settings.release_channel,
                workload_pool=layout.workload_pool,
                kms_key=settings.kms_key or "",
                keeps_nodes=True,
                expires=layout.cluster.expires or "",
                # These are only ever enabled: one that the spec no longer needs does no harm.
                multi_networking=True if layout.gpu_networks else None,
                lustre=True if settings.lustre_gib else None,
                managed_metrics=True if layout.cluster.metrics == "managed" else None,
                version=version or None,
                first_pool=cpu_nodes.born(layout),
            ),
            hourly_usd=layout.prices.service("gke-cluster"),
        )
    ]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by kind."""
    return {CLUSTER: GcpClusterDriver(gcp)}


class GcpClusterDriver(gke.GkeDriver[ClusterProperties]):
    """Handles GKE clusters, each of which is created with its pool of CPU nodes."""

    kind = CLUSTER
    changeable = frozenset(
        {
            "state",
            "authorized_networks",
            "private",
            "release_channel",
            "kms_key",
            "keeps_nodes",
            "expires",
            "multi_networking",
            "lustre",
            "managed_metrics",
            "version",
        }
    )
    deadline_s = 3600.0  # an upgrade takes longer than a creation

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the clusters that have the labels."""
        return [self.observe(row) for row in self.clusters(cluster)]

    def fetch(self, resource: Resource[ClusterProperties]) -> Observed | None:
        """Read the cluster by its path, else find it by its labels: it may be in another zone."""
        request = sdk.container.GetClusterRequest(name=resource.properties.path)
        row = self.gcp.get(self.gke.get_cluster, request)
        return self.observe(row) if row is not None else super().fetch(resource)

    def find(self, resource: Resource[ClusterProperties]) -> Observed | None:
        """Find the cluster. If it failed after it had worked, it counts as READY: it is never replaced."""
        seen = super().find(resource)
        if seen is None or seen.condition is not Condition.FAILED or not self._has_worked(seen.identity):
            return seen
        self.forget(seen.identity)  # the failed change shows as a difference, and is made again
        return replace(seen, condition=Condition.READY)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return the condition. UNAVAILABLE becomes FAILED: a control plane has no other candidate."""
        condition, reason = super().condition(kind, identity)
        return (Condition.FAILED if condition is Condition.UNAVAILABLE else condition), reason

    def look(self, identity: str) -> tuple[Condition, str]:
        """Read the cluster and return its condition; an impaired cluster that still works is READY."""
        row = self.row(identity)
        condition, reason = self.state(row)
        return (Condition.READY if row.status.name in gke.IMPAIRED else condition), reason

    def row(self, identity: str) -> sdk.container.Cluster:
        """Read a cluster by its identity; raises NotFound if it does not exist."""
        return self.gcp.read(self.gke.get_cluster, sdk.container.GetClusterRequest(name=identity))

    def make(
        self, resource: Resource[ClusterProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Start the creation. GKE has no idempotency tokens, but refuses a second cluster of its name."""
        del token
        asked = resource.properties
        path = asked.path
        account = ids.name(needed(resource, identities, identity.ACCOUNT))
        body = cluster_model.cluster(
            asked,
            name=ids.name(path),
            labels=labels.encode(resource.tags),
            network=needed(resource, identities, network.NETWORK),
            subnetwork=needed(resource, identities, network.SUBNET),
            pool=cpu_nodes.body_of(asked.first_pool, account),
        )
        parent = path.rpartition("/clusters/")[0]
        request = sdk.container.CreateClusterRequest(parent=parent, cluster=body)
        return self.begin_once(path, self.step(self.gke.create_cluster, request))

    def offered_versions(self, channel: str, location: str) -> list[str]:
        """Return the Kubernetes versions of a release channel, the newest first."""
        parent = f"projects/{self.gcp.project}/locations/{location}"
        request = sdk.container.GetServerConfigRequest(name=parent)
        listed = self.gcp.read(self.gke.get_server_config, request)
        return next(
            (list(each.valid_versions) for each in listed.channels if each.channel.name == channel),
            list(listed.valid_master_versions),
        )

    def difference(self, resource: Resource[ClusterProperties], observed: Observed) -> Difference | None:
        """Compare the properties; a later version than the requested one agrees: there is no downgrade."""
        wanted, there = resource.properties.version, observed.properties
        if wanted and gke.agrees(there["version"], wanted):
            observed = replace(observed, properties={**there, "version": wanted})
        return super().difference(resource, observed)

    def change(
        self, resource: Resource[ClusterProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Start the missing changes, one after another, since GKE makes one at a time.

        Raises:
            CloudrecError: the cluster has failed, and no change can repair it.
        """
        del identities
        identity = observed.identity
        row = self.row(identity)
        steps = self._steps_to(resource, row)
        if steps:
            self.begin_all(identity, steps)
        elif self.properties(row)["state"] != gke.RUNNING:
            raise CloudrecError(
                f"cluster {identity} has failed, and other resources need it: {gke.problem(row)}",
                remedy="fix the cause that GKE names (key, account or network), or run `cloudrec down` "
                "(with --keep-data to keep the data) and `cloudrec up`",
            )

    def _steps_to(self, resource: Resource[ClusterProperties], row: sdk.container.Cluster) -> list[Step]:
        """Return the missing changes."""
        asked, there = resource.properties, self.properties(row)
        steps: list[Step] = []
        if asked.expires != there["expires"]:
            steps.append(self._relabelled(row, resource))
        of = sdk.container
        lustre = of.AddonsConfig(lustre_csi_driver_config=of.LustreCsiDriverConfig(enabled=True))
        endpoints = of.ClusterUpdate(
            desired_control_plane_endpoints_config=cluster_model.endpoints(
                asked.authorized_networks, private=asked.private
            )
        )
        updates = {
            # Either difference takes the same update; where both differ, the second one changes nothing.
            "private": endpoints,
            "authorized_networks": endpoints,
            "release_channel": of.ClusterUpdate(
                desired_release_channel=of.ReleaseChannel(channel=asked.release_channel)
            ),
            "kms_key": of.ClusterUpdate(desired_database_encryption=cluster_model.encryption(asked.kms_key)),
            "multi_networking": of.ClusterUpdate(desired_enable_multi_networking=True),
            "lustre": of.ClusterUpdate(desired_addons_config=lustre),
            "managed_metrics": of.ClusterUpdate(
                desired_monitoring_config=cluster_model.monitoring(row.monitoring_config)
            ),
        }
        requested = asked.requested()
        steps += [
            self._update(row, update)
            for name, update in updates.items()
            if name in requested and requested[name] != there[name]
        ]
        if not there["keeps_nodes"]:
            steps.append(self._undisturbed(row))
        return steps + self._upgrades(row, asked.version or "")

    def _relabelled(self, row: sdk.container.Cluster, resource: Resource[ClusterProperties]) -> Step:
        # GKE replaces all labels: those of others are sent again. The fingerprint detects other changes.
        others = {name: value for name, value in row.resource_labels.items() if not labels.is_ours(name)}
        request = sdk.container.SetLabelsRequest(
            name=self.path(row),
            resource_labels={**others, **labels.encode(resource.tags)},
            label_fingerprint=row.label_fingerprint,
        )
        return self.step(self.gke.set_labels, request)

    def _undisturbed(self, row: sdk.container.Cluster) -> Step:
        request = sdk.container.SetMaintenancePolicyRequest(
            name=self.path(row), maintenance_policy=cluster_model.undisturbed(row.maintenance_policy)
        )
        return self.step(self.gke.set_maintenance_policy, request)

    def _upgrades(self, row: sdk.container.Cluster, wanted: str) -> list[Step]:
        """Return the steps to a version: a control plane is upgraded by one minor version at a time."""
        there = row.current_master_version
        if not wanted or gke.agrees(there, wanted):
            return []
        major, minor = gke.version_key(there)[:2]
        last = gke.version_key(wanted)[1]
        between = [f"{major}.{step}" for step in range(minor + 1, last)]
        updates = [
            sdk.container.ClusterUpdate(desired_master_version=version) for version in (*between, wanted)
        ]
        return [self._update(row, update) for update in updates]

    def _update(self, row: sdk.container.Cluster, update: sdk.container.ClusterUpdate) -> Step:
        request = sdk.container.UpdateClusterRequest(name=self.path(row), update=update)
        return self.step(self.gke.update_cluster, request)

    def _has_worked(self, identity: str) -> bool:
        """Return whether the cluster was once complete: its status is not ERROR, or it has further pools."""
        row = self.row(identity)
        return row.status.name != "ERROR" or len(row.node_pools) > 1

    def remove(self, observed: Observed) -> None:
        """Start the deletion of the cluster with its remaining pools."""
        if self.is_leaving(observed.identity):
            return
        request = sdk.container.DeleteClusterRequest(name=observed.identity)
        delete = self.step(self.gke.delete_cluster, request)
        self.begin(observed.identity, delete, is_removal=True)

    def observe(self, row: sdk.container.Cluster) -> Observed:
        """Return a described cluster as the engine's `Observed`."""
        tags = labels.decode(row.resource_labels)
        condition, reason = self.state(row)
        return Observed(
            kind=CLUSTER,
            name=name_of(tags, row.name),
            identity=self.path(row),
            condition=Condition.READY if row.status.name in gke.IMPAIRED else condition,
            properties=self.properties(row),
            tags=tags,
            hourly_usd=self.gcp.prices.service("gke-cluster"),
            reason=reason,
            location=gke.region_of(row.location),
            created=moment(row.create_time),
        )

    def properties(self, row: sdk.container.Cluster) -> Mapping[str, object]:
        """Return the observed properties of a cluster."""
        by_address = row.control_plane_endpoints_config.ip_endpoints_config
        by_name = row.control_plane_endpoints_config.dns_endpoint_config
        blocks = by_address.authorized_networks_config.cidr_blocks if by_address.enabled else ()
        return {
            "state": "ERROR" if row.status.name == "ERROR" else gke.RUNNING,
            "location": row.location,
            "authorized_networks": sorted(block.cidr_block for block in blocks),
            "private": not blocks and not by_name.allow_external_traffic,
            "release_channel": row.release_channel.channel.name,
            "workload_pool": row.workload_identity_config.workload_pool,
            "kms_key": cluster_model.key_of(row.database_encryption),
            "keeps_nodes": cluster_model.is_undisturbed(row.maintenance_policy),
            "expires": labels.decode(row.resource_labels).get(TAG_EXPIRES, ""),
            "multi_networking": row.network_config.enable_multi_networking,
            "lustre": row.addons_config.lustre_csi_driver_config.enabled,
            "managed_metrics": cluster_model.collects_gpus(row.monitoring_config),
            "version": row.current_master_version,
        }
