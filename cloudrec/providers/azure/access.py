"""Access to a cluster: a kubeconfig in cloudrec's home directory; the user's own is never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cloudrec.engine.graph import TAG_CLUSTER, Condition
from cloudrec.errors import PreflightError
from cloudrec.providers.azure.api import aks
from cloudrec.providers.azure.facts import FACTS, NOTICE
from cloudrec.providers.azure.identity import identity
from cloudrec.providers.azure.nodes import nodes
from cloudrec.providers.azure.nodes.node_pools import AzureGpuNodesDriver
from cloudrec.providers.azure.storage import mounts, tiers
from cloudrec.providers.base.access import LAUNCHERS, KubernetesAccess, cluster_target
from cloudrec.providers.base.capacity.managed import sized_by_keeper, spot_if_any
from cloudrec.providers.base.kubeconfig import kubeconfig, write
from cloudrec.providers.base.offers import SPOT
from cloudrec.safe_yaml import KUBECONFIG_BYTES, safe_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Observed
    from cloudrec.home import Home
    from cloudrec.providers.azure.api import models
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.layout import AzureLayout

IMAGE = "cloudrec/trainer"  # the image's repository in the cluster's registry
# Variables that the kubeconfig passes to the credential command. Secrets are not among them: the command
# finds those in its caller's environment, and the file holds none.
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


def of(layout: AzureLayout, azure: Azure, home: Home, environment: Mapping[str, str]) -> KubernetesAccess:
    """Return the access to a cluster, and write its kubeconfig if it has changed.

    Raises:
        PreflightError: the cluster is not completely up, or cloudrec did not create it.
    """
    cluster = _cluster(layout, azure)
    pool = _pool(layout, azure)
    size = pool.properties["instance_type"]
    # The pods' requests are computed from the hardware, which the layout has for the specified types alone.
    hardware = layout.hardware.get(size)
    if hardware is None:
        raise _not_up(layout, f"its nodes are {size}, which the specification no longer has")
    capacity = spot_if_any(layout.cluster, pool.properties["capacity"])
    path = home.cluster(layout.title) / "kubeconfig"
    write(path, kubeconfig_of(layout, azure, cluster, environment))
    client_id = _pod_identity(layout, azure)
    access = KubernetesAccess(
        launchers=LAUNCHERS,
        nodes=pool.properties["nodes"],
        gpus_per_node=hardware.gpus,
        cores_per_node=hardware.vcpus,  # these sizes have one vCPU per core
        storage=layout.storage,
        environment=hardware.bandwidths,
        target=cluster_target(
            kubeconfig=path,
            context=layout.name,
            account=layout.settings.service_account,
            fabric=hardware.fabric,
            instance_type=size,
            gpus=hardware.gpus,
            cards=hardware.infiniband,
            node_selector={"kubernetes.azure.com/agentpool": pool.properties["pool"]},
            tolerations=tolerations(capacity),
            notice_s=NOTICE.seconds if capacity == SPOT else 0,
            unhealthy=dict(FACTS.unhealthy),
            notices=NOTICE.service,
            image_repository=_image_repository(layout, azure),
            disk_gb=int(tiers.room_gb()),
            local_path=tiers.local_path(hardware),
            volumes=mounts.volumes(layout, azure, client_id=client_id, cache_mb=tiers.cache_mb(hardware)),
            service_account_annotations={"azure.workload.identity/client-id": client_id},
            pod_labels={"azure.workload.identity/use": "true"},
        ),
    )
    return sized_by_keeper(access, layout.cluster)


def kubeconfig_of(
    layout: AzureLayout,
    azure: Azure,
    cluster: models.containerservice.ManagedCluster,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Return a kubeconfig for the cluster; it has no secret.

    Raises:
        PreflightError: AKS returns the address of a server that is not this cluster's.
    """
    calls = azure.containerservice.managed_clusters
    given = azure.read(calls.list_cluster_user_credentials, layout.group, layout.name)
    server, authority = _server(layout, given)
    # A token would be sent to this address, so that it must be one that the cluster's description has too.
    address, hosts = urlsplit(server), {cluster.fqdn, cluster.private_fqdn, cluster.azure_portal_fqdn}
    if address.scheme != "https" or address.hostname not in hosts:
        raise PreflightError(
            f"AKS returns {server} as the address of {layout.name}, not {' or '.join(filter(None, hosts))}",
            remedy="check what answers for Azure: AZURE_RESOURCE_MANAGER_ENDPOINT_URL, the proxy",
        )
    return kubeconfig(
        name=layout.name,
        server=server,
        authority=authority,
        command=("-m", "cloudrec.providers.azure.token"),
        environment={key: environment[key] for key in _PASSED_ON if environment.get(key)},
    )


