"""Sizes the GPU node groups, and scales them to zero nodes, with the guard's few permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cloudrec.engine.graph import TAG_KEY
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.identity.policies import GPU_GROUPS
from cloudrec.providers.aws.nodes.node_groups import GPU, launch_failure
from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.base.protocol import Halt, PoolSize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from types_boto3_eks.type_defs import NodegroupScalingConfigTypeDef, NodegroupTypeDef

    from cloudrec.providers.aws.api.client import Aws


def halt(aws: Aws, title: str) -> Halt:
    """Scale each GPU node group of a cluster to zero nodes.

    Returns:
        The groups that EKS scales now, and those that it could not, with the reasons.
    """
    cluster = f"{eks.PREFIX}{title}"
    pools, left = list[str](), list[str]()
    for group in _gpu_groups(aws, title):
        name = group["nodegroupName"]
        if not group["scalingConfig"]["desiredSize"]:
            continue
        reason = resize(aws, title, name, 0)
        if reason:
            left.append(f"node group {name}: {reason}")
        else:
            pools.append(f"{cluster}/{name}")
    return Halt(pools=tuple(pools), left=tuple(left))


def sizes(aws: Aws, title: str) -> Sequence[PoolSize]:
    """Return the size of each GPU node group, with why its Auto Scaling group launches no nodes."""
    return [
        PoolSize(
            name=group["nodegroupName"],
            nodes=group["scalingConfig"]["desiredSize"],
            problem=launch_failure(aws, group) if group["scalingConfig"]["desiredSize"] else "",
        )
        for group in _gpu_groups(aws, title)
    ]


def resize(aws: Aws, title: str, name: str, nodes: int) -> str:
    """Give a node group another number of nodes; return why EKS does not do so now, or an empty text."""
    # EKS requires a maxSize of at least 1.
    wanted: NodegroupScalingConfigTypeDef = {"minSize": 0, "maxSize": max(nodes, 1), "desiredSize": nodes}
    try:
        aws.eks.update_nodegroup_config(
            clusterName=f"{eks.PREFIX}{title}", nodegroupName=name, scalingConfig=wanted
        )
    except ClientError as error:
        if errors.is_absent(error):
            return "" if not nodes else "it does not exist"
        if errors.is_in_use(error):
            return "EKS is still updating it"
        return errors.explain(error).message  # not raised, so that the other groups are still scaled
    return ""


def _gpu_groups(aws: Aws, title: str) -> Iterator[NodegroupTypeDef]:
    """Yield the GPU node groups of a cluster; none if the cluster does not exist."""
    cluster = f"{eks.PREFIX}{title}"
    try:
        pages = aws.eks.get_paginator("list_nodegroups").paginate
        names = aws.rows(pages, lambda page: page.get("nodegroups"), clusterName=cluster)
    except ClientError as error:
        if errors.is_absent(error):
            return
        raise
    for name in (name for name in names if name.startswith(GPU_GROUPS)):
        group = aws.read(aws.eks.describe_nodegroup, clusterName=cluster, nodegroupName=name)["nodegroup"]
        # The name alone is no proof: a user's own node group may begin with the same prefix.
        if _trains(group, title):
            yield group


def _trains(group: NodegroupTypeDef, title: str) -> bool:
    tags = group.get("tags") or {}
    return is_ours(tags, title) and str(tags.get(TAG_KEY, "")).partition("/")[0] == GPU
