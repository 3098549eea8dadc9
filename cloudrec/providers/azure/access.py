"""How runs and people reach the cluster: a private kubeconfig in our home, never the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

from cloudrec.cloud.access import LAUNCHERS, target_details
from cloudrec.cloud.kubeconfig import kubeconfig, write
from cloudrec.cloud.offers import SPOT
from cloudrec.engine.graph import TAG_CLUSTER, Condition
from cloudrec.errors import PreflightError
from cloudrec.provider import Access
from cloudrec.providers.azure import aks, identity, mounts, nodes
from cloudrec.providers.azure.node_pools import GpuNodesDriver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Observed
    from cloudrec.home import Home
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.layout import Layout

_NOTICE_S = 30  # between the notice of an eviction and the end of a spot machine, at the best
IMAGE = "cloudrec/trainer"  # the repository within the cluster's registry
# What the credential's command takes over; what is secret it finds in the environment of whoever calls it.
_PASSED_ON = (
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_SUBSCRIPTION_ID",
    "AZURE_AUTHORITY_HOST",
    "AZURE_RESOURCE_MANAGER_ENDPOINT_URL",
    "AZURE_CA_BUNDLE",
    "AZURE_CONFIG_DIR",
    "AZURE_CLIENT_CERTIFICATE_PATH",
    "AZURE_FEDERATED_TOKEN_FILE",
)


def of(layout: Layout, azure: Azure, home: Home, environment: Mapping[str, str]) -> Access:
    """Return the access to a cluster that is up, and write its kubeconfig anew where it has changed.

    Raises:
        PreflightError: it is not (wholly) up, or is another one of that name.
    """
    cluster = _cluster(layout, azure)
    pool = _pool(layout, azure)
    size = pool.properties["instance_type"]
    hardware = layout.hardware.get(size)
    if hardware is None:
        raise _not_up(layout, f"its nodes are {size}, which the spec does not name any more")
    path = home.clusters / layout.title / "kubeconfig"
    write(path, kubeconfig_of(layout, azure, cluster, environment))
    client_id = _pod_identity(layout, azure)
    return Access(
        launchers=LAUNCHERS,
        nodes=pool.properties["nodes"],
        gpus_per_node=hardware.gpus,
        cores_per_node=hardware.vcpus,  # on these sizes a virtual core is a whole one
        storage=layout.storage,
        details=target_details(
            kubeconfig=path,
            context=cluster.name,
            account=layout.settings.service_account,
            fabric="infiniband" if hardware.infiniband else "tcp",
            instance_type=size,
            gpus=hardware.gpus,
            cards=hardware.infiniband,
            node_selector={"kubernetes.azure.com/agentpool": pool.properties["pool"]},
            tolerations=tolerations(pool.properties["market"]),
            notice_s=_NOTICE_S,
            notices="azure",
            image_repository=_image_repository(layout, azure),
            volumes=mounts.volumes(layout, azure, client_id=client_id),
            service_account_annotations={"azure.workload.identity/client-id": client_id},
            pod_labels={"azure.workload.identity/use": "true"},
        ),
    )


def kubeconfig_of(
    layout: Layout,
    azure: Azure,
    cluster: Any,  # noqa: ANN401 - the SDK's model
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Return a kubeconfig for the cluster, which holds no secret.

    Raises:
        PreflightError: AKS names a server that is not this cluster's.
    """
    calls = azure.client(aks.SERVICE).managed_clusters
    given = azure.read(calls.list_cluster_user_credentials, layout.group, layout.name)
    told = yaml.safe_load(given.kubeconfigs[0].value.decode())["clusters"][0]["cluster"]
    server = str(told["server"])
    address, ours = urlsplit(server), {cluster.fqdn, cluster.private_fqdn, cluster.azure_portal_fqdn}
    if address.scheme != "https" or address.hostname not in ours:
        raise PreflightError(
            f"AKS says that {layout.name} is at {server}, which is not {' or '.join(filter(None, ours))}",
            remedy="look at who answers for Azure: AZURE_RESOURCE_MANAGER_ENDPOINT_URL, the proxy",
        )
    return kubeconfig(
        name=layout.name,
        server=server,
        authority=str(told["certificate-authority-data"]),
        command=("-m", "cloudrec.providers.azure.token"),
        environment={key: environment[key] for key in _PASSED_ON if environment.get(key)},
    )


def tolerations(market: str) -> list[dict[str, str]]:
    """Return what a pod must put up with on nodes of a market: their taints."""
    taints = [nodes.TAINT, *([nodes.SPOT_TAINT] if market == SPOT else [])]
    parts = [taint.replace("=", ":").split(":") for taint in taints]
    return [
        {"key": key, "operator": "Equal", "value": value, "effect": effect} for key, value, effect in parts
    ]


def _pod_identity(layout: Layout, azure: Azure) -> str:
    """Return the client's id of Azure's identity that a pod's service account is to become."""
    identities = azure.client("managedidentity").user_assigned_identities
    return str(azure.read(identities.get, layout.group, f"{layout.name}-{identity.POD}").client_id)


def _image_repository(layout: Layout, azure: Azure) -> str:
    registries = azure.client("containerregistry").registries
    row = azure.get(registries.get, layout.group, layout.registry)
    return f"{row.login_server}/{IMAGE}" if row is not None else ""


def _cluster(layout: Layout, azure: Azure) -> Any:  # noqa: ANN401 - the SDK's model
    row = azure.get(azure.client(aks.SERVICE).managed_clusters.get, layout.group, layout.name)
    if row is None:
        raise _not_up(layout, f"there is no {layout.name} in resource group {layout.group}")
    if (row.tags or {}).get(TAG_CLUSTER) != layout.title:
        raise PreflightError(
            f"{layout.name} in resource group {layout.group} is not of cloudrec",
            remedy="choose another --cluster",
        )
    if not (row.private_fqdn or row.fqdn) or aks.told_by(row)[0] is Condition.DELETING:
        raise _not_up(layout, f"{layout.name} is {row.provisioning_state}")
    return row


def _pool(layout: Layout, azure: Azure) -> Observed:
    for pool in GpuNodesDriver(azure).search(layout.title):
        if pool.condition is Condition.READY:
            return pool
    raise _not_up(layout, "it has no GPU nodes")


def _not_up(layout: Layout, why: str) -> PreflightError:
    return PreflightError(
        f"cluster {layout.title!r} is not up: {why}", remedy=f"cloudrec up azure --cluster {layout.title}"
    )
