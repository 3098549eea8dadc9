"""The machines of a node pool, as documents of Compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.resources import store
from cloudrec_sandbox.gcp.services.compute.network.profiles import roce_zone
from cloudrec_sandbox.gcp.services.gke import network

if TYPE_CHECKING:
    from google.cloud.container_v1.types import NodePool

    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.services.gke.state import ClusterState, PoolState


@dataclass(frozen=True)
class Zone:
    """One zone of a pool, with what all machines of the zone share."""

    cluster: ClusterState
    pool: PoolState
    zone: str
    group: str  # the path of its instance group manager

    @property
    def base(self) -> str:
        """Return the prefix of the names of the group, the template and the machines."""
        return self.group.rpartition("/")[2].removesuffix("-grp")


def market(pool: NodePool) -> str:
    """Return how a pool's machines are sold: on-demand, spot or flex-start."""
    if pool.config.flex_start:
        return "flex-start"
    return "spot" if pool.config.spot or pool.config.preemptible else "on-demand"


def networks(place: Zone) -> list[tuple[str, str]]:
    """Return the network and the subnetwork of each interface of a machine, by path."""
    cluster = place.cluster
    return [
        (cluster.network, cluster.subnetwork),
        *(
            (
                network.full(extra.network, "global/networks", cluster.project),
                network.full(extra.subnetwork, f"regions/{cluster.region}/subnetworks", cluster.project),
            )
            for extra in place.pool.message.network_config.additional_node_network_configs
        ),
    ]


def document(world: World, place: Zone, *, addresses: bool = False) -> dict[str, Any]:
    """Return a machine's document; with `addresses` False, that of its template."""
    cluster, pool = place.cluster, place.pool.message
    config, kind = pool.config, market(pool)
    labels = {
        **cluster.message.resource_labels,
        **config.resource_labels,
        "goog-gke-node": "",
        "goog-gke-cluster-id-base32": cluster.message.id[:32],
        "goog-k8s-cluster-location": cluster.location,
        "goog-k8s-cluster-name": cluster.name,
        "goog-k8s-node-pool-name": place.pool.name,
    }
    models = {"spot": "SPOT", "flex-start": "FLEX_START", "on-demand": "STANDARD"}
    return {
        "machineType": config.machine_type,
        "networkInterfaces": [
            _interface(world, index, net, subnet, addresses=addresses)
            for index, (net, subnet) in enumerate(networks(place))
        ],
        "labels": labels,
        "tags": {"items": [f"{cluster.tag()}-node", *config.tags]},
        "scheduling": {
            "provisioningModel": models[kind],
            "preemptible": kind == "spot",
            "onHostMaintenance": "TERMINATE" if config.accelerators or kind == "spot" else "MIGRATE",
            "automaticRestart": kind == "on-demand",
        },
        "guestAccelerators": [
            {"acceleratorType": each.accelerator_type, "acceleratorCount": each.accelerator_count}
            for each in config.accelerators
        ],
        "serviceAccounts": [
            {"email": config.service_account or "default", "scopes": list(config.oauth_scopes)}
        ],
        "metadata": {"items": [{"key": "cluster-name", "value": cluster.name}]},
        "resourcePolicies": [
            store.link(f"projects/{cluster.project}/regions/{cluster.region}/resourcePolicies/{name}")
            for name in [pool.placement_policy.policy_name]
            if name
        ],
    }


def _interface(world: World, index: int, net: str, subnet: str, *, addresses: bool) -> dict[str, Any]:
    address = {"networkIP": next(network.free_addresses(world, subnet))} if addresses else {}
    return {
        "name": f"nic{index}",
        "network": store.link(net),
        "subnetwork": store.link(subnet),
        "nicType": "MRDMA" if roce_zone(store.need(world, "compute", net).document) else "GVNIC",
        **address,
    }
