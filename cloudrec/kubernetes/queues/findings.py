"""What `doctor` reports about the queues of a cluster's namespace for runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.findings import Finding
from cloudrec.kubernetes.manifests.placement import node_tolerations, of_whole_node
from cloudrec.kubernetes.quantities import amount
from cloudrec.kubernetes.queues.admission import names_in, refusals
from cloudrec.kubernetes.queues.demand import PodDemand
from cloudrec.kubernetes.queues.kinds import LOCAL_QUEUE
from cloudrec.transport import profile_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.target import ClusterTarget

_LEAST = {"cpu": "100m", "memory": "256Mi"}


def queue_findings(kube: Kube, target: ClusterTarget, nodes: int) -> Iterator[Finding]:
    """Yield a finding for each LocalQueue: whether it can admit a run on all nodes of the cluster.

    Nothing is yielded without Kueue. No finding blocks, since a run need not use a queue.

    Args:
        kube: the cluster.
        target: its nodes for runs, and what a pod requests of one.
        nodes: how many of them there are.
    """
    if not kube.kinds.has(LOCAL_QUEUE):
        return
    names = names_in(kube, target.namespace)
    if not names:
        yield Finding(
            check="queues of Kueue",
            ok=False,
            found=f"namespace {target.namespace} has no LocalQueue",
            needed="one, if runs are to be queued",
            remedy="cloudrec addons install kueue-queues",
            blocks=False,
        )
    whole = of_whole_node(target, profile_of(target.fabric, target.instance_type))
    asked = {name: amount(value) for name, value in {**_LEAST, **whole}.items()}
    demand = PodDemand(
        count=max(nodes, 1),
        requests=asked,
        selector=target.node_selector,
        tolerations=node_tolerations(target),
    )
    for name in names:
        found = refusals(kube, target.namespace, name, [demand])
        yield Finding(
            check=f"queue {name}",
            ok=not found,
            found="; ".join(each.found for each in found) or f"it can admit a run on {demand.count} nodes",
            needed=f"to admit a run on all {demand.count} nodes",
            remedy=found[0].remedy if found else "",
            blocks=False,
        )
