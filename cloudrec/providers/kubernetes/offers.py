"""A cluster's existing nodes as an offer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.base.protocol import OWNED, Offer

if TYPE_CHECKING:
    from cloudrec.providers.kubernetes.nodes.nodes import Pool
    from cloudrec.providers.kubernetes.settings import KubernetesSettings


def offer(pool: Pool, context: str, settings: KubernetesSettings) -> Offer:
    """Return one offer for the nodes that can train."""
    return Offer(
        instance_type=pool.instance_type or "various",
        location=context,
        capacity=OWNED,
        vcpus=pool.cores,
        memory_gib=round(pool.memory_gib, 1),
        gpu="NVIDIA" if pool.gpus else "",
        gpus=pool.gpus,
        hourly_usd=settings.node_hourly_usd,
        priced="already paid for" if settings.node_hourly_usd is None else "cluster.settings.node_hourly_usd",
    )
