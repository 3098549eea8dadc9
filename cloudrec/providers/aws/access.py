"""How runs and people reach the cluster: a private kubeconfig in our home, never the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.access import LAUNCHERS, target_details
from cloudrec.cloud.kubeconfig import kubeconfig, write
from cloudrec.engine.graph import TAG_CLUSTER, Condition
from cloudrec.errors import PreflightError
from cloudrec.provider import Access
from cloudrec.providers.aws import errors, mounts
from cloudrec.providers.aws.node_groups import TAG_TYPE, GpuNodesDriver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Observed
    from cloudrec.home import Home
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout

_NOTICE_S = 120  # between the notice of an interruption and the end of a spot instance
# What the credential's command takes over; what is secret it finds in the environment of whoever calls it.
_PASSED_ON = ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")


def of(layout: Layout, aws: Aws, home: Home, environment: Mapping[str, str]) -> Access:
    """Return the access to a cluster that is up, and write its kubeconfig anew where it has changed.

    Raises:
        PreflightError: it is not (wholly) up, or is another one of that name.
    """
    cluster = _cluster(layout, aws)
    nodes = _gpu_nodes(layout, aws)
    instance_type = nodes.tags[TAG_TYPE]
    hardware = layout.hardware.get(instance_type)
    if hardware is None:
        raise _not_up(layout, f"its nodes are {instance_type}, which the spec does not name any more")
    path = home.clusters / layout.title / "kubeconfig"
    write(path, kubeconfig_of(cluster, aws.region, environment))
    return Access(
        launchers=LAUNCHERS,
        nodes=nodes.properties["nodes"],
        gpus_per_node=hardware.gpus,
        cores_per_node=hardware.vcpus // 2,  # a core is two virtual ones
        storage=layout.storage,
        details=target_details(
            kubeconfig=path,
            context=cluster["name"],
            account=layout.settings.service_account,
            fabric="efa" if hardware.efa else "tcp",
            instance_type=instance_type,
            gpus=hardware.gpus,
            cards=hardware.efa,
            node_selector={"eks.amazonaws.com/nodegroup": nodes.identity.rpartition("/")[2]},
            notice_s=_NOTICE_S,
            notices="aws",
            image_repository=_image_repository(layout, aws),
            volumes=mounts.volumes(layout, aws),
        ),
    )


def kubeconfig_of(cluster: Mapping[str, Any], region: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return a kubeconfig for one cluster, as describe_cluster tells of it; it holds no secret."""
    name = cluster["name"]
    return kubeconfig(
        name=name,
        server=cluster["endpoint"],
        authority=cluster["certificateAuthority"]["data"],
        command=("-m", "cloudrec.providers.aws.token", "--cluster", name, "--region", region),
        environment={key: environment[key] for key in _PASSED_ON if environment.get(key)},
    )


def _cluster(layout: Layout, aws: Aws) -> dict[str, Any]:
    try:
        cluster: dict[str, Any] = aws.read("eks", "describe_cluster", name=layout.name)["cluster"]
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


def _image_repository(layout: Layout, aws: Aws) -> str:
    for row in aws.read("ecr", "describe_repositories", "repositories"):
        if row["repositoryName"] == layout.repository:
            return str(row["repositoryUri"])
    return ""


def _gpu_nodes(layout: Layout, aws: Aws) -> Observed:
    for group in GpuNodesDriver(aws).search(layout.title):
        if group.condition is Condition.READY:
            return group
    raise _not_up(layout, "it has no GPU nodes")


def _not_up(layout: Layout, why: str) -> PreflightError:
    return PreflightError(
        f"cluster {layout.title!r} is not up: {why}", remedy=f"cloudrec up aws --cluster {layout.title}"
    )
