"""Scaling what trains to no nodes, with no more permissions than that takes: the guard's are few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import is_ours
from cloudrec.engine.graph import TAG_KEY
from cloudrec.provider import Halt
from cloudrec.providers.aws import eks, errors
from cloudrec.providers.aws.identity import GPU_GROUPS
from cloudrec.providers.aws.node_groups import GPU

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.aws.client import Aws


def halt(aws: Aws, title: str) -> Halt:
    """Ask for no nodes in each GPU node group of a cluster; what EKS is at work on is left for later."""
    cluster = f"{eks.PREFIX}{title}"
    try:
        names = aws.read("eks", "list_nodegroups", "nodegroups", clusterName=cluster)
    except ClientError as error:
        if errors.is_absent(error):
            return Halt()
        raise
    pools, left = list[str](), list[str]()
    for name in (name for name in names if name.startswith(GPU_GROUPS)):
        group = aws.read("eks", "describe_nodegroup", clusterName=cluster, nodegroupName=name)["nodegroup"]
        nodes = group["scalingConfig"]["desiredSize"]
        if nodes and _trains(group, title):
            why = _scaled(aws, cluster, name)
            if why:
                left.append(f"node group {name}: {why}")
            else:
                pools.append(f"{cluster}/{name}")
    return Halt(pools=tuple(pools), left=tuple(left))


def _trains(group: Mapping[str, Any], title: str) -> bool:
    tags = group.get("tags") or {}
    return is_ours(tags, title) and str(tags.get(TAG_KEY, "")).partition("/")[0] == GPU


def _scaled(aws: Aws, cluster: str, name: str) -> str:
    """Ask for no nodes; return why not where EKS does not do it now."""
    none = {"minSize": 0, "maxSize": 1, "desiredSize": 0}  # EKS knows no group that may never have a node
    try:
        aws.client("eks").update_nodegroup_config(clusterName=cluster, nodegroupName=name, scalingConfig=none)
    except ClientError as error:
        if errors.is_absent(error):
            return ""
        if errors.is_in_use(error):
            return "EKS is still at work on it"
        raise
    return ""
