"""How runs reach an adopted cluster: by a copy of its context, and on the nodes that are there now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError
from cloudrec.kube.target import Target
from cloudrec.provider import Access
from cloudrec.providers.kubernetes import private
from cloudrec.providers.kubernetes.nodes import pool_of

if TYPE_CHECKING:
    from cloudrec.home import Home
    from cloudrec.providers.kubernetes.client import Adopted
    from cloudrec.providers.kubernetes.layout import Layout

_LAUNCHERS = ("torchrun", "pytorchjob", "trainjob", "rayjob")


def of(layout: Layout, adopted: Adopted, home: Home) -> Access:
    """Return the access to a cluster that was adopted, and write its kubeconfig anew where it has changed.

    Raises:
        PreflightError: it was not (wholly) adopted, or no node of it can train.
    """
    note = adopted.kube.get("ConfigMap", layout.name, namespace=layout.namespace)
    if note is None:
        raise _not_up(layout, f"there is no {layout.namespace}/{layout.name} in {adopted.place.context}")
    pool = pool_of(adopted.kube.list("Node"), layout.settings)
    if not pool.names:
        raise _not_up(layout, "none of its nodes is ready")
    driver = private.KubeconfigDriver(home, adopted.place.config)
    copy = layout.resource(private.KUBECONFIG, properties={"digest": private.digest(adopted.place.config)})
    seen = driver.find(copy)
    if seen is None or driver.difference(copy, seen) is not None:
        driver.create(copy, token="", identities={})
    target = Target(
        kubeconfig=str(private.path_of(home, layout.title)),
        context=adopted.place.context,
        namespace=layout.namespace,
        service_account=layout.settings.service_account,
        identity=adopted.uid,
        fabric=pool.fabric,
        instance_type=pool.instance_type,
        resources=dict(pool.resources),
        node_selector=dict(layout.settings.node_selector),
        tolerations=list(pool.tolerations),
        capabilities=list(pool.capabilities),
        service_account_annotations=dict(layout.settings.service_account_annotations),
        pod_labels=dict(layout.settings.pod_labels),
        notice_s=pool.notice_s,
        notices=pool.notices,
        image_repository=layout.settings.image_repository or "",
    )
    return Access(
        launchers=_LAUNCHERS,
        nodes=len(pool.names),
        gpus_per_node=pool.gpus,
        cores_per_node=max(pool.cores, 1),
        storage=layout.settings.storage or "",
        details=target.to_json(),
        is_adopted=True,
    )


def _not_up(layout: Layout, why: str) -> PreflightError:
    return PreflightError(
        f"cluster {layout.title!r} is not up: {why}",
        remedy=f"cloudrec up kubernetes --cluster {layout.title}",
    )
