"""How runs and people reach the cluster: by a kubeconfig in cloudrec's home.

The user's own kubeconfig is never read or written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.engine.graph import TAG_CLUSTER, Condition
from cloudrec.errors import PreflightError
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.facts import FACTS, NOTICE
from cloudrec.providers.aws.nodes.node_groups import TAG_TYPE, AwsGpuNodesDriver
from cloudrec.providers.aws.registry.registry import repositories
from cloudrec.providers.aws.storage import mounts, tiers
from cloudrec.providers.base.access import LAUNCHERS, KubernetesAccess, cluster_target
from cloudrec.providers.base.capacity.managed import sized_by_keeper, spot_if_any
from cloudrec.providers.base.kubeconfig import kubeconfig, write
from cloudrec.providers.base.offers import SPOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from types_boto3_eks.type_defs import ClusterTypeDef

    from cloudrec.engine.graph import Observed
    from cloudrec.home import Home
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.layout import AwsLayout

# Variables that the kubeconfig sets for the command that makes tokens. None is a secret: keys come from the
# environment of the process that runs kubectl.
_PASSED_ON = ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")


def of(layout: AwsLayout, aws: Aws, home: Home, environment: Mapping[str, str]) -> KubernetesAccess:
    """Return how runs reach a cluster that is up; its kubeconfig is written if it has changed.

    Raises:
        PreflightError: the cluster or its GPU nodes are missing or not ready, or cloudrec did not create the
            cluster of this name.
    """
    cluster = _cluster(layout, aws)
    nodes = _gpu_nodes(layout, aws)
    instance_type = nodes.tags[TAG_TYPE]
    hardware = layout.hardware.get(instance_type)
    if hardware is None:
        raise _not_up(layout, f"its nodes are {instance_type}, which the spec no longer names")
    capacity = spot_if_any(layout.cluster, nodes.properties["capacity"])
    path = home.cluster(layout.title) / "kubeconfig"
    write(path, kubeconfig_of(cluster, aws.region, environment))
    access = KubernetesAccess(
        launchers=LAUNCHERS,
        nodes=nodes.properties["nodes"],
        gpus_per_node=hardware.gpus,
        cores_per_node=hardware.vcpus // 2,  # each physical core is two vCPUs
        storage=layout.storage,
        environment=hardware.bandwidths,
        target=cluster_target(
            kubeconfig=path,
            context=cluster["name"],
            account=layout.settings.service_account,
            fabric=hardware.fabric,
            instance_type=instance_type,
            gpus=hardware.gpus,
            cards=hardware.efa,
            # libfabric's EFA provider registers its packet pools in huge pages. How many a node has depends
            # on its CPUs (`offers._HUGEPAGES_OF_CPU`).
            huge_pages_mib=hardware.hugepages_2mi_mib,
            node_selector={"eks.amazonaws.com/nodegroup": nodes.identity.rpartition("/")[2]},
            notice_s=NOTICE.seconds if capacity == SPOT else 0,
            unhealthy=dict(FACTS.unhealthy),
            topology=list(FACTS.topology),
            # Pods do not reach the metadata service: the nodes' hop limit is 1. EKS drains managed nodes that
            # EC2 announces to reclaim ("Managed node group capacity types" in EKS's user guide).
            drains=True,
            image_repository=_image_repository(layout, aws),
            disk_gb=int(tiers.room_gb(hardware, layout.settings)),
            volumes=mounts.volumes(layout, aws, cache_gib=tiers.cache_gib(hardware, layout.settings)),
        ),
    )
    return sized_by_keeper(access, layout.cluster)


def kubeconfig_of(cluster: ClusterTypeDef, region: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return a kubeconfig, without secrets, for a cluster as `describe_cluster` returns it."""
    name = cluster["name"]
    return kubeconfig(
        name=name,
        server=cluster["endpoint"],
        authority=cluster["certificateAuthority"]["data"],
        command=("-m", "cloudrec.providers.aws.token", "--cluster", name, "--region", region),
        environment={key: environment[key] for key in _PASSED_ON if environment.get(key)},
    )


def _cluster(layout: AwsLayout, aws: Aws) -> ClusterTypeDef:
    try:
        cluster = eks.described(aws, layout.name)
    except ClientError as error:
        if errors.is_absent(error):
            raise _not_up(layout, f"there is no {layout.name} in {aws.region}") from error
        raise
    if cluster.get("tags", {}).get(TAG_CLUSTER) != layout.title:
        raise PreflightError(
            f"{layout.name} in {aws.region} is not of cloudrec", remedy="choose another --cluster"
        )
    if cluster["status"] not in {"ACTIVE", "UPDATING"}:
        raise _not_up(layout, f"{layout.name} is {cluster['status']}")
    return cluster


def _image_repository(layout: AwsLayout, aws: Aws) -> str:
    for row in repositories(aws, {}):
        if row["repositoryName"] == layout.repository:
            return row["repositoryUri"]
    return ""


def _gpu_nodes(layout: AwsLayout, aws: Aws) -> Observed:
    for group in AwsGpuNodesDriver(aws).search(layout.title):
        # A group of an earlier choice may still exist while it is deleted.
        if group.condition is Condition.READY:
            return group
    raise _not_up(layout, "it has no GPU nodes")


def _not_up(layout: AwsLayout, why: str) -> PreflightError:
    return PreflightError(
        f"cluster {layout.title!r} is not up: {why}", remedy=f"cloudrec up aws --cluster {layout.title}"
    )
