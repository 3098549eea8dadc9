"""The inline policies of a cluster's roles: each allows what its holder does to this cluster alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec_contract.layout import run_uri, turns_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.aws.layout import AwsLayout

END = (
    "end"  # the suffix of the role of the schedules that end the cluster; the deployer's policy relies on it
)
GPU_GROUPS = "gpu-"  # prefix of the names of GPU node groups, on which the guard's policy relies
SCHEDULER = "scheduler.amazonaws.com"

_TAG_INTERFACE = "cluster.k8s.amazonaws.com/name"  # which the network plugin sets on interfaces


def role_arn(layout: AwsLayout, suffix: str) -> str:
    """Return the ARN that a role of the cluster has or will have."""
    return f"arn:{layout.partition}:iam::{layout.account}:role{layout.role_path}{layout.role(suffix)}"


def guard_policy(layout: AwsLayout) -> Mapping[str, object]:
    """Return the guard's policy: it may list the node groups, and read and scale those with GPUs."""
    front = f"arn:{layout.partition}:eks:{layout.region}:{layout.account}"
    look = {
        "Sid": "Look",
        "Effect": "Allow",
        "Action": "eks:ListNodegroups",
        "Resource": f"{front}:cluster/{layout.name}",
    }
    scale = {
        "Sid": "Scale",
        "Effect": "Allow",
        "Action": ["eks:DescribeNodegroup", "eks:UpdateNodegroupConfig"],
        "Resource": f"{front}:nodegroup/{layout.name}/{GPU_GROUPS}*/*",
    }
    more = [*_prices(layout), *_moves(layout), *_watches(layout), *_turns(layout)]
    return {"Version": "2012-10-17", "Statement": [look, scale, *more]}


def _watches(layout: AwsLayout) -> list[Mapping[str, object]]:
    """Return what the keeper of a managed cluster needs to see that a zone has no capacity."""
    if not layout.cluster.managed:
        return []
    # Amazon EC2 Auto Scaling has no narrower resource for this action.
    action = "autoscaling:DescribeScalingActivities"
    return [{"Sid": "Watch", "Effect": "Allow", "Action": action, "Resource": "*"}]


def _turns(layout: AwsLayout) -> list[Mapping[str, object]]:
    """Return what the keepers of managed clusters need to take turns: small objects in the storage.

    The sizes of the files that pods have written show whether the pods of another cluster still work.
    """
    if not layout.cluster.managed:
        return []
    bucket = f"arn:{layout.partition}:s3:::{layout.bucket}"
    under = turns_uri(layout.prefix, "*").lstrip("/")
    pods = f"{run_uri(f'{layout.prefix}/', '*')}/pods/*".lstrip("/")
    return [
        {
            "Sid": "Turns",
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:PutObject"],
            "Resource": f"{bucket}/{under}",
        },
        {
            "Sid": "ListTurns",
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": bucket,
            "Condition": {"StringLike": {"s3:prefix": [under, pods]}},
        },
        _use_of_key(layout),
    ]


def _prices(layout: AwsLayout) -> list[Mapping[str, object]]:
    """Return what the guard needs to meter spot nodes; nothing for a cluster without them."""
    if layout.cluster.capacity == "on-demand":
        return []
    # EC2 has no narrower resource for this action.
    spot = {"Sid": "Prices", "Effect": "Allow", "Action": "ec2:DescribeSpotPriceHistory", "Resource": "*"}
    return [spot]


def _moves(layout: AwsLayout) -> list[Mapping[str, object]]:
    """Return what the guard needs to move the end of a budget; nothing for a cluster without a budget.

    UpdateSchedule passes the schedule's role again, which may only scale the same groups of nodes.
    """
    if layout.cluster.budget_usd is None:
        return []
    front = f"arn:{layout.partition}:scheduler:{layout.region}:{layout.account}"
    return [
        {
            "Sid": "Move",
            "Effect": "Allow",
            "Action": ["scheduler:GetSchedule", "scheduler:UpdateSchedule"],
            "Resource": f"{front}:schedule/{layout.name}/{GPU_GROUPS}*",
        },
        {
            "Sid": "Note",
            "Effect": "Allow",
            "Action": "scheduler:TagResource",
            "Resource": f"{front}:schedule-group/{layout.name}",
        },
        {
            "Sid": "Pass",
            "Effect": "Allow",
            "Action": "iam:PassRole",
            "Resource": role_arn(layout, END),
            "Condition": {"StringEquals": {"iam:PassedToService": SCHEDULER}},
        },
    ]