def _server(layout: AzureLayout, given: models.containerservice.CredentialResults) -> tuple[str, str]:
    """Return the URL and the base64 certificate authority of a cluster's API server."""
    what = f"AKS's kubeconfig for {layout.name}"
    try:
        value = given.kubeconfigs[0].value if given.kubeconfigs else None
        text = (value or b"").decode()
        document: Any = safe_yaml(text, where=what, error=PreflightError, most=KUBECONFIG_BYTES).value
        cluster = document["clusters"][0]["cluster"]
        return str(cluster["server"]), str(cluster["certificate-authority-data"])
    except (AttributeError, LookupError, TypeError, UnicodeDecodeError) as error:
        raise PreflightError(
            f"{what} has no cluster: {error!r}",
            remedy="try again later; `az aks get-credentials` shows Azure's response",
        ) from error


def tolerations(capacity: str) -> list[dict[str, str]]:
    """Return the tolerations that a pod needs for the taints of nodes of a capacity type."""
    taints = [nodes.TAINT, *([nodes.SPOT_TAINT] if capacity == SPOT else [])]
    parts = [taint.replace("=", ":").split(":") for taint in taints]
    return [
        {"key": key, "operator": "Equal", "value": value, "effect": effect} for key, value, effect in parts
    ]


def _pod_identity(layout: AzureLayout, azure: Azure) -> str:
    """Return the client id of the identity that the pods' service account uses."""
    identities = azure.managedidentity.user_assigned_identities
    return str(azure.read(identities.get, layout.group, f"{layout.name}-{identity.POD}").client_id)


def _image_repository(layout: AzureLayout, azure: Azure) -> str:
    registries = azure.containerregistry.registries
    row = azure.get(registries.get, layout.group, layout.registry)
    return f"{row.login_server}/{IMAGE}" if row is not None else ""


def _cluster(layout: AzureLayout, azure: Azure) -> models.containerservice.ManagedCluster:
    row = azure.get(azure.containerservice.managed_clusters.get, layout.group, layout.name)
    if row is None:
        raise _not_up(layout, f"there is no {layout.name} in resource group {layout.group}")
    if (row.tags or {}).get(TAG_CLUSTER) != layout.title:
        raise PreflightError(
            f"{layout.name} in resource group {layout.group} does not belong to cluster {layout.title!r}",
            remedy="choose another --cluster",
        )
    if not (row.private_fqdn or row.fqdn) or aks.condition_of(row)[0] is Condition.DELETING:
        raise _not_up(layout, f"{layout.name} is {row.provisioning_state}")
    return row


def _pool(layout: AzureLayout, azure: Azure) -> Observed:
    for pool in AzureGpuNodesDriver(azure).search(layout.title):
        if pool.condition is Condition.READY:
            return pool
    raise _not_up(layout, "it has no GPU nodes")


def _not_up(layout: AzureLayout, why: str) -> PreflightError:
    return PreflightError(
        f"cluster {layout.title!r} is not up: {why}", remedy=f"cloudrec up azure --cluster {layout.title}"
    )
