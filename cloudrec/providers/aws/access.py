"""How runs and people reach the cluster: a private kubeconfig in our home, never the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.kubeconfig import kubeconfig, write
from cloudrec.engine.graph import TAG_CLUSTER, Condition
from cloudrec.errors import PreflightError
from cloudrec.provider import Access
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.node_groups import TAG_TYPE, GpuNodesDriver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Observed
    from cloudrec.home import Home
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout
    from cloudrec.providers.aws.offers import Hardware

_LAUNCHERS = ("torchrun", "pytorchjob", "trainjob", "ray")
_HUGE_PAGES = "5120Mi"  # of the 5128 pages that an EFA node has set aside
# A pod's own interface; the EFA plugin finds everything else itself.
_TRANSPORT = {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
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
    namespace, _, account = layout.settings.service_account.partition("/")
    return Access(
        launchers=_LAUNCHERS,
        nodes=nodes.properties["nodes"],
        gpus_per_node=hardware.gpus,
        cores_per_node=hardware.vcpus // 2,  # a core is two virtual ones
        storage=layout.storage,
        environment=_TRANSPORT,
        details={
            "kubeconfig": str(path),
            "context": cluster["name"],
            "namespace": namespace,
            "service_account": account,
            "resources": pod_resources(hardware),
            "node_selector": {"eks.amazonaws.com/nodegroup": nodes.identity.rpartition("/")[2]},
            "fabric": "efa" if hardware.efa else "tcp",
        },
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


def pod_resources(hardware: Hardware) -> dict[str, str]:
    """Return what a pod that has a whole node asks for."""
    asked = {"nvidia.com/gpu": str(hardware.gpus)}
    if hardware.efa:
        asked |= {"vpc.amazonaws.com/efa": str(hardware.efa), "hugepages-2Mi": _HUGE_PAGES}
    return asked


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


def _gpu_nodes(layout: Layout, aws: Aws) -> Observed:
    for group in GpuNodesDriver(aws).search(layout.title):
        if group.condition is Condition.READY:
            return group
    raise _not_up(layout, "it has no GPU nodes")


def _not_up(layout: Layout, why: str) -> PreflightError:
    return PreflightError(
        f"cluster {layout.title!r} is not up: {why}", remedy=f"cloudrec up aws --cluster {layout.title}"
    )
