"""What one machine of a node pool is like, as Compute describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.gcp import store
from cloudrec.sandbox.gcp.services.gke import network

if TYPE_CHECKING:
    from google.cloud.container_v1.types import NodePool

    from cloudrec.sandbox.gcp.services.gke.state import ClusterState, PoolState
    from cloudrec.sandbox.gcp.world import World


@dataclass(frozen=True)
class Zone:
    """One zone of a pool, and what all machines of the zone share."""

    cluster: ClusterState
    pool: PoolState
    zone: str
    group: str  # the path of its instance group manager

    @property
    def base(self) -> str:
        """The name that the group's, the template's and the machines' names start with."""
        return self.group.rpartition("/")[2].removesuffix("-grp")


def market(pool: NodePool) -> str:
    """How a pool's machines are paid for: on-demand, spot or flex-start."""
    if pool.config.flex_start:
        return "flex-start"
    return "spot" if pool.config.spot or pool.config.preemptible else "on-demand"


def networks(place: Zone) -> list[tuple[str, str]]:
    """The network and the subnetwork of each of a machine's interfaces, by path."""
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
    """What a machine is like; its template has no addresses."""
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
        "nicType": "GVNIC",
        **address,
    }
