"""The check of a block of capacity before a cluster is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.findings import Finding

if TYPE_CHECKING:
    from cloudrec.spec.models import ClusterSpec


def block_findings(cluster: ClusterSpec, name: str) -> list[Finding]:
    """Return whether the cluster's block has enough nodes; nothing without one. It may begin later.

    Args:
        cluster: the cluster.
        name: what the cloud calls a block.
    """
    block = cluster.block
    if block is None:
        return []
    return [
        Finding(
            check=f"{name} {block.id}".rstrip(),
            ok=block.nodes >= cluster.nodes,
            found=f"{block.nodes} x {block.instance_type} in {block.zone}, {block.start} to {block.end}",
            needed=f"{cluster.nodes} nodes",
            remedy=f"use fewer nodes (--nodes {block.nodes})",
        )
    ]
