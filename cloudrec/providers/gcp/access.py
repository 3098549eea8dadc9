"""How runs and people reach the cluster: a private kubeconfig in our home, never the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.access import LAUNCHERS, target_details
from cloudrec.cloud.driver import is_ours
from cloudrec.cloud.kubeconfig import kubeconfig, write
from cloudrec.engine.graph import Condition
from cloudrec.errors import PreflightError
from cloudrec.provider import Access
from cloudrec.providers.gcp import gke, ids, labels, mounts, network
from cloudrec.providers.gcp.node_pools import GpuNodesDriver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Observed
    from cloudrec.home import Home
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.layout import Layout

_NOTICE_S = 15  # of the 30 s of a spot machine, what GKE leaves to pods that are not its own
_BUILT_IN = ("nvidia-device-plugin",)
IMAGE = "trainer"  # the image's name within the cluster's repository
# What the credential's command takes over; what is secret it finds in the environment of whoever calls it.
_PASSED_ON = ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG")
_USABLE = frozenset({gke.RUNNING, "RECONCILING"}) | gke.IMPAIRED


def of(layout: Layout, gcp: Gcp, home: Home, environment: Mapping[str, str]) -> Access:
    """Return the access to a cluster that is up, and write its kubeconfig anew where it has changed.

    Raises:
        PreflightError: it is not (wholly) up, or is another one of that name.
    """
    cluster = _cluster(layout, gcp)
    pool = _pool(layout, gcp)
    machine = pool.properties["instance_type"]
    hardware = layout.hardware.get(machine)
    if hardware is None:
        raise _not_up(layout, f"its nodes are {machine}, which the spec does not name any more")
    path = home.clusters / layout.title / "kubeconfig"
    write(path, kubeconfig_of(cluster, environment))
    return Access(
        launchers=LAUNCHERS,
        nodes=pool.properties["nodes"],
        gpus_per_node=hardware.gpus,
        cores_per_node=hardware.vcpus // 2,  # a core is two virtual ones
        storage=layout.storage,
        details=target_details(
            kubeconfig=path,
            context=cluster.name,
            account=layout.settings.service_account,
            fabric=hardware.fabric,
            instance_type=machine,
            gpus=hardware.gpus,
            node_selector={gke.POOL_LABEL: pool.properties["pool"]},
            networks=networks(layout, hardware.gpu_nics),
            notice_s=_NOTICE_S,
            notices="gcp",
            image_repository=_image_repository(layout),
            built_in=list(_BUILT_IN),
            volumes=mounts.volumes(layout, gcp),
        ),
    )


def kubeconfig_of(cluster: Any, environment: Mapping[str, str]) -> dict[str, Any]:  # noqa: ANN401 - the SDK's message
    """Return a kubeconfig for one cluster, as GKE tells of it; it holds no secret.

    By its name a cluster is reached through Google's own front door, whose certificate everybody trusts.
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


def networks(layout: Layout, cards: int) -> list[dict[str, str]]:
    """Return which network and subnetwork each card that is the GPUs' alone is in, in the cards' order."""
    return [
        {
            "interface": f"eth{number}",
            "network": ids.name(layout.global_path("networks", suffix)),
            "subnetwork": ids.name(layout.regional_path("subnetworks", suffix)),
        }
        for number, suffix in enumerate(network.gpu_suffixes(layout)[:cards], start=1)
    ]


def _image_repository(layout: Layout) -> str:
    project, repository = layout.project.replace(":", "/"), ids.name(layout.repository_path)
    return f"{layout.region}-docker.pkg.dev/{project}/{repository}/{IMAGE}"


def _cluster(layout: Layout, gcp: Gcp) -> Any:  # noqa: ANN401 - the SDK's message
    row = gcp.get(gcp.client(gke.CONTAINER).get_cluster, name=layout.cluster_path)
    name = ids.name(layout.cluster_path)
    if row is None:
        raise _not_up(layout, f"there is no {name} in {layout.location}")
    if not is_ours(labels.decode(row.resource_labels), layout.title):
        raise PreflightError(
            f"{name} in {layout.location} is not of cloudrec", remedy="choose another --cluster"
        )
    if row.status.name not in _USABLE:
        raise _not_up(layout, f"{name} is {row.status.name}")
    return row


def _pool(layout: Layout, gcp: Gcp) -> Observed:
    for pool in GpuNodesDriver(gcp).search(layout.title):
        if pool.condition is Condition.READY:
            return pool
    raise _not_up(layout, "it has no GPU nodes")


def _not_up(layout: Layout, why: str) -> PreflightError:
    return PreflightError(
        f"cluster {layout.title!r} is not up: {why}", remedy=f"cloudrec up gcp --cluster {layout.title}"
    )
