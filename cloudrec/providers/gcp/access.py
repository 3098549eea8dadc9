"""The access of runs and users to the cluster, with a separate kubeconfig in cloudrec's home directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.graph import Condition
from cloudrec.errors import PreflightError
from cloudrec.kubernetes.client.target import CardNetwork
from cloudrec.providers.base.access import LAUNCHERS, KubernetesAccess, cluster_target
from cloudrec.providers.base.capacity.managed import sized_by_keeper
from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.base.kubeconfig import kubeconfig, write
from cloudrec.providers.base.offers import SPOT
from cloudrec.providers.gcp.api import gke, ids, labels, sdk
from cloudrec.providers.gcp.facts import FACTS, NOTICE
from cloudrec.providers.gcp.network import network
from cloudrec.providers.gcp.nodes.node_pools import GcpGpuNodesDriver
from cloudrec.providers.gcp.storage import mounts, tiers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Observed
    from cloudrec.home import Home
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout
    from cloudrec.providers.gcp.offers import GcpMachineType

_BUILT_IN = ("nvidia-device-plugin",)
IMAGE = "trainer"  # the name of the image in the cluster's repository
# The variables that the kubeconfig sets for the token command. None holds a secret.
_PASSED_ON = ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG")
_USABLE = frozenset({gke.RUNNING, "RECONCILING"}) | gke.IMPAIRED


def of(layout: GcpLayout, gcp: Gcp, home: Home, environment: Mapping[str, str]) -> KubernetesAccess:
    """Return the access to a cluster that is up, and write its kubeconfig if it has changed.

    Raises:
        PreflightError: the cluster is not completely up, or cloudrec did not create it.
    """
    cluster = _cluster(layout, gcp)
    pool = _pool(layout, gcp)
    machine = pool.properties["instance_type"]
    hardware = layout.hardware.get(machine)
    if hardware is None:
        raise _not_up(layout, f"its nodes are {machine}, which cluster.instance_types does not name any more")
    path = home.cluster(layout.title) / "kubeconfig"
    write(path, kubeconfig_of(cluster, environment))
    access = KubernetesAccess(
        launchers=LAUNCHERS,
        nodes=pool.properties["nodes"],
        gpus_per_node=hardware.gpus,
        cores_per_node=hardware.vcpus // 2,  # two virtual CPUs are one core
        storage=layout.storage,
        environment=hardware.bandwidths,
        target=cluster_target(
            kubeconfig=path,
            context=cluster.name,
            account=layout.settings.service_account,
            fabric=hardware.fabric,
            instance_type=machine,
            gpus=hardware.gpus,
            node_selector={gke.POOL_LABEL: pool.properties["pool"]},
            networks=networks(layout, hardware, pool.properties["zone"]),
            notice_s=pool.properties["notice_s"],
            unhealthy=dict(FACTS.unhealthy),
            topology=list(FACTS.topology),
            notices=NOTICE.service,
            image_repository=_image_repository(layout),
            built_in=list(_BUILT_IN),
            disk_gb=int(tiers.room_gb(hardware, layout.settings)),
            volumes=mounts.volumes(layout, gcp, cache_gib=tiers.cache_gib(hardware, layout.settings)),
        ),
    )
    return sized_by_keeper(access, layout.cluster)


def kubeconfig_of(cluster: sdk.container.Cluster, environment: Mapping[str, str]) -> dict[str, object]:
    """Return a kubeconfig without secrets, from GKE's description of a cluster.

    The DNS endpoint has a certificate of a public authority; the IP endpoint has one of the cluster's own.
    """
    ends = cluster.control_plane_endpoints_config
    by_name = ends.dns_endpoint_config.allow_external_traffic
    server = ends.dns_endpoint_config.endpoint if by_name else cluster.endpoint
    return kubeconfig(
        name=cluster.name,
        server=f"https://{server}",
        authority="" if by_name else cluster.master_auth.cluster_ca_certificate,
        command=("-m", "cloudrec.providers.gcp.token"),
        environment={key: environment[key] for key in _PASSED_ON if environment.get(key)},
    )


def networks(layout: GcpLayout, hardware: GcpMachineType, zone: str) -> list[CardNetwork]:
    """Return the network of each card besides the first, in the order of the cards.

    RDMA cards share a network, so their Network objects have the names of the subnetworks.
    """
    return [
        CardNetwork(
            interface=f"eth{number}",
            network=ids.name(layout.global_path("networks", card.network)),
            subnetwork=(subnetwork := ids.name(layout.regional_path("subnetworks", card.subnet))),
            name=subnetwork if card.is_rdma else "",
            mode="RDMA" if card.is_rdma else "NetDevice",
        )
        for number, card in enumerate(network.cards(hardware, zone), start=1)
    ]


def _image_repository(layout: GcpLayout) -> str:
    project, repository = layout.project.replace(":", "/"), ids.name(layout.repository_path)
    return f"{layout.region}-docker.pkg.dev/{project}/{repository}/{IMAGE}"


def _cluster(layout: GcpLayout, gcp: Gcp) -> sdk.container.Cluster:
    request = sdk.container.GetClusterRequest(name=layout.cluster_path)
    row = gcp.get(gcp.container.get_cluster, request)
    name = ids.name(layout.cluster_path)
    if row is None:
        raise _not_up(layout, f"there is no {name} in {layout.location}")
    if not is_ours(labels.decode(row.resource_labels), layout.title):
        raise PreflightError(
            f"{name} in {layout.location} was not created by cloudrec",
            remedy="choose another name with --cluster",
        )
    if row.status.name not in _USABLE:
        raise _not_up(layout, f"the status of {name} is {row.status.name}")
    return row


def _pool(layout: GcpLayout, gcp: Gcp) -> Observed:
    # Of several pools, a spot pool has the shortest notice.
    found = GcpGpuNodesDriver(gcp).search(layout.title)
    for pool in sorted(found, key=lambda each: each.properties.get("capacity") != SPOT):
        if pool.condition is Condition.READY:
            return pool
    raise _not_up(layout, "it has no GPU nodes that are ready")


def _not_up(layout: GcpLayout, why: str) -> PreflightError:
    return PreflightError(
        f"cluster {layout.title!r} is not up: {why}", remedy=f"cloudrec up gcp --cluster {layout.title}"
    )
