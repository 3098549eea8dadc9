"""The GKE cluster: a control plane reached by its name, with IAM's leave, unless networks are named."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import name_of, needed
from cloudrec.cloud.leftovers import LEFTOVERS
from cloudrec.engine.graph import TAG_EXPIRES, Condition, Difference, Observed
from cloudrec.errors import CloudrecError
from cloudrec.providers.gcp import (
    apis,
    cluster_model,
    cpu_nodes,
    firewall,
    gke,
    identity,
    ids,
    labels,
    leftovers,
    nat,
    network,
)
from cloudrec.providers.gcp.driver import moment
from cloudrec.providers.gcp.gke import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.driver import GcpDriver
    from cloudrec.providers.gcp.gke import Step
    from cloudrec.providers.gcp.layout import Layout

KINDS: Mapping[str, AbstractSet[str]] = {
    # What its controllers left is swept once it is gone.
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


def resources(layout: Layout) -> list[Resource]:
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
                layout.key(identity.ACCOUNT, identity.NODES),
                layout.key(identity.BINDING, identity.NODES),
                layout.key(LEFTOVERS),
            ),
            properties={
                "state": gke.RUNNING,
                "location": layout.location,
                "path": layout.cluster_path,
                "authorized_networks": sorted(settings.authorized_networks),
                "release_channel": settings.release_channel,
                "workload_pool": layout.workload_pool,
                "kms_key": settings.kms_key or "",
                "expires": layout.cluster.expires or "",
                # What is no longer wanted does no harm.
                **({"multi_networking": True} if layout.gpu_networks else {}),
                **({"lustre": True} if settings.lustre_gib else {}),
                **({"version": version} if version else {}),  # else whatever it was made with
                "first_pool": cpu_nodes.born(layout),
            },
            hourly_usd=layout.prices.service("gke-cluster"),
        )
    ]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver."""
    return {CLUSTER: ClusterDriver(gcp)}


