"""Networks, clusters and node pools for tests, made with the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.cloud.compute_v1 import Network, Subnetwork, SubnetworkSecondaryRange
from google.cloud.container_v1 import Cluster, NodePool, Operation

from tests.sandbox.gcp.support import NUMBER, PROJECT, REGION, ZONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.sandbox.gcp.support import Gcp

PARENT = f"projects/{PROJECT}/locations/{ZONE}"
PATH = f"{PARENT}/clusters/one"
A3, A2, L4 = "a3-highgpu-8g", "a2-highgpu-1g", "g2-standard-4"
GENEROUS = {f"{REGION}/{metric}": 500 for metric in ("NVIDIA_L4_GPUS", "PREEMPTIBLE_NVIDIA_L4_GPUS")} | {
    "global/GPUS_ALL_REGIONS": 500
}
STEP_S = 2000.0  # longer than anything takes but a wait for machines


def network(gcp: Gcp, name: str = "net") -> str:
    """A network; its path."""
    made = Network(name=name, auto_create_subnetworks=False)
    gcp.compute("Networks").insert_unary(project=PROJECT, network_resource=made)
    gcp.advance(60)
    return f"projects/{PROJECT}/global/networks/{name}"


def subnetwork(
    gcp: Gcp,
    net: str = "net",
    name: str = "nodes",
    *,
    number: int = 0,
    bits: int = 20,
    ranges: Sequence[str] = ("one", "two"),
) -> str:
    """A subnetwork with ranges for the pods and services of clusters; its path."""
    secondary = [
        SubnetworkSecondaryRange(
            range_name=f"{kind}-{each}", ip_cidr_range=f"10.{10 * number + offset + 2 * index}.0.0/{size}"
        )
        for index, each in enumerate(ranges)
        for offset, kind, size in ((101, "pods", 16), (102, "services", 20))
    ]
    made = Subnetwork(
        name=name,
        network=f"projects/{PROJECT}/global/networks/{net}",
        ip_cidr_range=f"10.{number}.0.0/{bits}",
        secondary_ip_ranges=secondary,
        private_ip_google_access=bool(ranges),  # networks with an RDMA profile have none
    )
    gcp.compute("Subnetworks").insert_unary(project=PROJECT, region=REGION, subnetwork_resource=made)
    gcp.advance(60)
    return f"projects/{PROJECT}/regions/{REGION}/subnetworks/{name}"


def wish(name: str = "one", **more: Any) -> Cluster:
    """A cluster in ranges that have its name, with a small pool."""
    document: dict[str, Any] = {
        "name": name,
        "network": f"projects/{PROJECT}/global/networks/net",
        "subnetwork": f"projects/{PROJECT}/regions/{REGION}/subnetworks/nodes",
        "ip_allocation_policy": {
            "use_ip_aliases": True,
            "cluster_secondary_range_name": f"pods-{name}",
            "services_secondary_range_name": f"services-{name}",
        },
        "network_config": {"datapath_provider": "ADVANCED_DATAPATH", "enable_multi_networking": True},
        "control_plane_endpoints_config": {"dns_endpoint_config": {"allow_external_traffic": True}},
        "workload_identity_config": {"workload_pool": f"{PROJECT}.svc.id.goog"},
        "resource_labels": {"made-by": "tests"},
        "node_pools": [{"name": "cpu", "initial_node_count": 1, "config": {"machine_type": "e2-standard-4"}}],
    }
    return Cluster({**document, **more})


def pool(name: str = "gpu", nodes: int = 0, **more: Any) -> NodePool:
    """A pool of L4 machines."""
    accelerators = [{"accelerator_type": "nvidia-l4", "accelerator_count": 1}]
    merged = {"machine_type": L4, "accelerators": accelerators, **more.pop("config", {})}
    return NodePool({"name": name, "initial_node_count": nodes, "config": merged, **more})


def ready(gcp: Gcp, **more: Any) -> None:
    """A created cluster without operations in progress."""
    gcp.control(quotas=GENEROUS)
    network(gcp)
    subnetwork(gcp)
    gcp.gke.create_cluster(parent=PARENT, cluster=wish(**more))
    gcp.advance(STEP_S)
    gcp.advance(STEP_S)


def resize(gcp: Gcp, name: str, count: int) -> Operation:
    """Bring a pool, by its path, to a number of nodes in each zone."""
    return gcp.gke.set_node_pool_size(request={"name": name, "node_count": count})


def operation(gcp: Gcp, of: Operation) -> Operation:
    """How an operation is by now."""
    return gcp.gke.get_operation(name=f"projects/{PROJECT}/locations/{of.location}/operations/{of.name}")


def done(gcp: Gcp, of: Operation) -> Operation:
    """An operation that has ended well."""
    gcp.advance(STEP_S)
    found = operation(gcp, of)
    assert (found.status, found.error.message) == (Operation.Status.DONE, "")
    return found


def link(path: str) -> str:
    """A path as GKE's operations name it."""
    words = path.replace(f"projects/{PROJECT}", f"projects/{NUMBER}").replace("/locations/", "/zones/")
    return f"https://container.googleapis.com/v1/{words}"