def end_policy(layout: AwsLayout) -> Mapping[str, object]:
    """Return the policy of the schedules that end the cluster: they may scale the groups of GPU nodes."""
    groups = f"nodegroup/{layout.name}/{GPU_GROUPS}*/*"
    statement = {
        "Sid": "Scale",
        "Effect": "Allow",
        "Action": "eks:UpdateNodegroupConfig",
        "Resource": f"arn:{layout.partition}:eks:{layout.region}:{layout.account}:{groups}",
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def cni_policy(layout: AwsLayout) -> Mapping[str, object]:
    """Return the network plugin's policy: AmazonEKS_CNI_Policy, limited to the cluster's own resources.

    It follows "Scope-down IAM policy per EKS cluster" (docs/iam-policy.md of amazon-vpc-cni-k8s). The plugin
    tags the interfaces that it creates, and those that it finds on its node, with the cluster's name; launch
    templates tag the latter, so that it may.
    """
    front = f"arn:{layout.partition}:ec2:{layout.region}:{layout.account}"
    interfaces, groups = f"{front}:network-interface/*", f"{front}:security-group/*"
    of_nodes = {"StringEquals": {f"aws:ResourceTag/{TAG_CLUSTER}": layout.title}}
    join = ["AttachNetworkInterface", "DetachNetworkInterface", "ModifyNetworkInterfaceAttribute"]
    change = [*join, "AssignPrivateIpAddresses", "DeleteNetworkInterface", "UnassignPrivateIpAddresses"]
    described = ["Instances", "InstanceTypes", "NetworkInterfaces", "SecurityGroups", "Subnets", "Tags"]
    asked: list[tuple[str, list[str], object, object]] = [
        ("Look", [f"Describe{name}" for name in described], "*", None),
        ("Create", ["CreateNetworkInterface"], interfaces,
         {"StringEquals": {f"aws:RequestTag/{_TAG_INTERFACE}": layout.name}}),
        ("Place", ["CreateNetworkInterface"], f"{front}:subnet/*", of_nodes),
        ("Protect", ["CreateNetworkInterface", "ModifyNetworkInterfaceAttribute"], groups, None),
        ("Tag", ["CreateTags"], interfaces,
         {"StringEquals": {"ec2:CreateAction": "CreateNetworkInterface"}}),
        ("TagOfNodes", ["CreateTags"], interfaces, of_nodes),
        ("OfNodes", join, f"{front}:instance/*", of_nodes),
        ("OfPods", change, interfaces,
         {"StringEquals": {f"aws:ResourceTag/{_TAG_INTERFACE}": layout.name}}),
    ]  # fmt: skip
    statements = [
        {
            "Sid": sid,
            "Effect": "Allow",
            "Action": [f"ec2:{name}" for name in names],
            "Resource": resource,
            **({"Condition": condition} if condition else {}),
        }
        for sid, names, resource, condition in asked
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def metrics_policy(layout: AwsLayout) -> Mapping[str, object]:
    """Return the policy of CloudWatch's agent: CloudWatchAgentServerPolicy for the cluster's log groups only.

    cloudrec creates the log group with its retention, so the agent needs neither permission.
    """
    groups = f"arn:{layout.partition}:logs:{layout.region}:{layout.account}:log-group"
    look = {
        "Sid": "Look",
        "Effect": "Allow",
        "Action": ["ec2:DescribeTags", "ec2:DescribeVolumes", "logs:DescribeLogGroups"],
        "Resource": "*",
    }
    send = {
        "Sid": "Send",
        "Effect": "Allow",
        "Action": "cloudwatch:PutMetricData",
        "Resource": "*",
        "Condition": {"StringEquals": {"cloudwatch:namespace": ["CWAgent", "ContainerInsights"]}},
    }
    write = {
        "Sid": "Write",
        "Effect": "Allow",
        "Action": ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
        "Resource": f"{groups}:/aws/containerinsights/{layout.name}/*",
    }
    return {"Version": "2012-10-17", "Statement": [look, send, write]}


def pod_policy(layout: AwsLayout) -> Mapping[str, object]:
    """Return the policy of runs: they may read and write their prefix of the bucket, with its key."""
    bucket = f"arn:{layout.partition}:s3:::{layout.bucket}"
    prefix = layout.prefix
    under = f"{prefix}/*" if prefix else "*"
    listing: dict[str, object] = {
        "Sid": "List",
        "Effect": "Allow",
        "Action": "s3:ListBucket",
        "Resource": bucket,
    }
    if prefix:
        listing["Condition"] = {"StringLike": {"s3:prefix": [prefix, under]}}
    # The condition key s3:prefix does not exist for this action (Service Authorization Reference of S3).
    uploads = {
        "Sid": "Uploads",
        "Effect": "Allow",
        "Action": "s3:ListBucketMultipartUploads",
        "Resource": bucket,
    }
    objects = {
        "Sid": "Objects",
        "Effect": "Allow",
        "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
        "Resource": f"{bucket}/{under}",
    }
    return {"Version": "2012-10-17", "Statement": [listing, uploads, objects, _use_of_key(layout)]}


def _use_of_key(layout: AwsLayout) -> Mapping[str, object]:
    """Return the statement that lets a role use the bucket's key through S3, both in the bucket's region."""
    statement = {"Sid": "Key", "Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey"]}
    region, key = layout.storage_region, layout.storage_key
    service = f"s3.{region}.{layout.dns_suffix}"
    through: dict[str, dict[str, str]] = {"StringEquals": {"kms:ViaService": service}}
    if not key.startswith("alias/"):
        return {**statement, "Resource": key, "Condition": through}
    # The key of a new cluster does not exist yet, so its ARN is unknown; its alias is known.
    through["ForAnyValue:StringEquals"] = {"kms:ResourceAliases": key}
    every = f"arn:{layout.partition}:kms:{region}:{layout.account}:key/*"
    return {**statement, "Resource": every, "Condition": through}
