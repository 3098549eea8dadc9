"""Access to an adopted cluster: a private copy of its context, and the nodes that it has now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import FREE
from cloudrec.errors import PreflightError
from cloudrec.kubernetes.client.errors import DeniedError
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.providers.base.access import LAUNCHERS, KubernetesAccess
from cloudrec.providers.kubernetes.api import private
from cloudrec.providers.kubernetes.cluster import cluster
from cloudrec.providers.kubernetes.nodes.devices import listed
from cloudrec.providers.kubernetes.nodes.nodes import pool_of
from cloudrec.providers.kubernetes.nodes.room import room_of

if TYPE_CHECKING:
    from cloudrec.home import Home
    from cloudrec.providers.kubernetes.api.client import Adopted
    from cloudrec.providers.kubernetes.layout import KubeLayout


def of(layout: KubeLayout, adopted: Adopted, home: Home) -> KubernetesAccess:
    """Return the access to an adopted cluster. Writes its kubeconfig again if the user's has changed.

    Raises:
        PreflightError: the cluster is not adopted, or not completely, or none of its nodes can train.
    """
    note = adopted.kube.get("ConfigMap", layout.name, namespace=layout.namespace)
    if note is None:
        raise _not_up(layout, f"there is no {layout.namespace}/{layout.name} in {adopted.place.context}")
    nodes, claims = listed(adopted.kube)
    pool = pool_of(nodes, layout.settings)
    if not pool.names:
        raise _not_up(layout, "none of its nodes is ready")
    training = [node for node in nodes if node["metadata"]["name"] in pool.names]
    room = room_of(training, _daemon_sets(adopted))
    driver = private.KubeconfigDriver(home, adopted.place.config)
    copy = layout.resource(
        private.KUBECONFIG,
        properties=private.KubeconfigProperties(digest=private.digest(adopted.place.config)),
        hourly_usd=FREE,
    )
    seen = driver.find(copy)
    if seen is None or driver.difference(copy, seen) is not None:
        driver.create(copy, token="", identities={})
    target = ClusterTarget(
        kubeconfig=str(private.path_of(home, layout.title)),
        context=adopted.place.context,
        namespace=layout.namespace,
        service_account=layout.settings.service_account,
        identity=adopted.uid,
        fabric=pool.fabric,
        instance_type=pool.instance_type,
        resources=dict(pool.resources),
        claims=[each for each in claims if each.resource in pool.resources],
        cpus=int(room.cores),
        memory_gib=int(room.memory_gib),
        limits_cores=_limits_cores(adopted, layout.namespace),
        node_selector=dict(layout.settings.node_selector),
        tolerations=list(pool.tolerations),
        capabilities=list(pool.capabilities),
        service_account_annotations=dict(layout.settings.service_account_annotations),
        pod_labels=dict(layout.settings.pod_labels),
        notice_s=pool.notice_s,
        topology=list(pool.topology),
        notices=pool.notices,
        image_repository=layout.settings.image_repository or "",
    )
    return KubernetesAccess(
        launchers=LAUNCHERS,
        nodes=len(pool.names),
        gpus_per_node=pool.gpus,
        cores_per_node=max(pool.cores, 1),
        storage=layout.settings.storage or "",
        target=target,
        is_adopted=True,
        expires=cluster.end_of(note),
    )


def _daemon_sets(adopted: Adopted) -> list[dict[str, Any]]:
    """Return all DaemonSets; none without the permission, since a run does not request a whole node."""
    try:
        return adopted.kube.list("DaemonSet")
    except DeniedError:
        return []


def _limits_cores(adopted: Adopted, namespace: str) -> bool:
    """Return whether a quota of the namespace refuses pods that state no limit of cores."""
    try:
        quotas = adopted.kube.list("ResourceQuota", namespace=namespace)
    except DeniedError:
        return False
    return any("limits.cpu" in ((each.get("spec") or {}).get("hard") or {}) for each in quotas)


def _not_up(layout: KubeLayout, why: str) -> PreflightError:
    return PreflightError(
        f"cluster {layout.title!r} is not up: {why}",
        remedy=f"cloudrec up kubernetes --cluster {layout.title}",
    )