class ClusterDriver(gke.GkeDriver):
    """Handles GKE clusters, each made with its pool for what is no training."""

    kind = CLUSTER
    changeable = frozenset(
        {
            "state",
            "authorized_networks",
            "release_channel",
            "kms_key",
            "expires",
            "multi_networking",
            "lustre",
            "version",
        }
    )
    deadline_s = 3600.0  # an upgrade takes longer than a creation

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List by label."""
        return [self.observe(row) for row in self.clusters(cluster)]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look the name up; what bears it may be another's."""
        row = self.gcp.get(self.gke.get_cluster, name=resource.properties["path"])
        return self.observe(row) if row is not None else super().fetch(resource)

    def find(self, resource: Resource) -> Observed | None:
        """Look it up; what has worked is put right in place, or by a person, and never replaced."""
        seen = super().find(resource)
        if seen is None or seen.condition is not Condition.FAILED or not self._has_worked(seen.identity):
            return seen
        self.forget(seen.identity)  # what a change that failed should have led to is seen to differ
        return replace(seen, condition=Condition.READY)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Tell how far it has come; there is no other place to try for a control plane."""
        condition, reason = super().condition(kind, identity)
        return (Condition.FAILED if condition is Condition.UNAVAILABLE else condition), reason

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it; one with a problem that works all the same is there."""
        row = self.row(identity)
        condition, reason = self.told_by(row)
        return (Condition.READY if row.status.name in gke.IMPAIRED else condition), reason

    def row(self, identity: str) -> Any:  # noqa: ANN401 - the SDK's message
        """Describe a cluster; Google's own error where it is not there."""
        return self.gcp.read(self.gke.get_cluster, name=identity)

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Ask for the cluster; GKE knows no idempotency tokens, but its names are taken once."""
        del token
        asked = resource.properties
        path = asked["path"]
        account = ids.name(needed(resource, identities, identity.ACCOUNT))
        body = cluster_model.cluster(
            asked,
            name=ids.name(path),
            labels=labels.encode(resource.tags),
            network=needed(resource, identities, network.NETWORK),
            subnetwork=needed(resource, identities, network.SUBNET),
            pool=cpu_nodes.body_of(asked["first_pool"], account),
        )
        parent = path.rpartition("/clusters/")[0]
        return self.begin_once(path, self.asked(self.gke.create_cluster, parent=parent, cluster=body))

    def offered_versions(self, channel: str, location: str) -> list[str]:
        """Return the versions of Kubernetes that a release channel has, the newest first."""
        parent = f"projects/{self.gcp.project}/locations/{location}"
        listed = self.gcp.read(self.gke.get_server_config, name=parent)
        return next(
            (list(each.valid_versions) for each in listed.channels if each.channel.name == channel),
            list(listed.valid_master_versions),
        )

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Compare; versions go only upwards."""
        wanted, there = resource.properties.get("version"), observed.properties
        if wanted and gke.agrees(there["version"], wanted):
            observed = replace(observed, properties={**there, "version": wanted})
        return super().difference(resource, observed)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Begin the changes that are missing, one after another: GKE makes one at a time.

        Raises:
            CloudrecError: the cluster has failed, and GKE does not mend it.
        """
        del identities
        identity = observed.identity
        row = self.row(identity)
        steps = self._steps_to(resource, row)
        if steps:
            self.begin_all(identity, steps)
        elif self.properties(row)["state"] != gke.RUNNING:
            raise CloudrecError(
                f"cluster {identity} has failed, and other things stand on it: {gke.problem(row)}",
                remedy="mend what GKE names (its key, its account, its network), or `cloudrec down` "
                "(with --keep-data to keep data) and `up` again",
            )

    def _steps_to(self, resource: Resource, row: Any) -> list[Step]:  # noqa: ANN401 - the SDK's message
        """The changes that are missing."""
        asked, there = resource.properties, self.properties(row)
        steps: list[Step] = []
        if asked["expires"] != there["expires"]:
            steps.append(self._relabelled(row, resource))
        updates: Mapping[str, Mapping[str, Any]] = {
            "authorized_networks": {
                "desired_control_plane_endpoints_config": cluster_model.endpoints(
                    asked["authorized_networks"]
                )
            },
            "release_channel": {"desired_release_channel": {"channel": asked["release_channel"]}},
            "kms_key": {"desired_database_encryption": cluster_model.encryption(asked["kms_key"])},
            "multi_networking": {"desired_enable_multi_networking": True},
            "lustre": {"desired_addons_config": {"lustre_csi_driver_config": {"enabled": True}}},
        }
        steps += [
            self._update(row, update)
            for name, update in updates.items()
            if name in asked and asked[name] != there[name]
        ]
        return steps + self._upgrades(row, asked.get("version", ""))

    def _relabelled(self, row: Any, resource: Resource) -> Step:  # noqa: ANN401 - the SDK's message
        others = {name: value for name, value in row.resource_labels.items() if not labels.is_ours(name)}
        return self.asked(
            self.gke.set_labels,
            name=self.path(row),
            resource_labels={**others, **labels.encode(resource.tags)},
            label_fingerprint=row.label_fingerprint,
        )

    def _upgrades(self, row: Any, wanted: str) -> list[Step]:  # noqa: ANN401 - the SDK's message
        """The steps towards a version: a control plane goes up by one minor at a time."""
        there = row.current_master_version
        if not wanted or gke.agrees(there, wanted):
            return []
        major, minor = gke.version_key(there)[:2]
        last = gke.version_key(wanted)[1]
        between = [f"{major}.{step}" for step in range(minor + 1, last)]
        return [self._update(row, {"desired_master_version": version}) for version in (*between, wanted)]

    def _update(self, row: Any, update: Mapping[str, Any]) -> Step:  # noqa: ANN401 - the SDK's message
        return self.asked(self.gke.update_cluster, name=self.path(row), update=dict(update))

    def _has_worked(self, identity: str) -> bool:
        """Tell whether it was whole once: it says that it runs, or more than its first pool stands on it."""
        row = self.row(identity)
        return row.status.name != "ERROR" or len(row.node_pools) > 1

    def remove(self, observed: Observed) -> None:
        """Delete the cluster, and with it what pools it still has."""
        if self.is_leaving(observed.identity):
            return
        delete = self.asked(self.gke.delete_cluster, name=observed.identity)
        self.begin(observed.identity, delete, is_removal=True)

    def observe(self, row: Any) -> Observed:  # noqa: ANN401 - the SDK's message
        """Tell of a cluster what the engine wants to know."""
        tags = labels.decode(row.resource_labels)
        condition, reason = self.told_by(row)
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

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's message
        """Tell what it is like."""
        endpoints = row.control_plane_endpoints_config.ip_endpoints_config
        blocks = endpoints.authorized_networks_config.cidr_blocks if endpoints.enabled else ()
        return {
            "state": "ERROR" if row.status.name == "ERROR" else gke.RUNNING,
            "location": row.location,
            "authorized_networks": sorted(block.cidr_block for block in blocks),
            "release_channel": row.release_channel.channel.name,
            "workload_pool": row.workload_identity_config.workload_pool,
            "kms_key": row.database_encryption.key_name,
            "expires": labels.decode(row.resource_labels).get(TAG_EXPIRES, ""),
            "multi_networking": row.network_config.enable_multi_networking,
            "lustre": row.addons_config.lustre_csi_driver_config.enabled,
            "version": row.current_master_version,
        }
