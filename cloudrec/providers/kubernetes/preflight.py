"""Checks before a cluster is adopted: its version, cloudrec's permissions, and its nodes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cloudrec.findings import Finding
from cloudrec.providers.kubernetes.cleanup import leftovers
from cloudrec.providers.kubernetes.nodes.nodes import GPU

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.providers.kubernetes.api.client import Adopted
    from cloudrec.providers.kubernetes.layout import KubeLayout
    from cloudrec.providers.kubernetes.nodes.nodes import Pool

_OLDEST = (1, 31)  # the first version whose Job pod failure policy is stable; runs use it for disruptions
# The permissions that `up`, `train` and `down` need: cluster-wide, and in the namespace of the runs. A search
# lists cloudrec's objects in all namespaces, since another machine may have made some.
_EVERYWHERE = (("list", "Node"), ("get", "Namespace"), *(("list", api) for api in leftovers.SEARCHED))
_MADE = ("Job", "ConfigMap", "Service", "ServiceAccount", "NetworkPolicy", "PodDisruptionBudget")
_OF_GUARD = ("CronJob", "Role", "RoleBinding")  # looked for, also where there is none
_WITHIN = (
    *((verb, kind) for kind in _MADE for verb in ("create", "patch", "delete")),
    *(("get", kind) for kind in (*_MADE, *_OF_GUARD)),
    ("watch", "Pod"),
    ("list", "Event"),  # why a pod does not start
)
_ASKED = 8  # concurrent access reviews
_FEW = 3  # nodes that a message names


def reached(adopted: Adopted) -> Finding:
    """Return the finding about the cluster's address and version."""
    version = adopted.kube.version()
    parts = version.removeprefix("v").split(".")[:2]
    is_new = all(part.isdigit() for part in parts) and tuple(map(int, parts)) >= _OLDEST
    return Finding(
        check="cluster",
        ok=is_new,
        found=f"{adopted.place.context} at {adopted.kube.server} is Kubernetes {version}",
        needed=f"{_OLDEST[0]}.{_OLDEST[1]} or later",
        remedy="upgrade the cluster",
    )


def findings(adopted: Adopted, layout: KubeLayout, pool: Pool) -> Sequence[Finding]:
    """Return the findings about permissions, nodes and GPUs."""
    return [_permissions(adopted, layout), _nodes(layout, pool), _gpus(pool)]


def _permissions(adopted: Adopted, layout: KubeLayout) -> Finding:
    kube, within = adopted.kube, layout.namespace
    made = () if "namespace" in layout.foreign else (("create", "Namespace"), ("delete", "Namespace"))
    asked = [(verb, kind, "") for verb, kind in (*_EVERYWHERE, *made)]
    asked += [(verb, kind, within) for verb, kind in _WITHIN]
    with ThreadPoolExecutor(_ASKED, thread_name_prefix="preflight") as pool:
        allowed = list(pool.map(lambda each: kube.may(each[0], each[1], namespace=each[2]), asked))
    lacking = [
        f"{verb} {kind}" + (f" in {where}" if where else "")
        for (verb, kind, where), is_allowed in zip(asked, allowed, strict=True)
        if not is_allowed
    ]
    return Finding(
        check="permissions",
        ok=not lacking,
        found=f"not allowed: {', '.join(lacking)}" if lacking else "all that is needed",
        needed="the role `admin` in the runs' namespace, and to list nodes and cloudrec's objects everywhere",
        remedy="ask who administers the cluster; a namespace of theirs is taken by "
        "--set cluster.settings.namespace=NAME",
    )


def _nodes(layout: KubeLayout, pool: Pool) -> Finding:
    wanted, there = layout.cluster.nodes, len(pool.names)
    out = [f"{name} {why}" for name, why in sorted(pool.left_out.items())]
    left_out = f"; left out: {', '.join(out[:_FEW])}{', ...' if len(out) > _FEW else ''}" if out else ""
    return Finding(
        check="nodes",
        ok=there >= max(wanted, 1),
        found=f"{there} ready{left_out}",
        needed=f"{wanted}",
        remedy="add nodes, ask for fewer with --nodes, or fix cluster.settings.node_selector",
    )


def _gpus(pool: Pool) -> Finding:
    if pool.gpus:
        return Finding(check="gpus", ok=True, found=f"{pool.gpus} on each of {len(pool.names)} nodes")
    return Finding(
        check="gpus",
        ok=False,
        found=f"no node offers {GPU}: runs train on the CPU",
        needed="GPUs, for speed",
        remedy="where there are GPUs, the device plugin is missing: `up` installs it (cluster.addons)",
        blocks=False,
    )
