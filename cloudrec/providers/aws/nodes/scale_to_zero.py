"""Scales the GPU node groups to zero nodes, with the guard's few permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cloudrec.engine.graph import TAG_KEY
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.identity.identity import GPU_GROUPS
from cloudrec.providers.aws.nodes.node_groups import GPU
from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.base.protocol import Halt

if TYPE_CHECKING:
    from types_boto3_eks.type_defs import NodegroupScalingConfigTypeDef, NodegroupTypeDef

    from cloudrec.providers.aws.api.client import Aws


def halt(aws: Aws, title: str) -> Halt:
    """Scale each GPU node group of a cluster to zero nodes.

    Returns:
        The groups that EKS scales now, and those that it could not, with the reasons.
    """
    cluster = f"{eks.PREFIX}{title}"
    try:
        pages = aws.eks.get_paginator("list_nodegroups").paginate
        names = aws.rows(pages, lambda page: page.get("nodegroups"), clusterName=cluster)
    except ClientError as error:
        if errors.is_absent(error):
            return Halt()
        raise
    pools, left = list[str](), list[str]()
    for name in (name for name in names if name.startswith(GPU_GROUPS)):
        group = aws.read(aws.eks.describe_nodegroup, clusterName=cluster, nodegroupName=name)["nodegroup"]
        nodes = group["scalingConfig"]["desiredSize"]
        # The name alone is no proof: a user's own node group may begin with the same prefix.
        if nodes and _trains(group, title):
            reason = _scaled(aws, cluster, name)
            if reason:
                left.append(f"node group {name}: {reason}")
            else:
                pools.append(f"{cluster}/{name}")
    return Halt(pools=tuple(pools), left=tuple(left))


def _trains(group: NodegroupTypeDef, title: str) -> bool:
    tags = group.get("tags") or {}
    return is_ours(tags, title) and str(tags.get(TAG_KEY, "")).partition("/")[0] == GPU


def _scaled(aws: Aws, cluster: str, name: str) -> str:
    """Scale a node group to zero nodes; return why EKS does not do so now, or an empty text."""
    # EKS requires a maxSize of at least 1.
    none: NodegroupScalingConfigTypeDef = {"minSize": 0, "maxSize": 1, "desiredSize": 0}
    try:
        aws.eks.update_nodegroup_config(clusterName=cluster, nodegroupName=name, scalingConfig=none)
    except ClientError as error:
        if errors.is_absent(error):
            return ""
        if errors.is_in_use(error):
            return "EKS is still updating it"
        return errors.explain(error).message  # not raised, so that the other groups are still scaled
    return ""
