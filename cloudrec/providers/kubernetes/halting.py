"""What can be done on others' nodes when a cluster's end has come: they are left, and nobody comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.provider import Halt
from cloudrec.providers.kubernetes.nodes import pool_of

if TYPE_CHECKING:
    from cloudrec.providers.kubernetes.client import Adopted
    from cloudrec.providers.kubernetes.settings import KubernetesSettings


def halt(adopted: Adopted, settings: KubernetesSettings) -> Halt:
    """Cordon the nodes that train, where they have GPUs; they are not ours to scale."""
    pool = pool_of(adopted.kube.list("Node"), settings)
    if not pool.gpus:
        return Halt(left=("the nodes, which have no GPUs and are not ours to scale",), is_final=True)
    for name in pool.names:
        adopted.kube.patch("Node", name, {"spec": {"unschedulable": True}})
    left = tuple(f"node {name}, cordoned: it is not ours to scale" for name in pool.names)
    return Halt(left=left, is_final=True)
