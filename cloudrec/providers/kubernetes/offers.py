"""The nodes that a cluster has, as offers: others pay for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.provider import Offer

if TYPE_CHECKING:
    from cloudrec.providers.kubernetes.nodes import Pool
    from cloudrec.providers.kubernetes.settings import KubernetesSettings


def offer(pool: Pool, context: str, settings: KubernetesSettings) -> Offer:
    """Describe the nodes that train as one kind of node."""
    return Offer(
        instance_type=pool.instance_type or "various",
        location=context,
        capacity="owned",
        vcpus=pool.cores,
        memory_gib=round(pool.memory_gib, 1),
        gpu="NVIDIA" if pool.gpus else "",
        gpus=pool.gpus,
        hourly_usd=settings.node_hourly_usd,
        priced="cluster.settings.node_hourly_usd" if settings.node_hourly_usd else "already paid for",
    )
