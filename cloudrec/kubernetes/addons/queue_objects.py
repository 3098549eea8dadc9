"""The objects of the add-on `kueue-queues`: Kueue's queue of a cluster's present nodes.

A flavor with a topology and the levels of a topology cannot be changed. So their names end with a digest of
what is in them: after a change of the nodes there are new ones, and the earlier ones are removed.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.addons import contexts
from cloudrec.kubernetes.manifests import placement, render
from cloudrec.kubernetes.queues.kinds import OURS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.manifests import TemplateContext
    from cloudrec.kubernetes.queues.pools import NodePool

_OTHER = re.compile(r"[^a-z0-9-]+")


def queue_objects(
    target: ClusterTarget, pools: Sequence[NodePool], *, cluster: str, labels: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return a Topology and a ResourceFlavor for each pool, and a ClusterQueue and a LocalQueue.

    Args:
        target: the cluster.
        pools: its nodes; at least one pool.
        cluster: the cluster's name.
        labels: the labels of each object.
    """
    made: dict[str, TemplateContext] = {}
    quotas = []
    names = list(dict.fromkeys(name for pool in pools for name in pool.quota))
    for pool in pools:
        topology = _topology(pool, cluster, labels)
        flavor = _flavor(pool, target, cluster, labels, topology.name if topology else None)
        made |= {each.name: each for each in (topology, flavor) if each is not None}
        rows = [{"name": name, "nominalQuota": pool.quota.get(name, "0")} for name in names]
        quotas.append({"name": flavor.name, "resources": rows})
    behind = contexts.ClusterQueue(
        labels=labels,
        name=_name(cluster),
        namespace=target.namespace,
        resources=names,
        flavors=quotas,
    )
    front = contexts.LocalQueue(
        labels=labels, name=OURS, namespace=target.namespace, cluster_queue=behind.name
    )
    first = sorted(made.values(), key=lambda each: isinstance(each, contexts.ResourceFlavor))
    return [render(each) for each in (*first, behind, front)]


def _topology(pool: NodePool, cluster: str, labels: Mapping[str, str]) -> contexts.QueueTopology | None:
    if not pool.levels or not pool.labels:  # Kueue requires a label of the nodes beside a topology
        return None
    levels = [{"nodeLabel": each} for each in pool.levels]
    return contexts.QueueTopology(labels=labels, name=_name(cluster, levels), levels=levels)


def _flavor(
    pool: NodePool, target: ClusterTarget, cluster: str, labels: Mapping[str, str], topology: str | None
) -> contexts.ResourceFlavor:
    tolerations = placement.node_tolerations(target)
    content = [dict(pool.labels), tolerations, topology]
    return contexts.ResourceFlavor(
        labels=labels,
        name=_name(cluster, content, part=pool.name),
        node_labels=pool.labels,
        tolerations=tolerations,
        topology=topology,
    )


def _name(cluster: str, content: Any = None, *, part: str = "") -> str:  # noqa: ANN401 - a tree of JSON
    """Return a name in Kubernetes for an object of a cluster, with a digest of its content."""
    words = ["cloudrec", cluster, part]
    if content is not None:
        words.append(hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8])
    return "-".join(_OTHER.sub("-", word.lower()).strip("-") for word in words if word)
